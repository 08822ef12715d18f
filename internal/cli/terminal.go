package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) terminalCommand() *cobra.Command {
	return group("terminal", "Long-lived shells in computers",
		a.terminalAttach(), a.terminalOpen(), a.terminalList(), a.terminalSignal(), a.terminalClose())
}

// terminalFlags are what a new terminal may be told.
type terminalFlags struct {
	spec holt.TerminalSpec
	env  []string
}

func (f *terminalFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.spec.User, "user", "u", "", "Linux user of a new terminal (default: agent)")
	flags.StringVar((*string)(&f.spec.Cwd), "cwd", "", "its working directory, absolute (default: the workspace, /home/agent)")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass this shell's value if it is set (repeatable)")
	flags.StringVar((*string)(&f.spec.Command), "command", "", "shell command to run instead of the user's login shell")
}

// into completes the spec from the command's arguments.
func (f *terminalFlags) into(a *app, args []string) (err error) {
	if f.spec.Name, err = terminalName(args); err != nil {
		return err
	}
	if f.spec.Env, err = parseEnv(f.env); err != nil {
		return err
	}
	for _, name := range []holt.OSString{"TERM", "COLORTERM"} {
		if v := a.getenv(string(name)); v != "" && f.spec.Env[name] == "" && isTerminal(a.Out) {
			f.spec.Env[name] = holt.OSString(v)
		}
	}
	return nil
}

// terminalName is the second argument.
func terminalName(args []string) (string, error) {
	if len(args) < 2 {
		return holt.DefaultTerminal, nil
	}
	return holt.ParseName(args[1])
}

// oneOrTwo checks the arguments of commands on a terminal.
func oneOrTwo(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 {
		return nil
	}
	return holt.Errorf(holt.InvalidArgument, "%s needs a computer and a terminal", cmd.Name()).WithHint("usage: %s", cmd.UseLine())
}

func (a *app) terminalOpen() *cobra.Command {
	var flags terminalFlags
	cmd := &cobra.Command{
		Use: "open NAME [TERMINAL]", Aliases: []string{"create"}, Short: "Open a terminal without attaching to it",
		Long: `Opens a terminal (default: main) with the given flags, unless a terminal of that name is running. It
runs until its program ends, whether clients are attached or not. A stopped computer is started first.`,
		Args: oneOrTwo, ValidArgsFunction: a.completeTerminals,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if err := flags.into(a, args); err != nil {
				return err
			}
			var t holt.Terminal
			err = a.waitOn(c, args[0], "opening", func() error {
				t, err = c.Terminals.Open(cmd.Context(), args[0], flags.spec, "")
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, t)
			}
			a.sayUnused(flags.spec, t)
			fmt.Fprintf(a.Out, "%s is running in %s\n", t.Name, args[0])
			a.say("next: holt terminal attach %s %s", args[0], t.Name)
			return nil
		},
	}
	flags.add(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// sayUnused says what of a spec is not so in the terminal that there was already.
func (a *app) sayUnused(spec holt.TerminalSpec, t holt.Terminal) {
	var unused []string
	for _, flag := range []struct{ name, asked, is string }{
		{"--command", string(spec.Command), string(t.Spec.Command)},
		{"--cwd", string(spec.Cwd), string(t.Spec.Cwd)},
		{"--user", spec.User, cmp.Or(t.Spec.User, "agent")},
	} {
		if flag.asked != "" && flag.asked != flag.is {
			unused = append(unused, flag.name)
		}
	}
	if unused != nil {
		a.say("holt: %s is already running (%s); ignored: %s", t.Name, shown(whatRuns(t.Spec)), strings.Join(unused, ", "))
	}
}

func (a *app) terminalList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List the terminals of a computer", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Terminals.List(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			slices.SortStableFunc(all, func(x, y holt.Terminal) int { // those that run first, then the newest
				return cmp.Or(cmp.Compare(rank(x), rank(y)), y.StartedAt.Compare(x.StartedAt))
			})
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no terminals yet; open one with: holt terminal attach %s", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, t := range all {
				rows[i] = []string{t.Name, terminalState(t), cmp.Or(t.Spec.User, "agent"), terminalSize(t.Size), fmt.Sprint(t.Attached), ago(t.StartedAt), string(t.ID), whatRuns(t.Spec)}
			}
			return printTable(a.Out, []string{"NAME", "STATE", "USER", "SIZE", "ATTACHED", "STARTED", "ID", "COMMAND"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// terminalSize is columns by lines; of a terminal that was lost it may not be known.
func terminalSize(s holt.TerminalSize) string {
	if s == (holt.TerminalSize{}) {
		return "-"
	}
	return fmt.Sprintf("%dx%d", s.Cols, s.Rows)
}

func rank(t holt.Terminal) int {
	if t.State == holt.TerminalRunning {
		return 0
	}
	return 1
}

func terminalState(t holt.Terminal) string {
	switch {
	case t.State != holt.TerminalExited:
		return string(t.State)
	case t.Signal != "":
		return "ended by " + t.Signal
	}
	return fmt.Sprintf("exit %d", t.ExitCode)
}

func whatRuns(spec holt.TerminalSpec) string {
	const most = 60
	line := cmp.Or(string(spec.Command), strings.Join(spec.Argv, " "), "login shell")
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most]) + "…"
	}
	return line
}

func (a *app) terminalSignal() *cobra.Command {
	cmd := &cobra.Command{
		Use: "signal NAME TERMINAL SIGNAL", Short: "Send a signal to a terminal's foreground processes",
		Long: `Sends a signal, such as INT, SIGTERM or 15, to the terminal's foreground processes. KILL ends all
processes of the terminal.`,
		Args: exactly(3), ValidArgsFunction: a.completeTerminals,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Terminals.Signal(cmd.Context(), args[0], args[1], args[2], ""); err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, map[string]string{"terminal": args[1], "signal": fullName(args[2])})
			}
			fmt.Fprintf(a.Out, "sent %s to %s\n", fullName(args[2]), args[1])
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) terminalClose() *cobra.Command {
	cmd := &cobra.Command{
		Use: "close NAME [TERMINAL...]", Short: "Close a terminal",
		Long: `Closes a terminal (default: main): its processes get SIGHUP, and those that are still running after 5
seconds are killed.`,
		Args: oneOrTwo, ValidArgsFunction: a.completeTerminals,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ref := append(args, holt.DefaultTerminal)[1]
			t, err := c.Terminals.Close(cmd.Context(), args[0], ref, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, t)
			}
			fmt.Fprintf(a.Out, "%s: %s\n", t.Name, terminalState(t))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 1)
}

// completeTerminals completes a computer, then one of its terminals.
func (a *app) completeTerminals(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.ask(cmd, a.computerNames), cobra.ShellCompDirectiveNoFileComp
	default:
		return a.ask(cmd, func(ctx context.Context, c *client.Client) (out []string) {
			all, _ := c.Terminals.List(ctx, args[0]) // no daemon, no names
			for _, t := range all {
				if t.State == holt.TerminalRunning {
					out = append(out, t.Name)
				}
			}
			return out
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
