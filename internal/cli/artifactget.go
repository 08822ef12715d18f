package cli

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) artifactGet() *cobra.Command {
	var file string
	var asTar, asZip bool
	cmd := &cobra.Command{
		Use: "get ARTIFACT [FILE]", Short: "Copy an artifact to this machine", Args: atLeast(1, 2),
		Long: `Writes the bytes to FILE, which is replaced when all of them have arrived; - is standard output. Without
FILE: to a new file in the current directory, under the last part of the name.

An artifact that is a directory is unpacked into a new directory. --tar and --zip write an archive of it
instead, and --path one file or directory of it. To standard output it is a tar stream.

The bytes of a file, of an unpacked directory and of a tar stream are compared with the artifact's SHA-256.
Those of --zip and --path are not.`,
		Example: `  holt artifact get artifacts/report.pdf
  holt artifact get art_d5o7dp6rixbsakb4 - | tar tz
  holt artifact get artifacts/site --zip
  holt artifact get artifacts/site --path index.html -`,
		ValidArgsFunction: a.complete(artifactNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			art, err := c.Artifacts.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			name := filepath.Base(art.Name)
			if name == "." || name == ".." || name == "/" {
				name = string(art.ID)
			}
			if !art.Tree && (file != "" || asTar || asZip) {
				return holt.Errorf(holt.InvalidArgument, "the artifact %s/%s is a file; --path, --tar and --zip apply only to directories", art.Bucket, visible(art.Name)).WithHint("leave them out")
			}
			switch {
			case file != "":
				name = path.Base(file)
			case asTar:
				name += ".tar"
			case asZip:
				name += ".zip"
			}
			to := name
			if len(args) > 1 {
				to = args[1]
			}
			info, err := os.Stat(to)
			if err == nil && len(args) == 1 {
				return holt.Errorf(holt.AlreadyExists, "%s already exists", name).WithHint("give another name: holt artifact get %s NAME", args[0])
			} else if err == nil && info.IsDir() {
				to = filepath.Join(to, name)
			}
			switch ctx := cmd.Context(); {
			case file != "":
				return a.getFile(ctx, c, art, file, to)
			case asZip:
				return a.writeTo(to, func(w io.Writer) error { return c.Artifacts.Zip(ctx, string(art.ID), w) })
			case art.Tree && !asTar && to != "-":
				return a.getDirectory(ctx, c, art, to)
			}
			return a.getArtifact(cmd.Context(), c, art, to)
		},
	}
	cmd.Flags().StringVar(&file, "path", "", "of a directory: only this file or directory in it")
	cmd.Flags().BoolVar(&asTar, "tar", false, "of a directory: write a tar archive (default: NAME.tar)")
	cmd.Flags().BoolVar(&asZip, "zip", false, "of a directory: write a zip archive (default: NAME.zip)")
	cmd.MarkFlagsMutuallyExclusive("path", "tar", "zip")
	a.copyJSONFlag(cmd)
	return cmd
}

// getArtifact writes an artifact to a file, which appears whole; - is standard output.
func (a *app) getArtifact(ctx context.Context, c *client.Client, art holt.Artifact, to string) error {
	if err := a.writeTo(to, func(w io.Writer) error { return readCompared(ctx, c, &art, w) }); err != nil || to == "-" {
		return err
	}
	if a.json {
		return printJSON(a.Out, art)
	}
	fmt.Fprintf(a.Err, "%s, %s\n", visible(to), size(art.Size))
	return nil
}

// readCompared writes the bytes of an artifact and compares them with its SHA-256.
func readCompared(ctx context.Context, c *client.Client, art *holt.Artifact, w io.Writer) error {
	sum := sha256.New()
	if err := c.Artifacts.Read(ctx, string(art.ID), 0, -1, io.MultiWriter(w, sum)); err != nil {
		return err
	}
	if art.SHA256 == "" { // it may be stored by now
		var err error
		if *art, err = c.Artifacts.Get(ctx, string(art.ID)); err != nil {
			return err
		}
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); art.SHA256 != "" && got != art.SHA256 {
		return holt.Errorf(holt.Corrupt, "the bytes that arrived have the SHA-256 %s, not %s", got, art.SHA256).WithHint("copy it again; if that fails too, run holt archive check")
	}
	return nil
}

// writeTo has write give a file its content, which appears whole; - is standard output.
func (a *app) writeTo(to string, write func(io.Writer) error) error {
	if to == "-" {
		return write(a.forContent())
	}
	if there, err := os.Stat(to); err == nil && !there.Mode().IsRegular() { // as /dev/stdout
		return pourInto(to, write)
	}
	return writeBeside(to, 0o644, write)
}
