package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) workspaceCommand() *cobra.Command {
	return group("workspace", "Durable file systems",
		a.workspaceCreate(), a.workspaceList(), a.workspaceGet(), a.workspaceDelete(),
		a.workspaceUpdate(), a.workspaceMount(), a.workspaceMounts(), a.workspaceUnmount(), a.workspaceCheck(), a.workspaceQuery(), a.workspaceQuota(),
		a.workspaceLs(), a.workspaceCat(), a.workspaceCopy(), a.workspacePut(), a.workspaceRm(), a.workspaceMkdir(), a.workspaceMv(),
		a.workspaceDu(), a.workspaceTag(), a.workspaceImport(), a.workspaceExport(),
		a.workspaceCheckpoint(), a.workspaceCheckpoints(), a.workspaceDeleteCheckpoint(), a.workspaceDiff(), a.workspaceRestore(),
		a.workspaceUndo(), a.workspaceHistory(), a.workspaceBlame(), a.workspaceReceipt(), a.workspaceFork(), a.workspaceMerge())
}

func (a *app) workspaceCreate() *cobra.Command {
	var bytes, files string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an empty workspace", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			spec := holt.WorkspaceSpec{Name: args[0]}
			if err := readQuota(&spec.Quota, bytes, files); err != nil {
				return err
			}
			w, err := c.Workspaces.Create(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, w)
			}
			fmt.Fprintf(a.Out, "workspace %s is created\n", w.Name)
			a.say("next: holt computer create --workspace %s, or holt workspace import %s DIR", w.Name, w.Name)
			return nil
		},
	}
	quotaFlags(cmd, &bytes, &files)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List workspaces", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Workspaces.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no workspaces yet; every new computer gets one")
				return nil
			}
			rows := make([][]string, len(all))
			for i, w := range all {
				rows[i] = []string{w.Name, fmt.Sprint(w.Files), size(w.Bytes), w.Computer, mounts(w), parent(w), ago(w.CreatedAt)}
			}
			return printTable(a.Out, []string{"NAME", "FILES", "SIZE", "COMPUTER", "MOUNTED AT", "FORKED FROM", "CREATED"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func mounts(w holt.Workspace) string {
	var dirs []string
	for _, m := range w.Mounts {
		dir := m.Dir
		if m.ReadOnly {
			dir += " (read-only)"
		}
		dirs = append(dirs, dir)
	}
	return strings.Join(dirs, ", ")
}

func (a *app) workspaceGet() *cobra.Command {
	var at func(string) string
	cmd := &cobra.Command{
		Use: "get NAME | NAME:PATH [FILE]", Short: "Show a workspace, or copy one of its files to this machine", Args: atLeast(1, 2),
		Long: `Shows a workspace. With a path it copies that file to FILE (default: the same name in
the working directory; -: standard output). --at selects a checkpoint.`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.ContainsRune(args[0], ':') {
				return a.copy(cmd.Context(), args[0], append(args, ".")[1], &copier{noun: inWorkspaces}, at)
			}
			if len(args) == 2 {
				return holt.Errorf(holt.InvalidArgument, "%q has no path of a file", args[0]).WithHint("use a path such as %s:notes/plan.md", args[0])
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.Workspaces.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, w)
			}
			return printTable(a.Out, nil, [][]string{
				{"name", w.Name}, {"id", string(w.ID)}, {"files", fmt.Sprint(w.Files)}, {"size", size(w.Bytes)},
				{"quota", bound(w.Quota.Bytes, size) + ", " + bound(w.Quota.Files, func(n int64) string { return holt.CountOf(n, "file") })},
				{"packed", packed(w.Packed)}, {"computer", w.Computer}, {"mounted at", mounts(w)}, {"forked from", parent(w)}, {"created", ago(w.CreatedAt)},
			})
		},
	}
	at = a.atFlag(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// packed says what the archive has of a workspace.
func packed(p holt.Packed) string {
	s := "nothing yet"
	if p.Bytes > 0 {
		s = fmt.Sprintf("%s in %s", size(p.Bytes), size(p.Stored))
	}
	if p.Waiting > 0 {
		s += fmt.Sprintf(", %s waiting", size(p.Waiting))
	}
	return s
}

func (a *app) workspaceDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME...", Short: "Delete a workspace with all its files", Args: exactly(1),
		ValidArgsFunction: a.completeAll(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.Workspaces.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.confirm(yes, fmt.Sprintf("Delete workspace %s with its %s (%s)?", w.Name, holt.CountOf(w.Files, "file"), size(w.Bytes))); err != nil {
				return err
			}
			if err := c.Workspaces.Delete(cmd.Context(), args[0], ""); err != nil {
				return err
			}
			return a.deleted(w.Name)
		},
	}
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) workspaceUpdate() *cobra.Command {
	var to holt.WorkspaceUpdate
	cmd := &cobra.Command{
		Use: "update NAME --name NAME", Short: "Rename a workspace", Args: exactly(1),
		Long: `Renames a workspace, also while it is in use. The old name is free immediately. Its id, its
mounts and its computer do not change.`,
		Example:           "  holt workspace update notes --name archive",
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to.Name == "" {
				return holt.Errorf(holt.InvalidArgument, "no change is given").WithHint("add --name")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			w, err := c.Workspaces.Update(cmd.Context(), args[0], to, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, w)
			}
			fmt.Fprintf(a.Out, "%s is now %s\n", args[0], w.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&to.Name, "name", "", "the new name")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceMounts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mounts", Short: "List mounts on the daemon's host", Args: exactly(0),
		Example: "  holt workspace mounts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Workspaces.Mounts(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no mounts; mount a workspace with: holt workspace mount NAME DIR")
				return nil
			}
			rows := make([][]string, len(all))
			for i, m := range all {
				rows[i] = []string{m.Dir, m.Workspace, map[bool]string{true: "read-only", false: "read and write"}[m.ReadOnly]}
			}
			return printTable(a.Out, []string{"MOUNTED AT", "WORKSPACE", "ACCESS"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceMount() *cobra.Command {
	var readOnly bool
	cmd := &cobra.Command{
		Use: "mount NAME DIR", Short: "Mount a workspace on the daemon's host", Args: exactly(2),
		Long: `Mounts a workspace at an existing, empty directory of the daemon's host. While a computer uses the
workspace, the mount must be read-only. Changes are durable one second after sync(1), and immediately
after fsync(2) or sync FILE.`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := a.hostDir(args[1])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			m, err := c.Workspaces.Mount(cmd.Context(), args[0], holt.MountSpec{Dir: dir, ReadOnly: readOnly}, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, m)
			}
			fmt.Fprintf(a.Out, "%s is mounted at %s\n", args[0], m.Dir)
			a.say("unmount it with: holt workspace unmount %s", m.Dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "mount read-only")
	a.jsonFlag(cmd)
	return cmd
}

// hostDir makes a directory's path one for the daemon, which has another
// working directory, and may be on another machine.
func (a *app) hostDir(dir string) (string, error) {
	if dir == "" { // else it would be the working directory
		return "", holt.Errorf(holt.InvalidArgument, "the directory argument is empty").WithHint("use a directory such as /mnt/work")
	}
	if a.remote() && !filepath.IsAbs(dir) {
		return "", holt.Errorf(holt.InvalidArgument, "%q is not an absolute path", dir).WithHint("use an absolute path: the daemon may be on another machine")
	}
	return filepath.Abs(dir)
}

func (a *app) workspaceUnmount() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unmount DIR", Aliases: []string{"umount"}, Short: "Unmount a workspace on the daemon's host", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := a.hostDir(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Workspaces.Unmount(cmd.Context(), dir, ""); err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, map[string]string{"unmounted": dir})
			}
			fmt.Fprintf(a.Out, "%s is unmounted\n", dir)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) workspaceCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check NAME", Short: "Verify a workspace's metadata and checksums", Args: exactly(1),
		Long: `Recomputes link counts, sizes, extents and checksums, and reports differences. It changes nothing.
The exit status is 0 if there are no problems.`,
		ValidArgsFunction: a.complete(a.workspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var report holt.CheckReport
			err = a.wait("checking", func() error {
				report, err = c.Workspaces.Check(cmd.Context(), args[0])
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				err = printJSON(a.Out, report)
			} else {
				for _, p := range report.Problems {
					fmt.Fprintln(a.Out, a.paint(a.Out, red, visible(p)))
				}
				_, err = fmt.Fprintf(a.Out, "%s, %s, %s, %s of content including checkpoints: %s\n", holt.CountOf(report.Inodes, "inode"),
					holt.CountOf(report.Entries, "entry"), holt.CountOf(report.Extents, "extent"), size(report.Bytes), holt.CountOf(len(report.Problems), "problem"))
			}
			if err == nil && len(report.Problems) > 0 {
				return exitStatus(exitFailure)
			}
			return err
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
