package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

// runFlags are what the flags of run say besides the [holt.RunSpec].
type runFlags struct {
	env         []string
	secrets     []string
	timeout     time.Duration
	interactive bool
	noStdin     bool
	receipt     bool
	background  bool
}

func (a *app) computerRun() *cobra.Command {
	var spec holt.RunSpec
	var flags runFlags
	cmd := &cobra.Command{
		Use:   `run NAME "shell command" | run NAME -- PROGRAM ARGS…`,
		Short: "Run a command in a computer",
		Long: `Runs a shell command in the computer's workspace: bash runs it after /etc/profile and
~/.profile, which executes ~/.bashrc. With -- it runs a program without a shell.
Variables from --env and --secret override those that these files set. Standard output
and standard error stay separate and unchanged. The exit status is that of the command.
A stopped computer is started first. If the output is not read, the command blocks, as
with ssh.

Standard input is passed if it is not a terminal, or with --interactive. It is read only
when the command reads, so a loop keeps its own input:
  while read x; do holt computer run einstein "echo $x"; done < names
If the command reads, all input is read; -n passes none. With --interactive the input is
read immediately, even if the command does not read it. Ctrl-C sends SIGINT to the
command; a second Ctrl-C exits and leaves the command running.

--background prints the run's id and leaves the command running; use the id with holt run
follow, input and kill. Its standard input is empty, or with --interactive the input that
holt run input passes.

--receipt shows on standard error what the command changed in the workspace; to revert
that: holt computer undo.

A computer accepts commands before all its services are up: systemctl fails for some
seconds after create ("Failed to connect to bus"). To wait for it:
  until [ -S /run/dbus/system_bus_socket ]; do sleep 0.1; done`,
		Example: `  holt computer run einstein "df -h / /home/agent"
  holt computer run einstein --cwd /tmp --env GREETING=hi -- /bin/echo 'no  shell'
  tar c . | holt computer run einstein "tar x"
  GITHUB_TOKEN=… holt computer run einstein --secret GITHUB_TOKEN ./release.sh
  id=$(holt computer run einstein --background "make test"); holt run follow $id`,
		Annotations:       map[string]string{ownSignals: "yes"},
		ValidArgsFunction: a.complete(a.computerNames),
		Args: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash == 1 && len(args) > 1 || dash < 0 && len(args) == 2 {
				return nil
			}
			return holt.Errorf(holt.InvalidArgument, "run needs a computer and exactly one command").
				WithHint(`quote a shell command: holt computer run NAME "ls -l | wc -l"; or run a program: holt computer run NAME -- ls -l`)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyFlags(cmd); err != nil {
				return err
			}
			if err := commandInto(&spec, args, cmd.ArgsLenAtDash() == 1); err != nil {
				return err
			}
			if err := flags.into(&spec, a.getenv); err != nil {
				return err
			}
			if flags.background {
				return a.startRun(cmd.Context(), args[0], spec)
			}
			r := &remoteRun{a: a, input: a.input(flags.interactive), eager: flags.interactive, receipt: flags.receipt}
			if flags.noStdin {
				r.input = nil
			}
			spec.Stdin = r.input != nil
			if a.json {
				r.kept = &keptOutput{}
			}
			return r.run(cmd.Context(), args[0], spec)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&spec.User, "user", "u", "", "Linux user (default: agent)")
	f.StringVar((*string)(&spec.Cwd), "cwd", "", "working directory, absolute (default: the workspace, /home/agent)")
	f.StringArrayVarP(&flags.env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass this shell's value if it is set (repeatable)")
	f.StringArrayVar(&flags.secrets, "secret", nil, "like --env, but the value is shown as *** in the run's output and record; prefer KEY to KEY=VALUE, which other users of this host can see")
	f.BoolVar(&flags.background, "background", false, "print the run's id and leave the command running")
	f.DurationVar(&flags.timeout, "timeout", 0, "end the command after this time, such as 90s or 10m (default: never)")
	f.BoolVarP(&flags.interactive, "interactive", "i", false, "pass standard input even if it is a terminal")
	f.BoolVarP(&flags.noStdin, "no-stdin", "n", false, "do not read standard input")
	f.BoolVar(&flags.receipt, "receipt", false, "at the end, show what the command changed in the workspace")
	f.BoolVar(&a.json, "json", false, "at the end, print the run with its output as one JSON object")
	return cmd
}

// commandInto puts what stands behind the computer's name into spec: a program,
// or one shell command.
func commandInto(spec *holt.RunSpec, args []string, program bool) error {
	if program {
		spec.Argv = args[1:]
	} else if spec.Command = holt.OSString(args[1]); strings.TrimSpace(args[1]) == "" {
		return holt.Errorf(holt.InvalidArgument, "the command is empty").WithHint("give a command, such as: holt computer run %s 'make test'", args[0])
	}
	return nil
}

func (f *runFlags) into(spec *holt.RunSpec, getenv func(string) string) error {
	if f.timeout > 0 && f.timeout < time.Millisecond {
		return holt.Errorf(holt.InvalidArgument, "invalid timeout %s", holt.ShortDuration(f.timeout)).WithHint("use a duration above 0, such as 90s or 10m, or leave --timeout out")
	}
	if f.background && f.receipt {
		return holt.Errorf(holt.InvalidArgument, "--background and --receipt exclude each other").WithHint("see the receipt when the run has ended: holt run show RUN")
	}
	spec.TimeoutMS, spec.Stdin, spec.Detached = f.timeout.Milliseconds(), f.background && f.interactive, f.background
	var err error
	if spec.Env, err = parseEnv(f.env); err != nil {
		return err
	}
	spec.Secrets, err = parseSecrets(f.secrets, getenv)
	return err
}

// parseSecrets reads --secret: KEY=VALUE, or KEY to pass this program's. One
// that is not set is a mistake: a command would run without it.
func parseSecrets(flags []string, getenv func(string) string) (holt.Secrets, error) {
	secrets := holt.Secrets{}
	for _, s := range flags {
		key, value, given := strings.Cut(s, "=")
		if key == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "--secret without a name").WithHint("use --secret KEY, with the value in this shell's environment")
		}
		if !given {
			if value = getenv(key); value == "" {
				return nil, holt.Errorf(holt.InvalidArgument, "the variable %s is not set in this shell", key).WithHint("set it first: export %s", key)
			}
		}
		secrets[holt.OSString(key)] = holt.OSString(value)
	}
	return secrets, nil
}

