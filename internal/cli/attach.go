package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"holt"
	"holt/client"
)

const (
	envDetachKey = "HOLT_DETACH_KEY"
	lastTyped    = 2 * time.Second // how long leaving waits for what was typed before
)

func (a *app) terminalAttach() *cobra.Command {
	var flags terminalFlags
	var key string
	cmd := &cobra.Command{
		Use: "attach NAME [TERMINAL]", Short: "Attach to a terminal, as ssh does",
		Long: `Attaches to a terminal of a computer. TERMINAL is a name (default: main) or an id. If no
running terminal has that name, a new one is opened with the given flags. A stopped computer
is started first.

The terminal first shows its last MiB of output again. Several people can be attached at the
same time; the terminal has the size of the client that attached or resized last. When its
program ends, this command ends with the same exit status. A terminal that has ended can be
shown by its id (holt terminal list).

Ctrl-\ detaches and leaves the terminal running. --detach-key or $HOLT_DETACH_KEY selects
another key (ctrl-a to ctrl-z, ctrl-\, ctrl-], ctrl-^ or ctrl-_) or none. If the daemon
restarts or the connection breaks, the command reconnects; no input is lost or sent twice.

If standard input is not a terminal, its bytes are typed; after they end, the command keeps
showing output.`,
		Example: `  holt terminal attach einstein
  holt terminal attach einstein build --cwd /home/agent/src --env CI=1
  holt terminal attach einstein logs --command 'journalctl -f' --user root`,
		Annotations: map[string]string{ownSignals: "yes"},
		Args:        oneOrTwo, ValidArgsFunction: a.completeTerminals,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmptyFlags(cmd); err != nil {
				return err
			}
			s := &session{a: a, computer: args[0], in: make(chan holt.TerminalInput)}
			if id, err := holt.ParseTerminalID(append(args, "")[1]); err == nil {
				s.id, args = id, args[:1]
			}
			if err := flags.into(a, args); err != nil {
				return err
			}
			if !cmd.Flags().Changed("detach-key") && a.getenv(envDetachKey) != "" {
				key = a.getenv(envDetachKey)
			}
			var err error
			if s.detachKey, err = parseKey(key); err != nil {
				return err
			}
			return s.run(cmd.Context(), flags.spec)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&key, "detach-key", `ctrl-\`, "the key that detaches: ctrl- and a letter or one of \\ ] ^ _; or none")
	return cmd
}

// parseKey reads a key's name; -1 is none.
func parseKey(name string) (int, error) {
	if name == "none" {
		return -1, nil
	}
	rest, ok := strings.CutPrefix(strings.ToLower(name), "ctrl-")
	if ok && len(rest) == 1 && (rest[0] >= 'a' && rest[0] <= 'z' || strings.Contains(`\]^_`, rest)) {
		return int(rest[0] & 0x1f), nil
	}
	return 0, holt.Errorf(holt.InvalidArgument, "%q is not a detach key", name).
		WithHint(`use ctrl-a to ctrl-z, ctrl-\, ctrl-], ctrl-^, ctrl-_ or none`)
}

// session is one attachment as this program has it.
type session struct {
	a         *app
	c         *client.Client
	computer  string
	id        holt.TerminalID // of the terminal that is meant; "": the one of a name
	name      string          // the terminal's
	detachKey int
	in        chan holt.TerminalInput

	screen screen
	hellos int
	next   int64 // offset of the output that comes next
	replay int64 // and behind what was shown before
	end    *holt.Terminal
	typed  int64 // bytes of input given to the client; the reader's
	taken  chan int64
}

var errLeft = errors.New("left running")

func (s *session) run(ctx context.Context, spec holt.TerminalSpec) error {
	c, err := s.a.connect()
	if err != nil {
		return runFailure{err}
	}
	s.c = c
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	size := s.size()
	spec.Size = size
	var t holt.Terminal
	err = s.a.waitOn(c, s.computer, "starting "+s.computer, func() error {
		defer onSignals(signals, func(s syscall.Signal) { cancel(interruption(s)) })()
		if s.id != "" {
			t, err = c.Terminals.Get(ctx, s.computer, string(s.id))
		} else {
			t, err = c.Terminals.Open(ctx, s.computer, spec, "")
		}
		return err
	})
	var end interruption
	switch {
	case err != nil && errors.As(context.Cause(ctx), &end):
		return exitStatus(end.status())
	case err != nil:
		return runFailure{err}
	}
	s.name = t.Name
	s.a.sayUnused(spec, t)
	if t.State != holt.TerminalRunning {
		size = holt.TerminalSize{}
	}
	restore, err := s.raw()
	if err != nil {
		return runFailure{err}
	}
	defer restore()
	s.taken = make(chan int64, 1)
	go s.watchSignals(ctx, signals, cancel)
	go s.read(ctx, cancel)
	err = c.Terminals.Attach(ctx, s.computer, string(t.ID), holt.AttachSpec{Offset: -1, Size: size}, s.in, s.event)
	if isTerminal(s.a.Out) {
		_, _ = s.a.Out.Write(s.screen.leave())
	}
	restore()
	return s.finish(ctx, err)
}

// finish turns the end of the attachment into this program's.
func (s *session) finish(ctx context.Context, err error) error {
	var end interruption
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errLeft), errors.As(cause, &end):
		s.a.say("holt: detached; %s keeps running in %s. To attach again: holt terminal attach %s %s", s.name, s.computer, s.computer, s.name)
		if end != 0 {
			return exitStatus(end.status())
		}
		return nil
	case err != nil:
		return runFailure{err}
	case s.end.State != holt.TerminalExited:
		return runFailure{s.lost(s.state(ctx))}
	case s.end.Signal != "" && stopped(s.state(ctx)):
		s.a.say("holt: %v", s.lost(holt.ComputerStopped))
		fallthrough
	case s.end.ExitCode != 0:
		return exitStatus(s.end.ExitCode)
	}
	return nil
}

// state is that of the computer; "": it is not known.
func (s *session) state(ctx context.Context) holt.ComputerState {
	of, _ := s.c.Computers.Get(ctx, s.computer)
	return of.State
}

func stopped(state holt.ComputerState) bool {
	return state == holt.ComputerStopping || state == holt.ComputerStopped
}

// lost says why a terminal is no longer there, as far as the computer's state tells.
func (s *session) lost(state holt.ComputerState) error {
	switch {
	case stopped(state):
		return holt.Errorf(holt.Unavailable, "%s was stopped, which ended its terminals", s.computer).
			WithHint("start it again, with a new terminal: holt terminal attach %s %s", s.computer, s.name)
	case state == holt.ComputerStarting || state == holt.ComputerRunning:
		return holt.Errorf(holt.Unavailable, "%s was restarted, or restored to a snapshot older than the terminal %s", s.computer, s.name).
			WithHint("open a new one: holt terminal attach %s %s; look for the cause: holt computer logs %s", s.computer, s.name, s.computer)
	}
	return holt.Errorf(holt.Unavailable, "%s ended while its terminal was attached", s.computer).
		WithHint("look for the cause: holt computer logs %s", s.computer)
}

// raw lets every key through; what it returns undoes that, once or more often.
func (s *session) raw() (restore func(), err error) {
	f, ok := s.a.In.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		s.detachKey = -1 // bytes of a file are bytes
		return func() {}, nil
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, holt.Errorf(holt.Unsupported, "this terminal cannot be used: %w", err).WithHint("holt computer run needs no terminal")
	}
	return func() { _ = term.Restore(int(f.Fd()), before) }, nil // it may be gone
}

// size is this terminal's; zero: there is none.
func (s *session) size() holt.TerminalSize { return sizeOf(s.a.Out) }

// sizeOf is the size of the terminal that is written to; zero: it is none.
func sizeOf(out io.Writer) holt.TerminalSize {
	f, ok := out.(*os.File)
	if !ok {
		return holt.TerminalSize{}
	}
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return holt.TerminalSize{}
	}
	return holt.TerminalSize{Rows: min(w.Row, holt.MostTerminalSize), Cols: min(w.Col, holt.MostTerminalSize)}
}

// watchSignals passes this window's size on, and leaves when told to end.
func (s *session) watchSignals(ctx context.Context, signals <-chan os.Signal, cancel context.CancelCauseFunc) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			cancel(interruption(got.(syscall.Signal)))
			return
		case <-resized:
			if size := s.size(); size != (holt.TerminalSize{}) {
				s.send(ctx, holt.TerminalInput{Size: &size})
			}
		}
	}
}

func (s *session) send(ctx context.Context, in holt.TerminalInput) bool {
	select {
	case s.in <- in:
		return true
	case <-ctx.Done():
		return false
	}
}

// read types what comes on standard input until the key that leaves.
func (s *session) read(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		buf := make([]byte, 32<<10)
		n, err := s.a.In.Read(buf)
		key := -1
		if s.detachKey >= 0 {
			key = strings.IndexByte(string(buf[:n]), byte(s.detachKey))
		}
		if key >= 0 {
			n = key
		}
		if n > 0 {
			s.typed += int64(n)
			if !s.send(ctx, holt.TerminalInput{Data: buf[:n]}) {
				return
			}
		}
		switch {
		case key >= 0:
			s.settle(ctx)
			cancel(errLeft)
			return
		case err == io.EOF:
			return
		case err != nil:
			if isTerminal(s.a.In) { // it is gone: as if the line were lost
				cancel(interruption(syscall.SIGHUP))
			}
			return
		}
	}
}

// settle waits until the terminal has what was typed, or for lastTyped.
func (s *session) settle(ctx context.Context) {
	late := time.NewTimer(lastTyped)
	defer late.Stop()
	for taken := int64(0); taken < s.typed; {
		select {
		case taken = <-s.taken:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// event handles one step of the attachment.
func (s *session) event(e holt.TerminalEvent) error {
	switch e.Kind {
	case holt.TerminalAttached:
		if s.hellos++; s.hellos == 1 {
			s.next, s.replay = e.Offset, e.End
		}
		s.tell(e.Taken)
	case holt.TerminalTaken:
		s.tell(e.Taken)
	case holt.TerminalGap:
		s.next += e.Dropped
	case holt.TerminalExit:
		if s.end = e.Terminal; s.end == nil {
			return holt.Errorf(holt.Internal, "the daemon reported the end of the terminal without an exit status").WithHint("check that the command and the daemon have the same version: holt version")
		}
	case holt.TerminalOutput:
		return s.show(e.Data)
	}
	return nil
}

// tell leaves the newest count of taken input for settle.
func (s *session) tell(taken int64) {
	select {
	case <-s.taken:
	default:
	}
	s.taken <- taken
}

// show writes output. What was shown before must not make this terminal answer
// once more: its answers would be typed.
func (s *session) show(p []byte) error {
	before := min(max(s.replay-s.next, 0), int64(len(p)))
	s.next += int64(len(p))
	if !isTerminal(s.a.Out) {
		_, err := s.a.Out.Write(p)
		return err
	}
	out := s.screen.replayed(nil, p[:before])
	_, err := s.a.Out.Write(s.screen.live(out, p[before:]))
	return err
}
