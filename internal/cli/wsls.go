package cli

import (
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) workspaceLs() *cobra.Command {
	var long bool
	var then func(string) string
	cmd := a.onSpot("ls NAME[:PATH]", "List files of a workspace", 2, func(cmd *cobra.Command, c *client.Client, at spot, _ []string) error {
		at.workspace = then(at.workspace)
		info, err := c.WorkspaceFiles.Stat(cmd.Context(), at.workspace, at.path)
		if err != nil {
			return err
		}
		pages := func(yield func([]holt.FileInfo, error) bool) { yield([]holt.FileInfo{info}, nil) }
		if info.Kind == "dir" {
			pages = c.WorkspaceFiles.Pages(cmd.Context(), at.workspace, at.path)
		}
		return a.listFiles(pages, long)
	})
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show mode, owner, size and time")
	then = a.atFlag(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// listFiles prints the names of files, or with long a table of them.
func (a *app) listFiles(pages iter.Seq2[[]holt.FileInfo, error], long bool) error {
	switch {
	case a.wantsJSON():
		return printJSONPages(a.Out, pages)
	case long:
		return a.listLong(pages)
	}
	for page, err := range pages {
		if err != nil {
			return err
		}
		for _, f := range page {
			fmt.Fprintln(a.Out, a.shownName(f))
		}
	}
	return nil
}

// listLong prints a table of each page, the first with a head.
func (a *app) listLong(pages iter.Seq2[[]holt.FileInfo, error]) error {
	head := []string{"KIND", "OWNER", "SIZE", "CHANGED", "NAME"}
	for page, err := range pages {
		if err != nil {
			return err
		}
		rows := make([][]string, len(page))
		for i, f := range page {
			rows[i] = []string{fmt.Sprintf("%s %04o", f.Kind, f.Mode), fmt.Sprintf("%d:%d", f.UID, f.GID), size(f.Size),
				f.ModTime.Local().Format("2006-01-02 15:04:05"), a.shownName(f)}
		}
		if err := printTable(a.Out, head, rows); err != nil {
			return err
		}
		head = nil
	}
	return nil
}