// startRun starts a command, says its id, and leaves it.
func (a *app) startRun(ctx context.Context, computer string, spec holt.RunSpec) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := a.connect()
	if err != nil {
		return runFailure{err}
	}
	late, giveUp := linger(ctx)
	defer giveUp()
	var started holt.Run
	err = a.waitOn(c, computer, "starting "+computer, func() error {
		started, err = c.Runs.Start(late, computer, spec, "")
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil && late.Err() != nil:
		return a.mayBegin(interruption(syscall.SIGINT), computer)
	case err != nil:
		return runFailure{err}
	}
	if a.json {
		return printJSON(a.Out, started)
	}
	fmt.Fprintln(a.Out, started.ID)
	if isTerminal(a.Out) {
		a.say("next: holt run follow %s", started.ID)
	}
	return nil
}

// mayBegin says that the start of a command was interrupted, and its outcome is unknown.
func (a *app) mayBegin(by interruption, computer string) error {
	a.say("holt: %v before %s confirmed the start of the command; it may be running\nhint: check with: holt run list %s", by, computer, computer)
	return exitStatus(by.status())
}

// parseEnv reads --env: KEY=VALUE, or KEY to pass this program's. One that is not
// set stays so.
func parseEnv(flags []string) (map[holt.OSString]holt.OSString, error) {
	env := map[holt.OSString]holt.OSString{}
	for _, e := range flags {
		key, value, given := strings.Cut(e, "=")
		if !given {
			if value, given = os.LookupEnv(key); !given && key != "" {
				continue
			}
		}
		if key == "" {
			return nil, holt.Errorf(holt.InvalidArgument, "--env %q without a name", e).WithHint("use --env KEY=VALUE")
		}
		env[holt.OSString(key)] = holt.OSString(value)
	}
	return env, nil
}

