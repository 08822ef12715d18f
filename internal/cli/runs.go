package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

func (a *app) runCommand() *cobra.Command {
	cmd := group("run", "Commands that run or have run in computers",
		a.runList(), a.runShow(), a.runFollow(), a.runInput(), a.runSignal(), a.runKill())
	cmd.Aliases = []string{"runs"}
	cmd.Long = `A run is one command in a computer, started with holt computer run. It continues if the client
disconnects or the daemon restarts. If its machine ends first, its state is lost: the exit status
is not known.

The last 4 MiB of output are kept for at least 10 minutes after the end of a run. The last 1 MiB is
kept as long as its record, for a day or 1000 later runs, also after its computer has stopped (at most
64 MiB for the runs of a computer, plus 32 MiB for runs in progress). If output is missing, standard
error says how much, and the exit status is 125.

Variables given with --env are not stored. Values given with --secret are shown as *** in the run's
output and record. In the record, so are --env values whose names look like secrets, such as
GITHUB_TOKEN or AWS_SECRET_ACCESS_KEY.`
	return cmd
}

// mostRunsShown is how many runs are listed unless more are asked for, never more than mostRunsAsked.
const (
	mostRunsShown = 20
	mostRunsAsked = 1 << 30
)

func (a *app) runList() *cobra.Command {
	limit := mostRunsShown
	var running bool
	cmd := &cobra.Command{
		Use: "list [COMPUTER]", Aliases: []string{"ls"}, Short: "List runs, newest first", Args: atLeast(0, 1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			computer := strings.Join(args, "")
			list, err := someRuns(cmd.Context(), c, computer, min(limit, mostRunsAsked)+1, running)
			if err != nil {
				return err
			}
			more := len(list) > limit
			list = list[:min(limit, len(list))]
			switch {
			case a.wantsJSON():
				return printJSON(a.Out, list)
			case len(list) == 0:
				a.sayNoRuns(computer, running)
				return nil
			}
			return a.printRuns(cmd.Context(), c, list, more)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", mostRunsShown, "number of runs to list")
	cmd.Flags().BoolVar(&running, "running", false, "only runs in progress")
	a.jsonFlag(cmd)
	return cmd
}

// someRuns asks for the newest runs, in pages.
func someRuns(ctx context.Context, c *client.Client, computer string, limit int, running bool) ([]holt.Run, error) {
	const page = 1000
	list := []holt.Run{}
	for after := holt.RunID(""); ; {
		got, err := c.Runs.List(ctx, computer, after, min(page, limit-len(list)))
		if err != nil {
			return nil, err
		}
		for _, r := range got {
			if after = r.ID; !running || r.State == holt.RunRunning {
				list = append(list, r)
			}
		}
		if len(got) == 0 || len(list) >= limit {
			return list, nil
		}
	}
}

func (a *app) sayNoRuns(computer string, running bool) {
	where := ""
	if computer != "" {
		where = " in " + computer
	}
	if running {
		a.say("no runs%s in progress; for runs that have ended: %s", where, strings.TrimSpace("holt run list "+computer))
		return
	}
	a.say("no runs%s yet; start one with: holt computer run %s --background \"make\"", where, cmp.Or(computer, "NAME"))
}

func (a *app) printRuns(ctx context.Context, c *client.Client, list []holt.Run, more bool) error {
	computers, err := c.Computers.List(ctx)
	if err != nil {
		return err
	}
	names := map[holt.ComputerID]string{}
	for _, one := range computers {
		names[one.ID] = one.Name
	}
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = []string{string(r.ID), names[r.ComputerID], runState(r), ago(r.StartedAt), runTook(r), clipLine(commandOf(r.Spec), 60)}
	}
	if err := printTable(a.Out, []string{"RUN", "COMPUTER", "STATE", "STARTED", "TOOK", "COMMAND"}, rows); err != nil {
		return err
	}
	if more {
		a.say("only the newest %d are shown; for more: --limit", len(list))
	}
	return nil
}

// runState says how a run is, in a word or two.
func runState(r holt.Run) string {
	switch {
	case r.State != holt.RunExited:
		return string(r.State)
	case r.TimedOut:
		return "timed out"
	case r.OutOfMemory != nil && r.Signal == "SIGKILL":
		return "out of memory"
	case r.OutOfMemory != nil:
		return fmt.Sprintf("exit %d, out of memory", r.ExitCode)
	case r.Signal != "":
		return "killed by " + visible(r.Signal)
	case r.Background > 0:
		return fmt.Sprintf("exit %d, left %d", r.ExitCode, r.Background)
	}
	return fmt.Sprintf("exit %d", r.ExitCode)
}

func runTook(r holt.Run) string {
	if r.EndedAt == nil {
		return span(time.Since(r.StartedAt))
	}
	return took(float64(r.EndedAt.Sub(r.StartedAt).Microseconds()) / 1000)
}

// commandOf is what a person calls a run.
func commandOf(s holt.RunSpec) string {
	if len(s.Argv) == 0 {
		return shown(s.Command)
	}
	words := make([]string, len(s.Argv))
	for i, arg := range s.Argv {
		words[i] = shellWord(shown(arg))
	}
	return strings.Join(words, " ")
}

// clipLine returns at most n characters of a line, marked if there are more.
func clipLine(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func (a *app) runShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show RUN", Aliases: []string{"get"}, Short: "Show a run and what it changed", Args: exactly(1),
		Long: `Shows a run: its command, how it ended, and its receipt with the changes in the computer's
workspace. To revert these: holt computer undo.`,
		ValidArgsFunction: a.complete(a.runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theRun(args[0])
			if err != nil {
				return err
			}
			run, err := c.Runs.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			receipt, err := c.Runs.Receipt(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, struct {
					Run     holt.Run     `json:"run"`
					Receipt holt.Receipt `json:"receipt"`
				}{run, receipt})
			}
			of, err := c.Computers.Get(cmd.Context(), string(run.ComputerID))
			if err != nil {
				return err
			}
			if err := printTable(a.Out, nil, runRows(run, of.Name)); err != nil {
				return err
			}
			a.sayReceipt(of.Workspace, "computer undo "+of.Name, receipt, run.State == holt.RunRunning)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// soFar marks a figure that is not final.
func soFar(s string, goesOn bool) string {
	if goesOn {
		return s + " so far"
	}
	return s
}

func runRows(r holt.Run, computer string) [][]string {
	rows := [][]string{{"run", string(r.ID)}, {"computer", computer}, {"command", commandOf(r.Spec)}, {"state", runState(r)}}
	if r.State == holt.RunLost {
		rows = append(rows, []string{"lost", "its machine ended first, so its exit status is not known"})
	}
	if r.Reason != "" {
		rows = append(rows, []string{"computer's end", "it " + r.Reason.String()})
	}
	if r.State == holt.RunExited && (r.TimedOut || r.Signal != "") {
		rows = append(rows, []string{"exit status", fmt.Sprint(r.ExitCode)})
	}
	rows = append(rows, memoryRows(r.OutOfMemory)...)
	if r.Schedule != "" {
		rows = append(rows, []string{"schedule", visible(r.Schedule)})
	}
	if r.Spec.User != "" {
		rows = append(rows, []string{"user", r.Spec.User})
	}
	if r.Spec.Cwd != "" {
		rows = append(rows, []string{"directory", shown(r.Spec.Cwd)})
	}
	rows = append(rows, []string{"started", ago(r.StartedAt)}, []string{"took", soFar(runTook(r), r.State == holt.RunRunning)})
	if r.Background > 0 {
		rows = append(rows, []string{"left running", fmt.Sprintf("%s; end them with: holt run kill %s", holt.CountOf(r.Background, "process"), r.ID)})
	}
	return rows
}

func (a *app) runFollow() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use: "follow RUN", Aliases: []string{"attach", "logs"}, Short: "Print a run's output from its start until it ends", Args: exactly(1),
		Long: `Prints the output of a run since its start, or since --from, and then what it writes until it ends.
Standard output and standard error stay separate. The exit status is that of the run, as with holt
computer run. It is 125 if holt itself failed, if the computer ended under the run, or if output is no
longer kept; standard error says which. A run that was started with --background does not wait for its
followers: if this output is not read for 30 s, some of it may be dropped. A stopped or paused computer
is not started to follow a run that has ended. Ctrl-C stops following; the run continues.`,
		ValidArgsFunction: a.complete(a.runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 {
				return holt.Errorf(holt.InvalidArgument, "invalid --from %d", from).WithHint("use a number of bytes from the run's start, both streams together")
			}
			id, err := holt.ParseRunID(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return runFailure{err}
			}
			run, err := c.Runs.Get(cmd.Context(), id)
			if err != nil {
				return runFailure{err}
			}
			r := &remoteRun{a: a, c: c, id: id}
			if a.json {
				r.kept = &keptOutput{}
			}
			switch err := r.follow(cmd.Context(), string(run.ComputerID), from); {
			case errors.Is(err, syscall.EPIPE): // the reader has gone; the run continues
				return exitStatus(128 + int(syscall.SIGPIPE))
			case err != nil && cmd.Context().Err() == nil:
				return runFailure{err}
			case err != nil:
				return err
			}
			return r.finish(cmd.Context(), string(run.ComputerID), nil)
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "start at this offset of the output, in bytes of both streams together")
	cmd.Flags().BoolVar(&a.json, "json", false, "at the end, print the run with its output as one JSON object")
	return cmd
}

func (a *app) runInput() *cobra.Command {
	var open bool
	cmd := &cobra.Command{
		Use: "input RUN", Short: "Pass standard input to a run", Args: exactly(1),
		Long: `Passes this command's standard input to a run that was started with --background --interactive,
then closes the run's input; --keep-open leaves it open.`,
		Example: `  id=$(holt computer run einstein --background --interactive "sort > sorted")
  ls | holt run input $id`,
		ValidArgsFunction: a.complete(a.runIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id, err := a.theRun(args[0])
			if err != nil {
				return err
			}
			at, err := c.Runs.Input(cmd.Context(), id, -1, a.In, !open, false)
			if err == nil && a.json { // else it says nothing, also in a pipe
				return printJSON(a.Out, struct {
					Run    holt.RunID `json:"run"`
					Offset int64      `json:"offset"`
					Open   bool       `json:"open"`
				}{id, at, open})
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&open, "keep-open", "k", false, "leave the run's standard input open")
	cmd.Flags().BoolVar(&a.json, "json", false, "print the number of input bytes that the run has received, as JSON")
	return cmd
}

func (a *app) runSignal() *cobra.Command {
	cmd := &cobra.Command{
		Use: "signal RUN SIGNAL", Short: "Send a signal to every process of a run", Args: exactly(2),
		Example:           "  holt run signal run_d5o7dp6rixbsakb4 SIGHUP",
		ValidArgsFunction: a.complete(a.runIDs),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.sendSignal(cmd.Context(), args[0], args[1]) },
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) runKill() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kill RUN...", Short: "Kill all processes of a run", Args: exactly(1),
		Long: `Sends SIGKILL to every process of a run, also to background processes that remain after its
end. To end them gracefully: holt run signal RUN SIGTERM.`,
		ValidArgsFunction: a.completeAll(a.runIDs),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.sendSignal(cmd.Context(), args[0], "SIGKILL") },
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) sendSignal(ctx context.Context, run, signal string) error {
	c, id, err := a.theRun(run)
	if err != nil {
		return err
	}
	if err := c.Runs.Signal(ctx, id, signal, ""); err != nil {
		return err
	}
	signal = fullName(signal)
	if a.wantsJSON() {
		return printJSON(a.Out, map[string]string{"run": string(id), "signal": signal})
	}
	fmt.Fprintf(a.Out, "sent %s to %s\n", signal, id)
	return nil
}

// fullName is a signal's, of which 15 and TERM are others; what is none stays as it is.
func fullName(signal string) string {
	name := strings.ToUpper(signal)
	if n, err := strconv.Atoi(signal); err == nil {
		name = unix.SignalName(syscall.Signal(n))
	} else if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if unix.SignalNum(name) == 0 {
		return visible(signal)
	}
	return name
}

// theRun connects and reads a run's id.
func (a *app) theRun(arg string) (*client.Client, holt.RunID, error) {
	id, err := holt.ParseRunID(arg)
	if err != nil {
		return nil, "", err
	}
	c, err := a.connect()
	return c, id, err
}

// runIDs completes runs, the newest first.
func (a *app) runIDs(ctx context.Context, c *client.Client) (out []string) {
	list, _ := c.Runs.List(ctx, "", "", mostRunsShown) // no daemon, no runs
	for _, r := range list {
		out = append(out, string(r.ID)+"\t"+runState(r)+": "+clipLine(commandOf(r.Spec), 40))
	}
	return out
}
