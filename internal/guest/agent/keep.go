package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartAfter is how long the keeper waits before it restarts the second process.
const restartAfter = 500 * time.Millisecond

// stateFD is the second process's descriptor of the [shared] state.
const stateFD = 3

// keeper is the first of the agent's two processes. It forwards the workspace's
// requests, and starts the second process, which serves the control channel and
// starts runs. It restarts the second process after a crash. It starts no other
// programs: see [ServeFiles]. As PID 1 it reaps orphans.
type keeper struct {
	name       string    // argv[0] of the second process
	args       []string  // its flags
	files      []uintptr // its descriptors from stateFD+1 on
	serveFiles func(ctx context.Context, state shared)
	log        *slog.Logger
	reaper     reaper
}

// run returns when the second process has ended as requested, or ctx has ended;
// then the workspace is unmounted.
func (k *keeper) run(ctx context.Context) error {
	state, err := newShared()
	if err != nil {
		return fmt.Errorf("make shared state: %w", err)
	}
	defer state.f.Close()
	if os.Getpid() == 1 {
		k.reaper.adopt()
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	if k.serveFiles != nil {
		work.Go(func() { k.serveFiles(ctx, state) })
	}
	k.supervise(ctx, state.f)
	return nil
}

func (k *keeper) supervise(ctx context.Context, state *os.File) {
	argv := append([]string{k.name, "serve"}, k.args...)
	for ; ; argv = append([]string{k.name, "serve", "--again"}, k.args...) {
		pid, end, err := k.reaper.start("/proc/self/exe", argv, &syscall.ProcAttr{
			Env: os.Environ(), Files: append([]uintptr{0, 1, 2, state.Fd()}, k.files...),
		})
		if err != nil {
			k.log.Error("start agent", "err", err)
		} else {
			stop := context.AfterFunc(ctx, func() { unix.Kill(pid, unix.SIGTERM) })
			status := <-end
			stop()
			if ctx.Err() != nil || (status.Exited() && status.ExitStatus() == 0) {
				return
			}
			code, sig := ending(status)
			k.log.Error("agent ended unexpectedly; restarting it", "status", code, "signal", sig)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
	}
}

// shared is state shared by the agent's two processes: bytes of a memory file that both have open.
type shared struct{ f *os.File }

const (
	stateWorkspace = iota // [Standing] of the workspace; written by the first process
	stateEnding           // 1: the machine is shutting down; written by the second
)

func newShared() (shared, error) {
	fd, err := unix.MemfdCreate("holt-state", unix.MFD_CLOEXEC)
	if err != nil {
		return shared{}, err
	}
	return shared{os.NewFile(uintptr(fd), "holt-state")}, nil
}

// inherited returns the state in the second process.
func inherited() shared { return shared{os.NewFile(stateFD, "holt-state")} }

func (s shared) set(at int64, to byte) { s.f.WriteAt([]byte{to}, at) }

func (s shared) get(at int64) byte {
	var b [1]byte
	s.f.ReadAt(b[:], at)
	return b[0]
}

func (s shared) setStanding(is Standing) { s.set(stateWorkspace, byte(is)) }
func (s shared) standing() Standing      { return Standing(s.get(stateWorkspace)) }
func (s shared) setEnding()              { s.set(stateEnding, 1) }
func (s shared) ending() bool            { return s.get(stateEnding) == 1 }
