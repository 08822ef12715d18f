package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// onSpot makes a command about one place in a workspace.
func (a *app) onSpot(use, short string, most int, run func(cmd *cobra.Command, c *client.Client, at spot, rest []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: atLeast(1, most), ValidArgsFunction: a.completeSpots(inWorkspaces, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := takeSpot(args)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			return run(cmd, c, at, rest)
		},
	}
}

// shownName is a file's name as ls -F shows it.
func (a *app) shownName(f holt.FileInfo) string {
	name := shown(f.Name)
	switch f.Kind {
	case "dir":
		return name + "/"
	case "symlink":
		return name + " -> " + shown(f.Target)
	}
	return name
}

func (a *app) workspaceCat() *cobra.Command {
	var then func(string) string
	cmd := a.onSpot("cat NAME:PATH", "Print a file of a workspace", 2, func(cmd *cobra.Command, c *client.Client, at spot, _ []string) error {
		return c.WorkspaceFiles.Read(cmd.Context(), then(at.workspace), at.path, 0, -1, a.forContent())
	})
	cmd.Long = `Prints a file. On a terminal, control characters are made visible, because they could
move the cursor or type commands.`
	then = a.atFlag(cmd)
	return cmd
}

func (a *app) workspaceRm() *cobra.Command {
	var recursive bool
	cmd := a.onSpot("rm NAME:PATH", "Remove a file of a workspace", 2, func(cmd *cobra.Command, c *client.Client, at spot, _ []string) error {
		if err := c.WorkspaceFiles.Remove(cmd.Context(), at.workspace, at.path, recursive, ""); err != nil {
			if e := *holt.AsError(err); e.Code == holt.Conflict && e.Hint == "" && !recursive {
				return e.WithHint("add --recursive to remove a directory with its contents")
			}
			return err
		}
		return a.deleted(at.path)
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories with their contents")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceMkdir() *cobra.Command {
	var parents bool
	cmd := a.onSpot("mkdir NAME:PATH", "Make a directory in a workspace", 2, func(cmd *cobra.Command, c *client.Client, at spot, _ []string) error {
		info, err := c.WorkspaceFiles.Mkdir(cmd.Context(), at.workspace, holt.MkdirSpec{Path: holt.OSString(at.path), Parents: parents}, "")
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, info)
		}
		return nil
	})
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "create parent directories too; no error if the directory exists")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceMv() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mv NAME:FROM NAME:TO", Short: "Move a file within a workspace", Args: exactly(2),
		ValidArgsFunction: a.completeSpots(inWorkspaces, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := parseSpot(args[0])
			if err != nil {
				return err
			}
			to, err := parseSpot(args[1])
			if err != nil {
				return err
			}
			if from.workspace != to.workspace {
				return holt.Errorf(holt.InvalidArgument, "%s and %s are different workspaces", from.workspace, to.workspace).
					WithHint("copy between workspaces with holt workspace export and import")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			err = c.WorkspaceFiles.Rename(cmd.Context(), from.workspace, holt.RenameSpec{From: holt.OSString(from.path), To: holt.OSString(to.path)}, "")
			if err == nil && a.wantsJSON() {
				return printJSON(a.Out, struct {
					Workspace string        `json:"workspace"`
					From      holt.OSString `json:"from"`
					To        holt.OSString `json:"to"`
				}{from.workspace, holt.OSString(from.path), holt.OSString(to.path)})
			}
			return err
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceDu() *cobra.Command {
	var depth int
	cmd := a.onSpot("du NAME[:PATH]", "Show the disk use of directories", 2, func(cmd *cobra.Command, c *client.Client, at spot, _ []string) error {
		list, err := c.Workspaces.Usage(cmd.Context(), at.workspace, at.path, depth)
		if err != nil {
			return err
		}
		if a.wantsJSON() {
			return printJSON(a.Out, list)
		}
		rows := make([][]string, len(list))
		for i, u := range list {
			rows[i] = []string{size(u.Bytes), size(u.Allocated), fmt.Sprint(u.Files), fmt.Sprint(u.Dirs), shown(u.Path)}
		}
		return printTable(a.Out, []string{"SIZE", "STORED", "FILES", "DIRS", "PATH"}, rows)
	})
	cmd.Flags().IntVarP(&depth, "depth", "d", 1, "include directories down to this many levels")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceTag() *cobra.Command {
	var remove []string
	cmd := a.onSpot("tag NAME PATH [TAG=VALUE]…", "Show, set and remove tags of a file", -1, func(cmd *cobra.Command, c *client.Client, at spot, rest []string) error {
		spec := holt.TagSpec{Path: holt.OSString(at.path), Set: map[holt.OSString]holt.OSString{}, Remove: remove}
		for _, arg := range rest {
			name, value, ok := strings.Cut(arg, "=")
			if !ok || name == "" {
				return holt.Errorf(holt.InvalidArgument, "%q is not TAG=VALUE", arg).WithHint("use TAG=VALUE, such as urgent=yes; remove a tag with --remove TAG")
			}
			spec.Set[holt.OSString(name)] = holt.OSString(value)
		}
		var tags []holt.Tag
		var err error
		if len(spec.Set)+len(remove) == 0 {
			tags, err = c.Workspaces.Tags(cmd.Context(), at.workspace, at.path)
		} else {
			tags, err = c.Workspaces.Tag(cmd.Context(), at.workspace, spec, "")
		}
		if err != nil {
			return err
		}
		slices.SortFunc(tags, func(x, y holt.Tag) int { return cmp.Compare(x.Name, y.Name) })
		if a.wantsJSON() {
			return printJSON(a.Out, tags)
		}
		rows := make([][]string, len(tags))
		for i, t := range tags {
			rows[i] = []string{shown(t.Name), shown(t.Value)}
		}
		return printTable(a.Out, nil, rows)
	})
	cmd.Long = `Sets or removes tags of a file, then shows them. A tag is the extended attribute user.TAG, which
setfattr and getfattr in a computer also see. To find all files with a tag:
holt workspace query NAME "SELECT path FROM tags WHERE name = 'urgent'"`
	cmd.Flags().StringArrayVar(&remove, "remove", nil, "remove this tag (repeatable)")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceQuota() *cobra.Command {
	var bytes, files string
	cmd := &cobra.Command{
		Use: "quota NAME", Short: "Show or set the quota of a workspace", Args: exactly(1),
		Long: `Sets the quota of a workspace, then shows it. Programs that exceed it get EDQUOT ("Disk quota
exceeded"), and df shows it. If the use is above a new quota, files are kept but cannot grow. Holes and
extended attributes do not count; a file may have 1 MiB of extended attributes.`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.Workspaces.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			q := w.Quota
			if err := readQuota(&q, bytes, files); err != nil {
				return err
			}
			if q != w.Quota {
				if w, err = c.Workspaces.SetQuota(cmd.Context(), args[0], q); err != nil {
					return err
				}
			}
			if a.wantsJSON() {
				return printJSON(a.Out, w.Quota)
			}
			return printTable(a.Out, nil, [][]string{{"bytes", bound(w.Quota.Bytes, size)}, {"files", bound(w.Quota.Files, func(n int64) string { return fmt.Sprint(n) })}})
		},
	}
	quotaFlags(cmd, &bytes, &files)
	a.jsonFlag(cmd)
	return cmd
}

func quotaFlags(cmd *cobra.Command, bytes, files *string) {
	cmd.Flags().StringVar(bytes, "max-bytes", "", "maximum size of all files, such as 20G; none: no limit")
	cmd.Flags().StringVar(files, "max-files", "", "maximum number of files and directories; none: no limit")
}

// readQuota changes what was given.
func readQuota(q *holt.Quota, bytes, files string) (err error) {
	if bytes != "" {
		if q.Bytes, err = parseSize(bytes); err != nil {
			return err
		}
	}
	if files != "" {
		q.Files, err = parseSize(files)
	}
	return err
}

func bound(n int64, show func(int64) string) string {
	if n == 0 {
		return "none"
	}
	return show(n)
}
