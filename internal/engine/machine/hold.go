package machine

import (
	"context"
	"net"
	"sync"
)

// Hold is a machine as this process has it, whatever the engine: its directory,
// its process and its ports, and for how long. Engines embed it in what they
// return; it brings half of [Machine].
type Hold struct {
	Dir    *Dir
	Handle *Handle
	Ports  Ports

	release sync.Once
	stop    chan struct{} // closed by Release
	over    chan struct{} // closed when supervise has returned
	done    chan struct{} // closed when the machine has ended
}

// Watch runs supervise in a goroutine: it follows the machine until that has
// ended, which it says, or released is closed. Before Watch, a hold is used by
// one goroutine only.
func (h *Hold) Watch(supervise func(released <-chan struct{}) (ended bool)) {
	h.stop, h.over, h.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(h.over)
		if supervise(h.stop) {
			close(h.done)
		}
	}()
}

// Over is closed when the machine has ended or was released, and all that this
// process had of it is closed.
func (h *Hold) Over() <-chan struct{} { return h.over }

// Release implements [Machine].
func (h *Hold) Release() {
	h.release.Do(func() { close(h.stop) })
	<-h.over
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
