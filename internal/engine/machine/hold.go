package machine

import (
	"context"
	"net"
	"sync"
)

// Hold is a process's control of a machine, for any engine: directory, process
// and ports, until Release. Engines embed it; it implements half of [Machine].
type Hold struct {
	Dir    *Dir
	Handle *Handle
	Ports  Ports

	release sync.Once
	stop    chan struct{} // closed by Release
	over    chan struct{} // closed when supervise has returned
	done    chan struct{} // closed when the machine has ended
}

// Watch runs supervise in a goroutine. supervise returns whether the machine
// has ended, at its end or when released is closed. Before Watch, only one
// goroutine may use a Hold.
func (h *Hold) Watch(supervise func(released <-chan struct{}) (ended bool)) {
	h.stop, h.over, h.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(h.over)
		if supervise(h.stop) {
			close(h.done)
		}
	}()
}

// Over is closed when the machine has ended or was released, and all its
// resources in this process are closed.
func (h *Hold) Over() <-chan struct{} { return h.over }

// Release implements [Machine].
func (h *Hold) Release() {
	h.release.Do(func() { close(h.stop) })
	<-h.over
}

// Let closes everything that this process has of the machine except its directory.
func (h *Hold) Let(claims *Claims) {
	h.Ports.Close()
	if h.Handle != nil {
		claims.Remove(h.Handle.Process)
		h.Handle.Close()
	}
}

// Done implements [Machine].
func (h *Hold) Done() <-chan struct{} { return h.done }

// Console implements [Machine].
func (h *Hold) Console() string { return h.Dir.File(ConsoleFile) }

// PID implements [Machine].
func (h *Hold) PID() int { return h.Handle.PID }

// Dial implements [Machine].
func (h *Hold) Dial(ctx context.Context, port string) (net.Conn, error) {
	return h.Ports.Dial(ctx, port)
}
