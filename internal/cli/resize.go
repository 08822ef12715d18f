package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) computerResize() *cobra.Command {
	var spec holt.ResizeSpec
	cmd := &cobra.Command{
		Use: "resize NAME", Short: "Change a computer's processors, memory or root disk", Args: exactly(1),
		Long: `Gives a computer another shape. While it runs, processors, memory (in blocks of 128 MiB) and
root disk are added at once, its root file system grows, and everything in it goes on. Fewer
processors and less memory come with its next start, and until then holt computer get shows them
as pending. A stopped computer has all of it from its next start on, a paused one as it goes on.

A root disk is never made smaller; of the host's disk it takes only what is written to it. One that is
full can be made larger whether its computer runs or not.` + fmt.Sprintf(lastingHelp, seeComputers),
		Example: `  holt computer resize einstein --cpus 4 --memory-mb 8192
  holt computer resize einstein --disk-size-mb 40960 --json | jq .guest`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if spec == (holt.ResizeSpec{}) {
				return holt.Errorf(holt.InvalidArgument, "nothing says what %s is to have", args[0]).WithHint("give --cpus, --memory-mb or --disk-size-mb")
			}
			var got holt.ResizedComputer
			err = a.lasts(c, args[0], "resizing", seeComputers, func() error {
				got, err = c.Computers.Resize(cmd.Context(), args[0], spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, got)
			}
			has := got.Computer
			fmt.Fprintf(a.Out, "%s has cpus %d, memory %s, root disk %s\n", has.Name, has.CPUs, size(int64(has.MemoryMB)<<20), size(int64(has.DiskSizeMB)<<20))
			if got.Note != "" {
				a.say("%s", visible(got.Note))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&spec.CPUs, "cpus", 0, "virtual processors")
	f.IntVar(&spec.MemoryMB, "memory-mb", 0, "memory, MiB")
	f.IntVar(&spec.DiskSizeMB, "disk-size-mb", 0, "root disk, MiB")
	a.jsonFlag(cmd)
	return cmd
}

// pendingText is what of a computer's shape is to change; "" if nothing is.
func pendingText(p *holt.Pending) string {
	if p == nil {
		return ""
	}
	var what []string
	if p.CPUs != 0 {
		what = append(what, fmt.Sprintf("cpus %d", p.CPUs))
	}
	if p.MemoryMB != 0 {
		what = append(what, "memory "+size(int64(p.MemoryMB)<<20))
	}
	return strings.Join(what, ", ") + " at the next " + p.When
}
