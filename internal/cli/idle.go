package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// idleFlag is the flag of an idle timeout.
func idleFlag(cmd *cobra.Command, to *holt.IdleTimeout, what string) {
	cmd.Flags().Var(&idleValue{to}, "idle-timeout", what)
}

// idleValue reads a [holt.IdleTimeout].
type idleValue struct{ to *holt.IdleTimeout }

func (v *idleValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

func (v *idleValue) Set(s string) error {
	if s == "" {
		s = "0"
	}
	return v.to.UnmarshalText([]byte(s))
}

func (*idleValue) Type() string { return "duration" }

func (a *app) computerUpdate() *cobra.Command {
	var change holt.ComputerUpdate
	cmd := &cobra.Command{
		Use: "update NAME [--name NAME] [--idle-timeout DURATION|null]", Short: "Rename a computer, or change when it is paused for being idle", Args: exactly(1),
		Long: `Renames a computer, or changes its idle timeout. The change takes effect immediately, whether the
computer runs or not. holt computer why-awake shows what counts as use. Previews and SSH use the new
name immediately, and the old one is free; the host name inside changes at the next start. The
computer's id and the name of its workspace stay the same (holt workspace update renames that).`,
		Example: `  holt computer update einstein --name albert
  holt computer update einstein --idle-timeout 2h
  holt computer update einstein --idle-timeout null`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if change == (holt.ComputerUpdate{}) {
				return holt.Errorf(holt.InvalidArgument, "no change is given").WithHint("add --name, or --idle-timeout with a duration such as 15m, or null")
			}
			got, err := c.Computers.Update(cmd.Context(), args[0], change, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, got)
			}
			if change.Name != "" {
				fmt.Fprintf(a.Out, "%s is now %s\n", args[0], got.Name)
				if got.Workspace == args[0] { // in whose way a new computer of that name would be
					a.say("its workspace keeps the name %s; to rename it too: holt workspace update %s --name %s", got.Workspace, got.Workspace, got.Name)
				}
			}
			if change.IdleTimeout != 0 {
				fmt.Fprintf(a.Out, "%s %s\n", got.Name, idleSaid(got.IdleTimeout))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&change.Name, "name", "", "the new name")
	idleFlag(cmd, &change.IdleTimeout, "pause it after it was idle for this long, such as 15m; null: never")
	a.jsonFlag(cmd)
	return cmd
}

// idleSaid says when a computer is paused.
func idleSaid(t holt.IdleTimeout) string {
	if t.Never() {
		return "is not paused when it is idle"
	}
	return "is paused after " + t.String() + " idle"
}

// idleRows are what is shown of a computer's idling.
func idleRows(c holt.Computer) (rows [][]string) {
	rows = append(rows, []string{"idle", idleSaid(c.IdleTimeout)})
	if c.PausedBy != "" {
		rows = append(rows, []string{"paused by", c.PausedBy})
	}
	if c.WokenAt != nil {
		rows = append(rows, []string{"woken by", fmt.Sprintf("%s, %s, in %s", visible(c.WokenBy), ago(*c.WokenAt), took(float64(c.WakeMS)))})
	}
	return rows
}

func (a *app) computerWhyAwake() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why-awake NAME", Short: "Show why a computer is awake and when it will be paused", Args: exactly(1),
		Long: `Lists what keeps a computer awake: runs, attached or busy terminals, connections to its ports, access
to its files, schedules, holds, and its own processor or network activity. While there is any of these,
it is not paused; after the last one ends, its idle timeout starts. An idle shell and waiting processes
do not count; use a hold for them (holt computer hold). This command does not wake the computer.`,
		Example: `  holt computer why-awake einstein
  holt computer why-awake einstein --json | jq -r '.uses[].kind'`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			why, err := c.Computers.Awake(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, why)
			}
			return a.printAwake(why)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// printAwake says why a computer is awake.
func (a *app) printAwake(why holt.Awake) error {
	for _, line := range awakeLines(why) {
		fmt.Fprintln(a.Out, line)
	}
	if len(why.Uses) == 0 {
		return nil
	}
	rows := make([][]string, len(why.Uses))
	for i, u := range why.Uses {
		until := ""
		if u.Until != nil {
			until = "in " + span(time.Until(*u.Until))
		}
		rows[i] = []string{string(u.Kind), u.ID, ago(u.Since), until, visible(u.Detail)}
	}
	return printTable(a.Out, []string{"USE", "ID", "SINCE", "ENDS", "WHAT"}, rows)
}

