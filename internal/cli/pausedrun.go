package cli

import (
	"context"
	"sync/atomic"
	"time"

	"holt"
)

// quietLook is how long a run that is followed is quiet before its computer is looked at, each time.
const quietLook = 2 * time.Second

// pausedWatch says, once for each pause, that a run is quiet because its computer is paused: only whoever uses the
// computer wakes it, and to follow is no use.
type pausedWatch struct {
	heard atomic.Bool // the run said something since the last look
}

// begin watches until the returned function is called.
func (w *pausedWatch) begin(r *remoteRun, computer string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(quietLook)
		defer tick.Stop()
		said := false
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if w.heard.Swap(false) {
				said = false
				continue
			}
			said = w.look(r, computer, said)
		}
	}()
	return func() { close(done); <-ended }
}

// look says that the computer is paused if it is and this was not said yet, and reports whether it is.
func (w *pausedWatch) look(r *remoteRun, computer string, said bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), otherLimit)
	defer cancel()
	is, err := r.c.Computers.Get(ctx, computer)
	if err != nil {
		return said // to follow the run says so too
	}
	if is.State != holt.ComputerPaused || said {
		return said && is.State == holt.ComputerPaused
	}
	by := ""
	if is.PausedBy != "" {
		by = ", by " + visible(is.PausedBy)
	}
	name := visible(is.Name)
	r.a.say("holt: %s is paused%s; run %s continues when the computer is resumed\nhint: holt computer resume %s", name, by, r.id, name)
	return true
}
