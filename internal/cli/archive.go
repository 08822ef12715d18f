package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) archiveCommand() *cobra.Command {
	cmd := group("archive", "Compressed long-term storage of workspaces and snapshots", a.archiveGet(), a.archiveCollect(), a.archiveCheck())
	cmd.Long = `The daemon moves older content of workspaces, and snapshots of computers with their memory
and disks, to the archive. The archive compresses content and stores each chunk once,
however many workspaces and snapshots contain it.`
	return cmd
}

func (a *app) archiveGet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get", Short: "Show what the archive holds", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			at, err := c.Archive.Get(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, at)
			}
			rows := [][]string{
				{"place", at.Place}, {"spaces", fmt.Sprint(at.Spaces)}, {"content", size(at.Content)},
				{"without repeats", size(at.Unique)}, {"stored", fmt.Sprintf("%s in %s, of which garbage %s", size(at.Stored), holt.CountOf(at.Packs, "pack"), size(at.Garbage))},
				{"ratio", fmt.Sprintf("%.1f to 1", at.Ratio)}, {"waiting", size(at.Waiting)},
			}
			if at.Cached > 0 {
				rows = append(rows, []string{"cached here", size(at.Cached)})
			}
			return printTable(a.Out, nil, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) archiveCollect() *cobra.Command {
	cmd := &cobra.Command{
		Use: "collect", Short: "Remove content that nothing refers to", Args: exactly(0),
		Long: `Removes content of deleted files, workspaces and snapshots that no checkpoint needs. The daemon
does this by itself within two hours.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var did holt.Collected
			err = a.wait("collecting", func() error {
				did, err = c.Archive.Collect(cmd.Context(), "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, did)
			}
			fmt.Fprintf(a.Out, "removed %s (%d rewritten), freed %s\n", holt.CountOf(did.Packs, "pack"), did.Repacked, size(max(0, did.Freed)))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) archiveCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Read and verify everything in the archive", Args: exactly(0),
		Long: `Reads every chunk that a workspace or a snapshot needs, and reports packs that are missing or
damaged. It changes nothing. The exit status is 0 if there are no problems.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var report holt.ArchiveReport
			err = a.wait("checking", func() error {
				report, err = c.Archive.Check(cmd.Context())
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
				_, err = fmt.Fprintf(a.Out, "%s, %s of content: %s\n", holt.CountOf(report.Chunks, "chunk"), size(report.Bytes), holt.CountOf(len(report.Problems), "problem"))
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
