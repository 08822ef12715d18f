package computer

import (
	"sync"
	"testing"

	"holt"
)

// A run whose start a daemon's end cut off is started while the guest is asked which it has: it is on record as what it is,
// whichever comes first. One that nobody starts is lost.
func TestStartedWhileAsked(t *testing.T) {
	l, k := guested(t)
	c, _, _ := l.state()
	for round := range 100 {
		run := holt.Run{ID: holt.NewRunID(), ComputerID: k.id, State: holt.RunRunning}
		if err := k.table.insert(t.Context(), run, nil); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := l.runTracker.compare(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		if round%2 == 0 {
			both.Go(func() {
				defer l.runs.claim(run)()
				_, err := k.table.unlose(t.Context(), run.ID)
				if err == nil {
					_, err = c.StartRun(t.Context(), run.ID, holt.RunSpec{Argv: holt.OSStrings{"/bin/bash", "-c", goesOn}, User: "root", Cwd: "/"})
				}
				if err != nil {
					t.Error(err)
				}
				l.runs.opened(run.ID)
			})
		}
		both.Wait()
		if is, err := k.table.list(t.Context(), `WHERE id = ?`, run.ID); err != nil || (is[0].State == holt.RunLost) != (round%2 == 1) {
			t.Fatalf("round %d: %+v, %v", round, is, err)
		}
	}
	if len(l.runs.launches.asked) > 0 || len(l.runs.launches.going) > 0 {
		t.Errorf("left: %+v", &l.runs.launches)
	}
}
