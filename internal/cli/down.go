package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) downCommand() *cobra.Command {
	var stop, pause, keep, yes bool
	cmd := &cobra.Command{
		Use: "down", Short: "End the daemon, its mounts and its computers", Args: exactly(0),
		Long: `Shuts all computers down (their disks are kept) or pauses them, unmounts workspaces on the host,
ends the daemon and waits until its process has ended. If no daemon is running, the command
succeeds. For a daemon on another machine it asks first, because it cannot be started from here.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stop && pause || stop && keep || pause && keep {
				return holt.Errorf(holt.InvalidArgument, "--stop, --pause and --keep exclude each other").WithHint("use only one of them")
			}
			spec := holt.DownSpec{Computers: holt.DownStop}
			if pause {
				spec.Computers = holt.DownPause
			} else if keep {
				spec.Computers = holt.DownKeep
			}
			if err := a.mayEnd(yes); err != nil {
				return err
			}
			return a.down(cmd.Context(), spec)
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "shut the computers down (default)")
	cmd.Flags().BoolVar(&pause, "pause", false, "pause the computers instead: their memory is kept too")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the computers running; the next daemon takes them over")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before ending a daemon on another machine")
	a.jsonFlag(cmd)
	return cmd
}

// mayEnd asks whether the daemon is to end that is called, if that is elsewhere.
func (a *app) mayEnd(yes bool) error {
	t, err := a.target()
	if err != nil || !t.elsewhere() || yes {
		return err
	}
	if !a.asks(yes) {
		return holt.Errorf(holt.InvalidArgument, "this would end the daemon of %s and its computers", t.called()).WithHint("add --yes to confirm; for the daemon of this machine, use --context local")
	}
	return a.confirm(yes, "End the daemon of "+t.called()+" and its computers?")
}

func (a *app) down(ctx context.Context, spec holt.DownSpec) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	health, err := c.Daemon.Health(ctx)
	if err != nil {
		if holt.CodeOf(err) == holt.Unavailable && !a.remote() {
			a.say("no daemon is running")
			return nil
		}
		return err
	}
	var report holt.DownReport
	err = a.wait("stopping computers", func() error {
		if report, err = c.Daemon.Down(ctx, spec, ""); err != nil {
			return err
		}
		return a.gone(ctx, c, health.PID)
	})
	if err != nil {
		return err
	}
	if a.wantsJSON() {
		return printJSON(a.Out, report)
	}
	for _, line := range []struct {
		what  string
		names []string
	}{{"stopped", report.Stopped}, {"paused", report.Paused}, {"left running", report.Kept}, {"unmounted", report.Unmounted}} {
		if len(line.names) > 0 {
			fmt.Fprintf(a.Out, "%s: %s\n", line.what, visible(strings.Join(line.names, ", ")))
		}
	}
	fmt.Fprintln(a.Out, "the daemon has ended")
	return nil
}

// gone waits until the daemon's process has ended, so that another may take
// its data directory; for a daemon elsewhere, until it does not answer.
func (a *app) gone(ctx context.Context, c *client.Client, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c.Close() // it would wait for idle connections
	for {
		if a.remote() {
			fresh, err := a.connect() // c would wait for it to be restarted
			if err != nil {
				return err
			}
			_, err = fresh.Daemon.Health(ctx)
			fresh.Close()
			if err != nil {
				return nil
			}
		} else if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) || zombie(pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return holt.Errorf(holt.Timeout, "the daemon (process %d) has accepted the shutdown but is still running", pid).WithHint("see its log for the reason; to end it: kill %d. The next daemon cleans up unfinished work", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// zombie says that a process has ended and only its parent does not know yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}
