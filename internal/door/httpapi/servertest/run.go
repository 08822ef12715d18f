package servertest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

type runs struct{ m *Memory }

// run is one process of this host and what is kept of its output.
type run struct {
	cmd   *exec.Cmd
	gone  chan struct{} // closed when it has ended and all output is here
	limit int
	masks []string // secrets, each with what stands for it; one that is written in two pieces is not known

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when something below changes
	info    holt.Run
	chunks  []holt.RunEvent
	kept    int
	end     int64 // offset behind all output so far

	stdin   io.WriteCloser // nil: none
	sending sync.Mutex     // held by the one that sends
	taken   int64          // of input, bytes; guarded by sending
}

func (n runs) Start(_ context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	return n.begin(holt.Run{ID: holt.NewRunID()}, computer, spec, key)
}

// begin starts a run of which the id and the schedule are known.
func (n runs) begin(known holt.Run, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	return once(n.m, key, []any{"run", computer, spec}, func() (holt.Run, error) {
		c, err := n.m.computer(computer)
		if err != nil {
			return holt.Run{}, err
		}
		if spec.Cwd != "" && !filepath.IsAbs(string(spec.Cwd)) {
			return holt.Run{}, holt.Errorf(holt.InvalidArgument, "the working directory %q is not absolute", spec.Cwd)
		}
		c.State = holt.ComputerRunning // it wakes
		argv := spec.Argv
		if spec.Command != "" {
			argv = []string{"/bin/sh", "-c", string(spec.Command)}
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = filepath.Join(n.m.root(c), string(cmp.Or(spec.Cwd, "/home/agent")))
		cmd.Env = append(os.Environ(), "USER="+cmp.Or(spec.User, "agent"))
		for k, v := range spec.Env {
			cmd.Env = append(cmd.Env, string(k+"="+v))
		}
		for k, v := range spec.Secrets {
			cmd.Env = append(cmd.Env, string(k+"="+v))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		r := &run{cmd: cmd, gone: make(chan struct{}), limit: cmp.Or(n.m.Kept, 4<<20), changed: make(chan struct{})}
		for _, value := range spec.Secrets.Values() {
			r.masks = append(r.masks, value, holt.Masked)
		}
		r.info = holt.Run{ID: known.ID, Schedule: known.Schedule, ComputerID: c.ID, Spec: spec.OnRecord(), State: holt.RunRunning, StartedAt: time.Now().UTC()}
		begun := r.info // before its end may change it
		told := holt.Event{Kind: holt.EventRunStarted, Tenant: c.Tenant, Computer: c.ID, ComputerName: c.Name, Ref: string(begun.ID), State: string(begun.State)}
		if err := r.start(); err != nil {
			return holt.Run{}, err
		}
		n.m.runs = append(n.m.runs, r)
		n.m.events.Add(told)
		go func() {
			<-r.gone
			r.mu.Lock()
			told.Kind, told.State, told.Was, told.ExitCode = holt.EventRunEnded, string(r.info.State), told.State, &r.info.ExitCode
			r.mu.Unlock()
			n.m.events.Add(told)
		}()
		return begun, nil
	})
}

func (r *run) start() error {
	if r.info.Spec.Stdin {
		in, err := r.cmd.StdinPipe()
		if err != nil {
			return err
		}
		r.stdin = in
	}
	r.cmd.Stdout, r.cmd.Stderr = tap{r, holt.RunStdout}, tap{r, holt.RunStderr}
	r.cmd.WaitDelay = 2 * time.Second // a background child may hold the output; a busy host takes its time to read it
	if err := r.cmd.Start(); err != nil {
		return holt.Errorf(holt.InvalidArgument, "cannot run: %w", err)
	}
	if d := r.info.Spec.TimeoutMS; d > 0 {
		timer := time.AfterFunc(time.Duration(d)*time.Millisecond, func() {
			r.mu.Lock()
			r.info.TimedOut = true
			r.mu.Unlock()
			r.kill()
		})
		go func() { <-r.gone; timer.Stop() }()
	}
	go r.wait()
	return nil
}

func (r *run) kill() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }

func (r *run) wait() {
	_ = r.cmd.Wait() // the state says it all
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	r.info.State, r.info.EndedAt = holt.RunExited, &now
	r.info.ExitCode = r.cmd.ProcessState.ExitCode()
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.info.ExitCode, r.info.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	close(r.gone)
	r.tell()
}

// tell wakes the followers; the lock is held.
func (r *run) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// tap keeps one stream of output.
type tap struct {
	r    *run
	kind holt.RunEventKind
}

func (t tap) Write(p []byte) (int, error) {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	written := len(p)
	p = []byte(strings.NewReplacer(r.masks...).Replace(string(p)))
	r.chunks = append(r.chunks, holt.RunEvent{Kind: t.kind, Offset: r.end, Data: p})
	r.end += int64(len(p))
	for r.kept += len(p); r.kept > r.limit; {
		r.kept -= len(r.chunks[0].Data)
		r.chunks = r.chunks[1:]
	}
	r.tell()
	return written, nil
}

func (n runs) find(id holt.RunID) (*run, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	for _, r := range n.m.runs {
		if r.info.ID == id {
			return r, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "there is no run %s", id)
}

func (n runs) Get(_ context.Context, id holt.RunID) (holt.Run, error) {
	r, err := n.find(id)
	if err != nil {
		return holt.Run{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info, nil
}

func (n runs) List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	var id holt.ComputerID
	if computer != "" {
		c, err := n.m.computer(computer)
		if err != nil {
			return nil, err
		}
		id = c.ID
	}
	var all []holt.Run
	begun := after == ""
	for _, r := range slices.Backward(n.m.runs) {
		r.mu.Lock()
		info := r.info
		r.mu.Unlock()
		if begun && (id == "" || info.ComputerID == id) && len(all) < limit {
			all = append(all, info)
		}
		begun = begun || info.ID == after
	}
	return all, nil
}

// next returns the event at offset, or nil and what to wait for.
func (r *run) next(offset int64) (*holt.RunEvent, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.chunks {
		switch {
		case e.Offset > offset:
			return &holt.RunEvent{Kind: holt.RunGap, Offset: offset, Dropped: e.Offset - offset}, nil
		case e.Offset+int64(len(e.Data)) > offset:
			e.Data = e.Data[offset-e.Offset:]
			e.Offset = offset
			return &e, nil
		}
	}
	if r.info.State == holt.RunExited {
		info := r.info
		return &holt.RunEvent{Kind: holt.RunExit, Offset: r.end, Run: &info}, nil
	}
	return nil, r.changed
}

func (n runs) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	r, err := n.find(id)
	if err != nil {
		return err
	}
	for {
		e, changed := r.next(offset)
		if e == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		if err := emit(*e); err != nil || e.Kind == holt.RunExit {
			return err
		}
		offset = e.Offset + int64(len(e.Data)) + e.Dropped
	}
}

func (n runs) Input(ctx context.Context, id holt.RunID, offset int64, in io.Reader, eof, wanted bool) (int64, error) {
	r, err := n.find(id)
	if err != nil {
		return 0, err
	}
	if r.stdin == nil {
		return 0, holt.Errorf(holt.Conflict, "the run takes no input")
	}
	r.sending.Lock()
	defer r.sending.Unlock()
	ended := holt.Errorf(holt.Conflict, "the run has ended")
	select {
	case <-r.gone: // an earlier call may still be at it
		return 0, ended
	default:
	}
	if offset < 0 {
		offset = r.taken
	}
	if offset > r.taken {
		return 0, holt.Errorf(holt.InvalidArgument, "the run has taken %d bytes only", r.taken)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, in, r.taken-offset)
		if err == nil || err == io.EOF {
			var n int64
			n, err = io.Copy(r.stdin, in)
			r.taken += n
		}
		failed <- err
	}()
	select {
	case err = <-failed:
	case <-r.gone:
		return 0, ended
	}
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return 0, holt.Errorf(holt.Conflict, "the run's input is closed")
	}
	if err == nil && eof {
		_ = r.stdin.Close() // a second time is an error that says nothing new
	}
	return r.taken, err
}

// Receipt is empty: what a run does is not seen in its workspace.
func (n runs) Receipt(_ context.Context, id holt.RunID) (holt.Receipt, error) {
	_, err := n.find(id)
	return holt.Receipt{Run: string(id), Changes: []holt.Change{}}, err
}

func (n runs) Signal(_ context.Context, id holt.RunID, signal, key string) error {
	r, err := n.find(id)
	if err != nil {
		return err
	}
	sig := unix.SignalNum(strings.ToUpper(signal))
	if sig == 0 {
		return holt.Errorf(holt.InvalidArgument, "%q is not a signal", signal).WithHint("as SIGTERM")
	}
	_, err = once(n.m, key, []any{"signal", id, signal}, func() (struct{}, error) {
		select {
		case <-r.gone:
			return struct{}{}, holt.Errorf(holt.Conflict, "the run has ended")
		default:
			return struct{}{}, syscall.Kill(-r.cmd.Process.Pid, sig)
		}
	})
	return err
}
