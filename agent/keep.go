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

// restartAfter is how long the keeper waits before it starts a second process
// again.
const restartAfter = 500 * time.Millisecond

// stateFD is the descriptor on which the second process finds a byte that says
// whether the workspace is served.
const stateFD = 3

// keeper is the first of the agent's two processes. It pumps the workspace's
// requests, starts the second process (which answers the control channel and
// starts runs) and starts it again when a defect ends it. It starts nothing
// else: see [ServeFiles]. As PID 1 it reaps orphans.
type keeper struct {
	name       string   // argv[0] of the second process
	args       []string // its flags
	serveFiles func(ctx context.Context, served func(bool))
	log        *slog.Logger
	reaper     reaper
}

// run returns when the second process has ended as it was asked to, or ctx
// has; then the workspace is unmounted.
func (k *keeper) run(ctx context.Context) error {
	fd, err := unix.MemfdCreate("holt-state", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make shared state: %w", err)
	}
	state := os.NewFile(uintptr(fd), "holt-state")
	defer state.Close()
	if os.Getpid() == 1 {
		k.reaper.adopt()
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	if k.serveFiles != nil {
		work.Go(func() { k.serveFiles(ctx, func(served bool) { setServed(state, served) }) })
	}
	k.supervise(ctx, state)
	return nil
}

func (k *keeper) supervise(ctx context.Context, state *os.File) {
	argv := append([]string{k.name, "serve"}, k.args...)
	for ; ; argv = append([]string{k.name, "serve", "--again"}, k.args...) {
		pid, end, err := k.reaper.start("/proc/self/exe", argv, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2, state.Fd()},
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
			k.log.Error("agent ended; starting it again", "status", code, "signal", sig)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartAfter):
		}
	}
}

func setServed(state *os.File, served bool) {
	b := []byte{0}
	if served {
		b[0] = 1
	}
	state.WriteAt(b, 0)
}

// servedState reads what setServed wrote, in the second process.
func servedState() func() bool {
	state := os.NewFile(stateFD, "holt-state")
	return func() bool {
		var b [1]byte
		n, _ := state.ReadAt(b[:], 0)
		return n == 1 && b[0] == 1
	}
}
