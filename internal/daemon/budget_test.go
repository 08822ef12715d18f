package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"holt"
)

// TestKilledCounting: a daemon is killed before and after it writes down what a machine has used, by the host's own
// figures. The next one goes on: nothing is counted twice or lost. A computer whose budget is exhausted is ended,
// and starts once it is raised.
func TestKilledCounting(t *testing.T) {
	for _, point := range []string{"budget/count", "budget/counted"} {
		t.Run(point, func(t *testing.T) { killedCounting(t, point) })
	}
}

func killedCounting(t *testing.T, point string) {
	dir := home(t)
	ctx := t.Context()
	p := spawn(t, dir, point)
	c, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	much := (100 * time.Hour).Milliseconds()
	began := time.Now()
	set := make(chan error, 1)
	go func() { // its answer may be lost with the daemon
		_, err := p.Computers.SetBudget(context.Background(), "curie", holt.BudgetChange{RunMS: &much}, "the-key")
		set <- err
	}()
	p.wait()
	p = spawn(t, dir, "")
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	changes := func(run int64) holt.Budget { // which counts first
		t.Helper()
		b, err := p.Computers.SetBudget(ctx, "curie", holt.BudgetChange{RunMS: &run}, "")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := changes(much + 1)
	second := changes(much + 2)
	took := time.Since(began).Milliseconds()
	ran := time.Since(*c.StartedAt).Milliseconds()
	if first.Used.RunMS <= 0 || first.Used.RunMS > took || second.Used.RunMS < first.Used.RunMS || second.Used.RunMS > took || second.Used.RunMS > ran {
		t.Errorf("it is counted as %d and %d ms, %d ms after the budget was set", first.Used.RunMS, second.Used.RunMS, took)
	}
	if b := changes(1); !b.Exhausted {
		t.Errorf("%+v", b)
	}
	for got := (holt.Computer{}); got.State != holt.ComputerStopped || got.Reason == ""; time.Sleep(20 * time.Millisecond) {
		if got, err = p.Computers.Get(ctx, "curie"); err != nil || time.Since(began) > time.Minute {
			t.Fatalf("it is not ended: %+v, %v", got, err)
		}
	}
	if _, err := p.Computers.Start(ctx, "curie", ""); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("started without a budget: %v", err)
	}
	if _, err := p.Runs.Start(ctx, "curie", holt.RunSpec{Command: "true"}, ""); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("woken without a budget: %v", err)
	}
	if got, err := p.Computers.Get(ctx, "curie"); err != nil || !strings.Contains(got.Reason, "by budget") || len(got.Budgets) != 1 || !got.Budgets[0].Exhausted {
		t.Errorf("%+v, %v", got, err)
	}
	changes(much)
	if got, err := p.Computers.Start(ctx, "curie", ""); err != nil || got.State != holt.ComputerRunning {
		t.Errorf("%+v, %v", got, err)
	}
	endAll(t, p)
}
