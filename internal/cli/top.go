package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// topStats are a computer's with the rates that two answers make.
type topStats struct {
	holt.ComputerStats
	CPUPercent   float64 `json:"cpu_percent"`   // of one processor of the host
	SentRate     float64 `json:"sent_rate"`     // bytes a second
	ReceivedRate float64 `json:"received_rate"` // bytes a second
}

const (
	topFirst = time.Second            // between the two answers that the first rates are made of
	topLeast = 200 * time.Millisecond // between two answers
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	var every time.Duration
	cmd := &cobra.Command{
		Use: "top [NAME...]", Short: "Show the resource use of computers, live",
		Long: `Shows for each computer its CPU use in percent of one processor of this machine, its memory on this machine
and inside (GUEST), the size of its root disk and workspace, and its network traffic per second; the busiest
first. MEMORY counts memory that forks share once for each of them. Quit with q or Ctrl-C. In a small window,
the least busy computers and some columns are left out. The command does not wake computers. With --once or
--json, or if the output is not a terminal, it shows the use during one second and ends.`,
		Example: `  holt top
  holt top einstein curie --interval 5s
  holt top --once
  holt top --json | jq '.[] | select(.cpu_percent > 50) | .computer'`,
		ValidArgsFunction: a.completeAll(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < topLeast {
				return holt.Errorf(holt.InvalidArgument, "invalid --interval %v", every).WithHint("use %v or more", topLeast)
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			t := &top{a: a, c: c, names: args}
			if once || a.wantsJSON() {
				return t.once(cmd.Context())
			}
			return t.live(cmd.Context(), every)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "show the use once and exit")
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two updates")
	a.jsonFlag(cmd)
	return cmd
}

// top looks again and again.
type top struct {
	a      *app
	c      *client.Client
	names  []string // empty: all
	before map[holt.ComputerID]holt.ComputerStats
}

// once looks twice, and shows what was between.
func (t *top) once(ctx context.Context) error {
	if _, err := t.look(ctx); err != nil {
		return err
	}
	if err := pauseFor(ctx, topFirst); err != nil {
		return err
	}
	rows, err := t.look(ctx)
	if err != nil {
		return err
	}
	if t.a.wantsJSON() {
		return printJSON(t.a.Out, rows)
	}
	if len(rows) == 0 {
		t.a.say("no computers yet; create one with: holt computer create")
		return nil
	}
	return printTable(t.a.Out, topHead, topRows(rows))
}

// pauseFor waits; an error if ctx ends before.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look asks what computers take, and says what they took since the last look; the busiest come first.
func (t *top) look(ctx context.Context) ([]topStats, error) {
	now, err := t.ask(ctx)
	if err != nil {
		return nil, err
	}
	rows, seen := make([]topStats, 0, len(now)), map[holt.ComputerID]holt.ComputerStats{}
	for _, one := range now {
		rows = append(rows, rates(t.before[one.ComputerID], one))
		seen[one.ComputerID] = one
	}
	t.before = seen
	slices.SortStableFunc(rows, func(a, b topStats) int {
		return cmp.Or(cmp.Compare(b.CPUPercent, a.CPUPercent), strings.Compare(a.Computer, b.Computer))
	})
	return rows, nil
}

func (t *top) ask(ctx context.Context) ([]holt.ComputerStats, error) {
	if len(t.names) == 0 {
		return t.c.Stats.List(ctx)
	}
	var all []holt.ComputerStats
	for _, name := range t.names {
		one, err := t.c.Stats.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// rates says what was taken between two answers; before is zero if there was none. A machine that was
// started meanwhile has begun again.
func rates(before, now holt.ComputerStats) topStats {
	out := topStats{ComputerStats: now}
	span := now.At.Sub(before.At).Seconds()
	if before.At.IsZero() || span <= 0 {
		return out
	}
	rate := func(before, now int64) float64 { return float64(max(0, now-before)) / span }
	out.CPUPercent = rate(before.CPUMS, now.CPUMS) / 10
	out.SentRate, out.ReceivedRate = rate(before.Sent, now.Sent), rate(before.Received, now.Received)
	return out
}

var topHead = []string{"NAME", "STATE", "CPU", "MEMORY", "GUEST", "DISK", "WORKSPACE", "IN", "OUT", "IDLE"}

func topRows(all []topStats) [][]string {
	rows := make([][]string, len(all))
	for i, s := range all {
		row := []string{s.Computer, string(s.State), "-", "-", "-", size(s.DiskBytes), size(s.WorkspaceBytes), "-", "-", "-"}
		if s.State == holt.ComputerRunning {
			row[2], row[3] = fmt.Sprintf("%.0f %%", s.CPUPercent), size(s.ResidentBytes)
			row[7], row[8] = size(int64(s.ReceivedRate))+"/s", size(int64(s.SentRate))+"/s"
		}
		if s.GuestBytes > 0 {
			row[4] = size(s.GuestBytes) + " of " + size(int64(s.MemoryMB)<<20)
		}
		if s.IdleSince != nil {
			row[9] = ago(*s.IdleSince)
		}
		rows[i] = row
	}
	return rows
}
