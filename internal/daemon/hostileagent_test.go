package daemon_test

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestHostileAgent: a daemon whose computers' agents are all hostile, on the local engine, so that as much is asked and
// answered in seconds as in a machine in an hour. The same holds as in TestHostileGuest, but for what is beside it.
func TestHostileAgent(t *testing.T) {
	i, seed := newIll(t, home(t))
	i.computers = 1
	setenv(t, envGuest, hostileFile(t, hostileProgram(t), "long", seed, i.canary, i.secret))
	i.again("")
	ctx := t.Context()
	mallory, began := i.makes()
	end := i.watch()
	over, stop := context.WithTimeout(ctx, 2*time.Duration(i.seconds)*time.Second)
	defer stop()
	var asking sync.WaitGroup
	i.asking(over, &asking)
	asking.Wait()
	i.takesAway()
	i.snapshots()
	i.tells()
	end()
	i.fits(mallory.ID, time.Since(began))
	i.goes()
	i.close(seed)
	endAll(t, i.process)
}
