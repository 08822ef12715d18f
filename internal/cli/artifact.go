package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) artifactCommand() *cobra.Command {
	cmd := group("artifact", "Files that outlive their computer, with their origin",
		a.artifactPublish(), a.artifactPut(), a.artifactGet(), a.artifactList(), a.artifactShow(), a.artifactFiles(), a.artifactQuery(), a.artifactTag(), a.artifactRetain(), a.artifactHold(), a.artifactLink(), a.artifactLinks(), a.artifactUnlink(), a.artifactDelete())
	cmd.Aliases = []string{"artifacts"}
	cmd.Long = `An artifact is an immutable object in a bucket. It outlives its computer and its workspace, and knows
where it comes from: computer, workspace, path, the run that wrote the file and its command line, and
the SHA-256 of its bytes. Publishing another file under a name adds a version; the one before is kept.

To name an artifact, use its id, or BUCKET/NAME for the newest version.`
	return cmd
}

// artifactFlags are what publish and put say of an artifact.
type artifactFlags struct {
	bucket, name, mediaType, retain string
	tags                            []string
}

func (f *artifactFlags) register(a *app, cmd *cobra.Command, name string) {
	flags := cmd.Flags()
	flags.StringVar(&f.bucket, "bucket", "", "bucket (default: artifacts, which is created when it is first used)")
	flags.StringVar(&f.name, "name", "", "name in the bucket, such as reports/2026.pdf (default: "+name+")")
	flags.StringVar(&f.mediaType, "type", "", "media type, such as text/html (default: by the name)")
	flags.StringVar(&f.retain, "retain", "", "retention, such as 12h or 90d: a delete is refused for this time (default: that of the bucket)")
	flags.StringArrayVar(&f.tags, "tag", nil, "tag NAME=VALUE (repeatable)")
	a.completeFlag(cmd, "bucket", bucketNames)
	a.jsonFlag(cmd)
}

