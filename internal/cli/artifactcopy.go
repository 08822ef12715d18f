package cli

import (
	"cmp"
	"context"
	"io"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// ofArtifact is how copies name an artifact: artifact:BUCKET/NAME, or artifact:ID.
const ofArtifact = "artifact:"

// copyArtifact copies between an artifact and a computer; done is false if neither argument names an artifact.
func (a *app) copyArtifact(cmd *cobra.Command, args []string, k *copier) (done bool, err error) {
	from, isFrom := strings.CutPrefix(args[0], ofArtifact)
	to, isTo := strings.CutPrefix(args[1], ofArtifact)
	if !isFrom && !isTo {
		return false, nil
	}
	bucket, name, ok := holt.CutArtifact(to)
	there := inComputers.parseEnd(args[0])
	if isFrom {
		there = inComputers.parseEnd(args[1])
	}
	switch {
	case isFrom && isTo || there.owner == "":
		return true, holt.Errorf(holt.InvalidArgument, "the other side of an artifact must be COMPUTER:PATH").
			WithHint("holt artifact get and put copy between an artifact and this machine; artifact: never names a computer, so use the id of one with this name")
	case isTo && (!ok || bucket == ""):
		return true, holt.Errorf(holt.InvalidArgument, "name a bucket: artifact:BUCKET/NAME").
			WithHint("such as artifact:artifacts/%s; artifact: never names a computer, so use the id of one with this name", shellWord(path.Base(cmp.Or(to, there.path))))
	case len(k.exclude) > 0 || isTo && (k.mode != "" || k.spec.User != ""):
		return true, holt.Errorf(holt.InvalidArgument, "this option does not apply to the copy of an artifact").WithHint("leave out --exclude, and --mode and --user when an artifact is made")
	}
	c, err := a.connectFor(cmd)
	if err != nil {
		return true, err
	}
	k.a, k.files = a, c.Files
	if isTo {
		if name == "" || strings.HasSuffix(name, "/") {
			name += path.Base(there.path)
		}
		made, err := c.Artifacts.Publish(cmd.Context(), holt.ArtifactSpec{Computer: there.owner, Path: holt.OSString(there.path), Bucket: bucket, Name: name}, "")
		if err != nil {
			return true, err
		}
		return true, a.sayArtifact(made, "published")
	}
	return true, a.artifactInto(cmd.Context(), c, from, there, k)
}

func (a *app) artifactInto(ctx context.Context, c *client.Client, ref string, to end, k *copier) error {
	if err := k.parseMode(); err != nil {
		return err
	}
	spec := holt.ArtifactCopy{Computer: to.owner, User: k.spec.User, Mode: k.spec.Mode}
	art, err := c.Artifacts.Get(ctx, ref)
	if err != nil {
		return err
	}
	if art.Tree {
		return a.unpackArtifact(ctx, c, art, to, k)
	}
	if to, err = k.target(ctx, to, path.Base(art.Name), false); err != nil {
		return err
	}
	spec.Path = holt.OSString(to.path)
	info, err := c.Artifacts.Copy(ctx, string(art.ID), spec, "")
	if err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, info)
	}
	a.say("%s:%s, %s", to.owner, shown(info.Path), size(info.Size))
	return nil
}

// unpackArtifact writes what is in an artifact that is a directory into a directory of a computer.
func (a *app) unpackArtifact(ctx context.Context, c *client.Client, art holt.Artifact, to end, k *copier) error {
	if k.mode != "" {
		return holt.Errorf(holt.InvalidArgument, "--mode does not apply to a directory").WithHint("leave it out")
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(c.Artifacts.Read(ctx, string(art.ID), 0, -1, w)) }()
	defer r.Close()
	report, err := c.Files.Untar(ctx, to.owner, to.path, k.spec.User, r)
	if err != nil {
		return err
	}
	k.not = notSent{N: int(report.Left), First: report.LeftOut}
	k.not.say(a)
	if a.json {
		err = printJSON(a.Out, report)
	} else {
		a.say("%s:%s, %s, %s", to.owner, shown(holt.OSString(to.path)), holt.CountOf(int(report.Files), "file"), size(report.Bytes))
	}
	if err == nil && report.Left > 0 {
		return exitStatus(exitFailure)
	}
	return err
}