// input returns what to pass as standard input, nil for nothing.
func (a *app) input(interactive bool) io.Reader {
	f, ok := a.In.(*os.File)
	if !ok || interactive {
		return a.In
	}
	info, err := f.Stat()
	if err != nil || isTerminal(f) {
		return nil // closed, or a person's
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return f
}

// remoteRun is one command as this program follows it.
type remoteRun struct {
	a       *app
	c       *client.Client
	input   io.Reader
	eager   bool        // input is read before the command reads
	kept    *keptOutput // with --json
	receipt bool        // is wanted
	late    *deadline   // nil: none
	lost    int64       // bytes of output that are lost
	id      holt.RunID
	end     *holt.Run
	watch   pausedWatch
}

// slack is how much longer than its timeout a run may seem to take: the guest
// first asks its processes to end.
const slack = 20 * time.Second

func (r *remoteRun) run(ctx context.Context, computer string, spec holt.RunSpec) error {
	c, err := r.a.connect()
	if err != nil {
		return runFailure{err}
	}
	r.c = c
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE) // a write says so too, and then the run must end

	if err := r.start(ctx, computer, spec, signals); err != nil {
		return err
	}
	go r.forward(ctx, signals, cancel)
	if r.input != nil {
		go r.feed(ctx, cancel)
	}
	following := ctx
	if spec.TimeoutMS > 0 {
		late, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		r.late = newDeadline(time.Duration(spec.TimeoutMS)*time.Millisecond+slack, func() { stop(context.DeadlineExceeded) })
		defer r.late.stop()
		following = late
	}
	return r.finish(ctx, computer, r.follow(following, computer, 0))
}

// start starts the run. A signal that comes meanwhile reaches it once it has begun: it would begin in any case.
// A second one, or no answer for a while, leaves it.
func (r *remoteRun) start(ctx context.Context, computer string, spec holt.RunSpec, signals <-chan os.Signal) error {
	patient, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late, giveUp := linger(patient)
	defer giveUp()
	var started holt.Run
	err := r.a.waitOn(r.c, computer, "starting "+computer, func() (err error) {
		defer onSignals(signals, func(s syscall.Signal) { cancel(interruption(s)) }, func(syscall.Signal) { giveUp() })()
		started, err = r.c.Runs.Start(late, computer, spec, "")
		return err
	})
	var by interruption
	interrupted := errors.As(context.Cause(patient), &by)
	switch {
	case err != nil && interrupted && late.Err() != nil:
		return r.a.mayBegin(by, computer)
	case err != nil:
		return runFailure{err}
	}
	if r.id = started.ID; interrupted {
		r.signal(unix.SignalName(syscall.Signal(by)))
	}
	return nil
}

// follow is told of the run from offset on until it ends.
func (r *remoteRun) follow(ctx context.Context, computer string, offset int64) error {
	defer r.watch.begin(r, computer)()
	return r.c.Runs.Follow(ctx, r.id, offset, r.event)
}