// parse returns the tags, and the retention in milliseconds.
func (f *artifactFlags) parse() (tags map[string]string, retain int64, err error) {
	for _, t := range f.tags {
		name, value, ok := strings.Cut(t, "=")
		if !ok {
			return nil, 0, holt.Errorf(holt.InvalidArgument, "the tag %q has no value", holt.Clip(t, 40)).WithHint("write --tag NAME=VALUE")
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[name] = value
	}
	if f.retain != "" {
		span, err := parseSpan("retention", f.retain)
		return tags, span.Milliseconds(), err
	}
	return tags, 0, nil
}

func (a *app) artifactPublish() *cobra.Command {
	var f artifactFlags
	var ofWorkspace bool
	cmd := &cobra.Command{
		Use: "publish COMPUTER:PATH", Short: "Publish a file or directory of a computer or a workspace as an artifact", Args: exactly(1),
		Long: `Publishes the file's present content. Later changes to the file do not change the artifact. For a file
in the workspace this takes the same time for any size: its bytes are stored in the background.
A directory becomes one artifact, whose files can be listed and read. It is stored before the command ends.
Relative paths begin at the workspace, /home/agent. A symbolic link is followed.

With --workspace, the argument is WORKSPACE:PATH, and paths begin at the top of the workspace.`,
		Example: `  holt artifact publish einstein:report.pdf
  holt artifact publish einstein:dist/app.tar.gz --bucket releases --name app/1.2.tar.gz --tag kind=build
  holt artifact publish einstein:site
  holt artifact publish einstein:/var/log/syslog --retain 90d`,
		ValidArgsFunction: a.completeSpots(inComputers, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, file, ok := strings.Cut(args[0], ":")
			if !ok || of == "" || file == "" {
				return holt.Errorf(holt.InvalidArgument, "invalid source %q", holt.Clip(args[0], 80)).WithHint("write COMPUTER:PATH, such as einstein:report.pdf")
			}
			spec := holt.ArtifactSpec{Bucket: f.bucket, Name: f.name, MediaType: f.mediaType}
			if ofWorkspace {
				spec.Workspace, spec.Path = of, holt.OSString(path.Join("/", file))
			} else if spec.Computer, spec.Path = of, holt.OSString(file); !path.IsAbs(file) {
				spec.Path = holt.OSString(path.Join(inComputers.home, file))
			}
			var err error
			if spec.Tags, spec.RetainMS, err = f.parse(); err != nil {
				return err
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			made, err := c.Artifacts.Publish(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			return a.sayArtifact(made, "published")
		},
	}
	f.register(a, cmd, "the file's name")
	cmd.Flags().BoolVar(&ofWorkspace, "workspace", false, "the argument is WORKSPACE:PATH; no computer is needed")
	return cmd
}

func (a *app) artifactPut() *cobra.Command {
	var f artifactFlags
	cmd := &cobra.Command{
		Use: "put FILE", Short: "Store a file or directory of this machine as an artifact", Args: exactly(1),
		Long: `Stores a file or a directory of this machine, or standard input if FILE is - (then --name is needed).
Owners of files are not stored. Pipes, sockets and devices in a directory are left out. Standard error names
them, and the exit status is 1.`,
		Example: `  holt artifact put data.parquet --bucket inputs
  holt artifact put ./site
  tar cz site | holt artifact put - --name site.tar.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := holt.ArtifactPut{Bucket: f.bucket, Name: f.name, MediaType: f.mediaType}
			in, not := io.Reader(a.In), notSent{}
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return located(err)
				}
				defer file.Close()
				in = file
				if info, err := file.Stat(); err == nil && info.Mode().IsRegular() { // it may grow meanwhile
					spec.Size, in = info.Size(), io.LimitReader(file, info.Size())
				} else if err == nil && info.IsDir() {
					stream := tarOf(args[0], &not)
					defer stream.Close()
					spec.Tree, in = true, stream
				}
				if whole, err := filepath.Abs(args[0]); err == nil && spec.Name == "" {
					spec.Name = filepath.Base(whole)
				}
			}
			if spec.Name == "" {
				return holt.Errorf(holt.InvalidArgument, "--name is missing").WithHint("standard input has no name: add --name NAME")
			}
			var err error
			if spec.Tags, spec.RetainMS, err = f.parse(); err != nil {
				return err
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			made, err := c.Artifacts.Put(cmd.Context(), spec, in)
			if err != nil {
				return err
			}
			not.say(a)
			if err = a.sayArtifact(made, "stored"); err == nil && not.N > 0 {
				return exitStatus(exitFailure)
			}
			return err
		},
	}
	f.register(a, cmd, "the file's name")
	return cmd
}

// sayArtifact shows an artifact that was made or changed.
func (a *app) sayArtifact(art holt.Artifact, what string) error {
	if a.wantsJSON() {
		return printJSON(a.Out, art)
	}
	fmt.Fprintf(a.Out, "%s %s/%s, %s, %s\n", what, art.Bucket, visible(art.Name), size(art.Size), art.ID)
	return nil
}

func (a *app) artifactList() *cobra.Command {
	var q holt.ArtifactQuery
	cmd := &cobra.Command{
		Use: "list [BUCKET]", Aliases: []string{"ls"}, Short: "List artifacts", Args: atLeast(0, 1),
		Long: "Lists the artifacts of a bucket, or of all, by name: the newest version of each, or with --versions all\nversions, the newest first.",
		Example: `  holt artifact list
  holt artifact list releases --prefix app/ --versions
  holt artifact list --from einstein --json | jq -r .[].id`,
		ValidArgsFunction: a.complete(bucketNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			q.Bucket = strings.Join(args, "")
			all := []holt.Artifact{}
			for q.Cursor = ""; ; {
				page, err := c.Artifacts.List(cmd.Context(), q)
				if err != nil {
					return err
				}
				all = append(all, page.Items...)
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
			}
			head := []string{"ARTIFACT", "SIZE", "CREATED", "FROM", "ID"}
			return printList(a, all, "no artifacts; publish a file with: holt artifact publish COMPUTER:PATH", head, func(one holt.Artifact) []string {
				return []string{one.Bucket + "/" + visible(one.Name), size(one.Size), ago(one.CreatedAt), visible(originOf(one)), string(one.ID)}
			})
		},
	}
	cmd.Flags().StringVar(&q.Prefix, "prefix", "", "names that begin with this")
	cmd.Flags().StringVar(&q.Computer, "from", "", "only those that come from this computer, by name or id; it may be deleted")
	cmd.Flags().BoolVar(&q.Versions, "versions", false, "all versions, not only the newest of each name")
	a.completeFlag(cmd, "from", a.computerNames)
	a.jsonFlag(cmd)
	return cmd
}

// originOf says in a word where an artifact comes from.
func originOf(art holt.Artifact) string {
	switch o := art.Origin; {
	case o.Computer != "":
		return o.Computer + ":" + shown(o.Path)
	case o.Workspace != "":
		return o.Workspace + ":" + shown(o.Path)
	default:
		return "-"
	}
}

func (a *app) artifactShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ARTIFACT", Short: "Show an artifact and where it comes from", Args: exactly(1),
		Example:           "  holt artifact show artifacts/report.pdf",
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
			if a.wantsJSON() {
				return printJSON(a.Out, art)
			}
			return printTable(a.Out, nil, artifactRows(art))
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func kindOf(art holt.Artifact) string {
	if art.Tree {
		return "directory"
	}
	return "file"
}

func artifactRows(art holt.Artifact) [][]string {
	sum := art.SHA256
	if sum == "" {
		sum = "not known yet: its bytes are being stored"
	}
	rows := [][]string{{"artifact", art.Bucket + "/" + visible(art.Name)}, {"id", string(art.ID)}, {"kind", kindOf(art)}, {"size", size(art.Size)}, {"type", visible(art.MediaType)},
		{"sha-256", sum}, {"created", calendar(art.CreatedAt.Local()) + " by " + visible(art.Origin.By)}}
	add := func(name, value string) {
		if value != "" && value != "-" {
			rows = append(rows, []string{name, visible(value)})
		}
	}
	o := art.Origin
	add("from", originOf(art))
	if o.Writer != nil {
		add("written by", strings.TrimSpace(strings.Join([]string{o.Writer.Kind, o.Writer.Name, o.Writer.Run}, " ")))
	}
	add("job", string(o.Job))
	add("command", clipLine(commandOf(holt.RunSpec{Command: o.Command, Argv: o.Argv}), 200))
	for _, name := range slices.Sorted(maps.Keys(art.Tags)) {
		add("tag", name+"="+art.Tags[name])
	}
	if art.RetainUntil != nil {
		add("retained", "until "+calendar(art.RetainUntil.Local()))
	}
	if art.Hold {
		add("hold", "yes")
	}
	return rows
}

func (a *app) artifactQuery() *cobra.Command {
	return a.tableQuery("artifacts", "the tenant's newest 50,000 artifacts", strings.Join(holt.ArtifactColumns[:12], ", ")+",\n  "+strings.Join(holt.ArtifactColumns[12:], ", "), &cobra.Command{
		Short: "Query artifacts with SQL",
		Example: `  holt artifact query "SELECT name, run, size FROM artifacts WHERE computer = 'einstein' AND tags->>'kind' = 'report'"
  holt artifact query "SELECT bucket, sum(size) FROM artifacts GROUP BY bucket" --csv`,
	}, func(c *client.Client, ctx context.Context, q holt.TableQuery) (holt.QueryResult, error) {
		return c.Artifacts.Query(ctx, q)
	})
}

// changeArtifact is a command that changes an artifact, the first argument.
func (a *app) changeArtifact(cmd *cobra.Command, change func(args []string) (holt.ArtifactChange, error)) *cobra.Command {
	cmd.ValidArgsFunction = a.complete(artifactNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to, err := change(args[1:])
		if err != nil {
			return err
		}
		c, err := a.connectFor(cmd)
		if err != nil {
			return err
		}
		art, err := c.Artifacts.Update(cmd.Context(), args[0], to, "")
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, art)
		}
		return printTable(a.Out, nil, artifactRows(art))
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) artifactTag() *cobra.Command {
	return a.changeArtifact(&cobra.Command{
		Use: "tag ARTIFACT NAME=VALUE…", Short: "Set or remove tags of an artifact", Args: atLeast(2, -1),
		Long:    "NAME=VALUE sets a tag, NAME= removes it.",
		Example: "  holt artifact tag artifacts/report.pdf kind=report reviewed=",
	}, func(args []string) (holt.ArtifactChange, error) {
		change := holt.ArtifactChange{Tags: map[string]*string{}}
		for _, t := range args {
			name, value, ok := strings.Cut(t, "=")
			switch {
			case !ok:
				return change, holt.Errorf(holt.InvalidArgument, "the tag %q has no value", holt.Clip(t, 40)).WithHint("write NAME=VALUE, or NAME= to remove it")
			case value == "":
				change.Tags[name] = nil
			default:
				change.Tags[name] = &value
			}
		}
		return change, nil
	})
}

func (a *app) artifactRetain() *cobra.Command {
	return a.changeArtifact(&cobra.Command{
		Use: "retain ARTIFACT TIME", Short: "Set the retention of an artifact", Args: exactly(2),
		Long:    "Refuses deletes of the artifact for a time from now on, such as 12h or 90d. Only an admin can shorten a\nretention.",
		Example: "  holt artifact retain artifacts/report.pdf 90d",
	}, func(args []string) (holt.ArtifactChange, error) {
		span, err := parseSpan("retention", args[0])
		ms := span.Milliseconds()
		return holt.ArtifactChange{RetainMS: &ms}, err
	})
}

func (a *app) artifactHold() *cobra.Command {
	off := false
	cmd := a.changeArtifact(&cobra.Command{
		Use: "hold ARTIFACT", Short: "Refuse deletes of an artifact until the hold is removed", Args: exactly(1),
		Example: "  holt artifact hold artifacts/report.pdf\n  holt artifact hold artifacts/report.pdf --off",
	}, func([]string) (holt.ArtifactChange, error) {
		on := !off
		return holt.ArtifactChange{Hold: &on}, nil
	})
	cmd.Flags().BoolVar(&off, "off", false, "remove the hold")
	return cmd
}

func (a *app) artifactDelete() *cobra.Command {
	return a.deletes(&cobra.Command{
		Use: "delete ARTIFACT...", Short: "Delete an artifact",
		Long:    "Deletes one version. BUCKET/NAME is the newest version; the one before it becomes the newest.",
		Example: "  holt artifact delete artifacts/report.pdf",
	}, artifactNames, func(ctx context.Context, c *client.Client, ref string) error { return c.Artifacts.Delete(ctx, ref, "") })
}

// deletes is a command that deletes what its arguments name.
func (a *app) deletes(cmd *cobra.Command, all names, remove func(ctx context.Context, c *client.Client, ref string) error) *cobra.Command {
	cmd.Aliases, cmd.Args, cmd.ValidArgsFunction = []string{"rm"}, exactly(1), a.completeAll(all)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connectFor(cmd)
		if err == nil {
			err = remove(cmd.Context(), c, args[0])
		}
		if err != nil {
			return err
		}
		return a.deleted(args[0])
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func artifactNames(ctx context.Context, c *client.Client) (out []string) {
	page, _ := c.Artifacts.List(ctx, holt.ArtifactQuery{})
	for _, one := range page.Items {
		out = append(out, one.Bucket+"/"+one.Name+"\t"+size(one.Size))
	}
	return out
}
