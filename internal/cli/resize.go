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
		Long: `Changes the processors, memory and root disk of a computer. In a running computer, more processors,
memory (in blocks of 128 MiB) and disk space are added immediately, and its root file system grows.
Fewer processors and less memory take effect at the next start; until then holt computer get shows
them as pending. A stopped computer changes at its next start, a paused one when it is resumed.

A root disk cannot shrink. It uses space on the host only for data that was written. A full disk can be
enlarged whether the computer runs or not.` + fmt.Sprintf(lastingHelp, seeComputers),
		Example: `  holt computer resize einstein --cpus 4 --memory-mb 8192
  holt computer resize einstein --disk-size-mb 40960 --json | jq .guest`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if spec == (holt.ResizeSpec{}) {
				return holt.Errorf(holt.InvalidArgument, "no new size for %s is given", args[0]).WithHint("add --cpus, --memory-mb or --disk-size-mb")
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