// finish turns the end of the run, or of following it, into this program's.
func (r *remoteRun) finish(ctx context.Context, computer string, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, syscall.EPIPE): // the reader has gone
		r.signal("SIGPIPE")
		return exitStatus(128 + int(syscall.SIGPIPE))
	case errors.Is(cause, errDetached):
		r.a.say("holt: run %s keeps running in %s\nhint: follow it with: holt run follow %s", r.id, computer, r.id)
		return exitStatus(128 + int(syscall.SIGINT))
	case cause != nil: // the input broke
		return runFailure{cause}
	case err != nil:
		return runFailure{err}
	case r.end.State != holt.RunExited:
		return runFailure{lostRun(*r.end, computer)}
	}
	var receipt *holt.Receipt
	if r.receipt {
		got, err := r.c.Runs.Receipt(ctx, r.id)
		if err != nil {
			return runFailure{err}
		}
		receipt = &got
	}
	if r.kept != nil {
		if err := r.kept.print(r.a.Out, *r.end, receipt); err != nil {
			return runFailure{err}
		}
	} else if r.end.TimedOut {
		r.a.say("holt: the command exceeded its timeout and was ended\nhint: set a longer --timeout, or leave it out")
	}
	if receipt != nil && r.kept == nil {
		of, err := r.c.Computers.Get(ctx, computer)
		if err != nil {
			return runFailure{err}
		}
		own := *r.a
		own.Out = r.a.Err // standard output is the command's
		own.sayReceipt(of.Workspace, "computer undo "+computer, *receipt, false)
	}
	if r.kept == nil {
		r.a.sayMemory(r.end.OutOfMemory)
	}
	if r.end.Reason != "" && r.kept == nil {
		r.a.say("holt: %s %s", computer, r.end.Reason)
	}
	if err := r.short("run", string(r.id), r.end.ExitCode); err != nil {
		return err
	}
	if n := r.end.Background; n > 0 && isTerminal(r.a.Err) {
		r.a.say("holt: %s still running in the background", holt.CountOf(n, "process"))
	}
	if r.end.ExitCode != 0 {
		return exitStatus(r.end.ExitCode)
	}
	return nil
}

// event handles one step of the run.
func (r *remoteRun) event(e holt.RunEvent) error {
	r.watch.heard.Store(true)
	if e.Kind == holt.RunExit {
		if r.end = e.Run; r.end == nil {
			return holt.Errorf(holt.Internal, "the daemon reported the end of run %s without an exit status", r.id).WithHint("check that the command and the daemon have the same version: holt version")
		}
		return nil
	}
	r.lost += e.Dropped
	if r.kept != nil {
		r.kept.add(e)
		return nil
	}
	defer r.late.pause()()
	var err error
	switch e.Kind {
	case holt.RunStdout:
		_, err = r.a.Out.Write(e.Data)
	case holt.RunStderr:
		_, err = r.a.Err.Write(e.Data)
	case holt.RunGap:
		r.a.say("holt: %s of output is missing: it was written faster than it was read, or exceeds what is kept", size(e.Dropped))
	}
	return err
}

var errDetached = errors.New("left running")

// onSignals calls the next of these functions for each signal that comes, until stop is called.
func onSignals(signals <-chan os.Signal, call ...func(syscall.Signal)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for _, f := range call {
			select {
			case s := <-signals:
				f(s.(syscall.Signal))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// lingers is how much longer than its caller's context such a call lasts.
const lingers = 5 * time.Second

// linger returns a context that outlives another, for a call that begins something: without its answer the caller
// cannot end what was begun.
func linger(ctx context.Context) (late context.Context, cancel context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lingers, end) })
	return late, func() { stop(); end() }
}

// forward passes signals on to the run. The second Ctrl-C leaves it alone.
func (r *remoteRun) forward(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	interrupts := 0
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == os.Interrupt {
				interrupts++
			}
			if interrupts > 1 {
				cancel(errDetached)
				return
			}
			go r.signal(unix.SignalName(s.(syscall.Signal)))
		}
	}
}

// signal sends a signal to the run; that the run has ended by then is fine.
func (r *remoteRun) signal(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.c.Runs.Signal(ctx, r.id, name, ""); err != nil && holt.CodeOf(err) != holt.Conflict {
		r.a.say("holt: cannot send %s to the run: %s", name, visible(err.Error()))
	}
}

// feed passes standard input on. When part of it is lost for good the run is
// ended: with half of its input it could only do wrong.
func (r *remoteRun) feed(ctx context.Context, cancel context.CancelCauseFunc) {
	_, err := r.c.Runs.Input(ctx, r.id, 0, r.input, true, !r.eager)
	if err == nil || ctx.Err() != nil || holt.CodeOf(err) == holt.Conflict { // it has ended, or closed its input
		return
	}
	r.signal("SIGKILL")
	cancel(holt.Errorf(holt.CodeOf(err), "standard input was interrupted, so the run was ended: %w", err).
		WithHint("run the command again"))
}
