package agent

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts processes and waits for them. An agent that is PID 1 (of a
// namespace) inherits orphans; then a single waiter must wait for all children.
// Otherwise each child has a waiter of its own. The zero value is ready.
type reaper struct {
	mu   sync.Mutex // held while a child is started, so that its end is not reaped before its channel exists
	wait map[int]chan unix.WaitStatus
}

// start starts a program and returns its pid and the channel for its wait status.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan unix.WaitStatus, error) {
	end := make(chan unix.WaitStatus, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	if r.wait != nil {
		r.wait[pid] = end
		return pid, end, nil
	}
	go func() {
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
				break
			}
		}
		end <- status
	}()
	return pid, end, nil
}

// adopt makes r wait for all children, including orphans, until the process
// ends. It must be called before start.
func (r *reaper) adopt() {
	r.wait = map[int]chan unix.WaitStatus{}
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	go func() {
		for range sig {
			r.collect()
		}
	}()
}

func (r *reaper) collect() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		end := r.wait[pid]
		delete(r.wait, pid)
		r.mu.Unlock()
		if end != nil {
			end <- status
		}
	}
}

// ending converts a wait status to a run's exit code and signal.
func ending(status unix.WaitStatus) (code int, sig string) {
	if status.Signaled() {
		return 128 + int(status.Signal()), signalName(status.Signal())
	}
	return status.ExitStatus(), ""
}

// protect protects this process from the out-of-memory killer.
func protect(log *slog.Logger) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		log.Warn("protect agent from the OOM killer", "err", err)
	}
}