// awakeLines are what is said above the table of uses.
func awakeLines(why holt.Awake) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, oneLine(fmt.Sprintf(format, args...))) }
	switch {
	case why.State != holt.ComputerRunning:
		add("%s is not awake: %s", why.Computer, why.Note)
		if len(why.Uses) > 0 {
			add("these will keep it awake:")
		}
		return lines
	case len(why.Uses) > 0:
		add("%s is awake because of:", why.Computer)
	case why.IdleSince != nil:
		add("%s has been idle for %s%s", why.Computer, span(time.Since(*why.IdleSince)), pauseSaid(why.PausesAt))
	}
	if why.LastUse != nil {
		add("last use: %s", useSaid(*why.LastUse))
	}
	if why.Note != "" {
		add("%s", why.Note)
	}
	return lines
}

// pauseSaid says when an idle computer is paused.
func pauseSaid(at *time.Time) string {
	switch {
	case at == nil:
		return ""
	case time.Until(*at) <= 0:
		return ", and will be paused now"
	}
	return fmt.Sprintf(", and will be paused in %s (at %s)", span(time.Until(*at)), at.Local().Format(time.DateTime))
}

// useSaid says what a use is.
func useSaid(u holt.Use) string {
	said := string(u.Kind)
	if u.ID != "" {
		said += " " + u.ID
	}
	if u.Detail != "" {
		said += " (" + u.Detail + ")"
	}
	return said
}

func (a *app) computerHold() *cobra.Command {
	var spec holt.HoldSpec
	var span time.Duration
	cmd := &cobra.Command{
		Use: "hold NAME --reason TEXT", Short: "Keep a computer awake for a while", Args: exactly(1),
		Long: `A hold keeps an idle computer awake until the hold expires or is released. Use it for work that is
not visible in the computer, such as a model that thinks between two commands. A hold does not wake a
paused computer. A computer can have 32 holds.`,
		Example: `  holt computer hold einstein --reason thinking --for 30m
  id=$(holt computer hold einstein --reason "waits for review" --for 8h --json | jq -r .id)`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if strings.TrimSpace(spec.Reason) == "" {
				return holt.Errorf(holt.InvalidArgument, "a hold needs a reason").WithHint("add a reason, such as --reason thinking")
			}
			spec.ForMS = int64((span + time.Millisecond - 1) / time.Millisecond)
			h, err := c.Computers.Hold(cmd.Context(), args[0], spec, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, h)
			}
			fmt.Fprintln(a.Out, h.ID)
			a.say("until %s; release it: holt computer release %s %s", h.ExpiresAt.Local().Format(time.DateTime), args[0], h.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Reason, "reason", "", "the reason, such as thinking (required)")
	cmd.Flags().DurationVar(&span, "for", 0, "duration, at most 168h (default: 30m)")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) computerHolds() *cobra.Command {
	cmd := &cobra.Command{
		Use: "holds NAME", Short: "List the holds of a computer", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Computers.Holds(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no holds; to see what keeps it awake: holt computer why-awake %s", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, h := range all {
				rows[i] = []string{string(h.ID), ago(h.CreatedAt), "in " + span(time.Until(h.ExpiresAt)), h.By, visible(h.Reason)}
			}
			return printTable(a.Out, []string{"ID", "CREATED", "EXPIRES", "BY", "REASON"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func holdIDs(computer string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		all, _ := c.Computers.Holds(ctx, computer) // no daemon, no holds
		for _, h := range all {
			out = append(out, string(h.ID)+"\t"+oneLine(h.Reason))
		}
		return out
	}
}

func (a *app) computerRelease() *cobra.Command {
	cmd := &cobra.Command{
		Use: "release NAME HOLD", Short: "Release a hold", Args: exactly(2),
		Long:              "Releases a hold. If nothing else keeps the computer awake, its idle timeout starts now.",
		Example:           "  holt computer release einstein hld_aaaaaaaaaaaaaaaa",
		ValidArgsFunction: a.completeSecond(a.computerNames, holdIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := holt.ParseHoldID(args[1])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Computers.Release(cmd.Context(), args[0], id, ""); err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, map[string]string{"released": string(id)})
			}
			fmt.Fprintf(a.Out, "%s is released\n", id)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
