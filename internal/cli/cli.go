// Package cli is the holt command.
//
// It links only the words and the API client: what must happen on this machine
// itself (serving, building images, looking at the host) is handed in by
// cmd/holt as a [Local]. It keeps no state and decides nothing that the API
// does not.
//
// Form: tables on a terminal, JSON when piped or with --json; run, logs and cp
// pass bytes as they are. Errors go to standard error as a sentence and a
// hint. The exit statuses are in exit.go and in every help.
//
// Trap: text of the guest must pass visible before it reaches a terminal,
// except the output of run, terminal attach, logs and cp, which is the user's own.
//
// Size: app has a method a command, and more than the house's 25, because it
// is what they share: the streams, the global flags and the way to the daemon.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"holt"
	"holt/client"
)

// Streams are the program's own.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// app is one run of the program.
type app struct {
	Streams
	local   Local
	getenv  func(string) string
	dataDir string         // --data-dir
	context string         // --context
	tenant  string         // --tenant
	json    bool           // --json
	began   bool           // past the parsing of arguments
	seenBy  string         // the command that shows what the daemon does; "" while it does nothing
	caller  *client.Client // the last that connect returned; may be nil
}

// Main runs the program with its arguments and returns its exit status.
func Main(ctx context.Context, args []string, s Streams, local Local) int {
	a := &app{Streams: s, local: local, getenv: os.Getenv}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if a.caller != nil {
		a.caller.Close()
	}
	return a.finish(cmd.Context(), ofFlags(cmd, err))
}

// finish reports an error and returns the exit status.
func (a *app) finish(ctx context.Context, err error) int {
	var status exitStatus
	var own runFailure
	var end interruption
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &end):
		fmt.Fprintf(a.Err, "%s %s\n", a.paint(a.Err, red, "holt:"), end)
		if a.seenBy != "" {
			fmt.Fprintf(a.Err, "%s the daemon completes it; see the result with: %s\n", a.paint(a.Err, bold, "hint:"), a.seenBy)
		}
		return end.status()
	case errors.As(err, &status):
		return int(status)
	case !a.began && holt.CodeOf(err) == holt.Internal: // cobra's
		err = holt.Errorf(holt.InvalidArgument, "%w", err).WithHint("list the commands with: holt help; list a command's flags with: holt COMMAND --help")
	}
	a.complain(err)
	if errors.As(err, &own) {
		return exitRun
	}
	return exitOf(holt.CodeOf(err))
}

// complain prints an error.
func (a *app) complain(err error) {
	e := holt.AsError(err)
	fmt.Fprintf(a.Err, "%s %s\n", a.paint(a.Err, red, "holt:"), visible(e.Message))
	if e.Hint != "" {
		fmt.Fprintf(a.Err, "%s %s\n", a.paint(a.Err, bold, "hint:"), visible(e.Hint))
	}
}

// ownSignals marks commands that treat signals themselves.
const ownSignals = "own-signals"

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holt",
		Short: "Computers for AI agents, on your own machines",
		Long: `Holt runs computers for AI agents on your own machines. Each agent gets a real
Linux machine to work in and a durable workspace for its files.

Start with: holt up`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.began = true
			if cmd.Annotations[ownSignals] == "" {
				cmd.SetContext(heed(cmd.Context()))
			}
		},
	}
	root.PersistentFlags().StringVar(&a.dataDir, "data-dir", "", "the daemon's data directory (default: $"+holt.EnvDataDir+", else /var/lib/holt or ~/.local/share/holt)")
	root.PersistentFlags().StringVar(&a.tenant, "tenant", "", "act for this tenant; needs an admin's token (default: $"+holt.EnvTenant+", else the caller's own)")
	root.PersistentFlags().StringVar(&a.context, "context", "", "the server to call, see holt context (default: $"+holt.EnvContext+", else the current one)")
	if err := root.RegisterFlagCompletionFunc("context", a.completeContexts); err != nil {
		panic(err) // the flag's name is misspelt
	}
	root.SetUsageTemplate(root.UsageTemplate() + "\n" + exitHelp)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.upCommand(), a.downCommand(), a.serveCommand(), a.doctorCommand(),
		a.computerCommand(), a.runCommand(), a.scheduleCommand(), a.jobCommand(), a.snapshotCommand(), a.terminalCommand(), a.serviceCommand(), a.workspaceCommand(), a.artifactCommand(), a.bucketCommand(), a.archiveCommand(), a.imageCommand(), a.limitCommand(), a.tokenCommand(), a.auditCommand(), a.sshKeyCommand(), a.sshConfig(), a.topCommand(), a.eventsCommand(), a.contextCommand(), a.debugCommand(), a.completionCommand(), a.versionCommand(), a.manCommand(), a.networkProcess(), a.keeperProcess())
	exemplify(root)
	return root
}

// interruption is the signal that ended the program's work.
type interruption syscall.Signal

func (interruption) Error() string { return "interrupted" }

// status is what a shell makes of a program that a signal ended.
func (i interruption) status() int { return 128 + int(i) }

// heed returns a context that a signal ends. A second one ends the program at once.
func heed(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(interruption(s.(syscall.Signal)))
	}()
	return ctx
}

// group makes a command that only holds others. Cobra alone would answer an
// unknown one with help and success.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return holt.Errorf(holt.InvalidArgument, "unknown command %[2]q for %[1]s", cmd.CommandPath(), args[0]).
					WithHint("list the commands with: %s --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}

// exactly checks the number of arguments and says which are meant.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return holt.Errorf(holt.InvalidArgument, "%s needs %s, got %d", cmd.Name(), holt.CountOf(n, "argument"), len(args)).WithHint("usage: %s", cmd.UseLine())
	}
}

func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON (default if standard output is not a terminal)")
}

// wantsJSON says how the answer is to be printed.
func (a *app) wantsJSON() bool { return a.json || !isTerminal(a.Out) }

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint colours text for a terminal that wants it (see no-color.org).
func (a *app) paint(to io.Writer, colour, s string) string {
	if !isTerminal(to) || a.getenv("NO_COLOR") != "" || a.getenv("TERM") == "dumb" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// say prints a message for people to standard error.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.Err, format+"\n", args...)
}

// asks reports whether the command asks for confirmation: only on a terminal, and without --yes.
func (a *app) asks(yes bool) bool { return !yes && isTerminal(a.In) && isTerminal(a.Err) }

// yesFlag adds the flag of a command that asks for confirmation.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask for confirmation (it is only asked on a terminal)")
}

// confirm asks for confirmation, if [app.asks] says so.
func (a *app) confirm(yes bool, question string) error {
	if !a.asks(yes) {
		return nil
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	var reply string
	if _, err := fmt.Fscanln(a.In, &reply); err == nil && (reply == "y" || reply == "yes" || reply == "Y") {
		return nil
	}
	a.say("cancelled; nothing was changed")
	return exitStatus(exitFailure)
}
