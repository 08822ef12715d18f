package computer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// metered is what machines have used, as a host would say: the test moves it.
type metered map[holt.ComputerID]*reading

func (m metered) read(_ context.Context, l *live, network bool) (reading, error) {
	g := m[l.id]
	if g == nil {
		return reading{}, machine.ErrGone
	}
	return *g, nil
}

// runs says that the host's figures of a machine are up by so much.
func (m metered) runs(id holt.ComputerID, age, cpu time.Duration, bytes int64) {
	if m[id] == nil {
		m[id] = &reading{networked: true}
		m[id].PID = len(m) + 1
	}
	m[id].Age += age
	m[id].CPU += cpu
	m[id].network += bytes
}

// budgetWorld is a computer whose use is counted.
type budgetWorld struct {
	*idleWorld
	used metered
}

func newBudgetWorld(t *testing.T) *budgetWorld {
	w := &budgetWorld{newIdleWorld(t), metered{}}
	w.budgets.read = w.used.read
	w.used.runs(w.r.ID, 10*time.Hour, 5*time.Hour, 1<<30) // before there is a budget
	return w
}

// again is the store of a new daemon.
func (w *budgetWorld) again() {
	l := w.l
	cfg := w.cfg
	cfg.Fail = nil
	w.Store = newStore(w.t.Context(), cfg)
	w.budgets.read = w.used.read
	w.reopens()
	w.machines.put(w.r.ID, l)
}

// forks puts a fork on record that runs.
func (w *budgetWorld) forks(name string, of holt.ComputerID) (record, error) {
	r, err := w.makes(w.t.Context(), name, of, func(r *record) { r.State = holt.ComputerRunning })
	if err == nil {
		l := newLive(w.Store, r, w.ws, func() {})
		l.m = &drowsy{done: make(chan struct{})}
		w.machines.put(r.ID, l)
	}
	return r, err
}

func (w *budgetWorld) sets(ref string, c holt.BudgetChange) holt.Budget {
	w.t.Helper()
	b, err := w.SetBudget(w.t.Context(), ref, c, "")
	w.ok(err)
	return b
}

// counts has all counted and returns what of the computer's first budget is used.
func (w *budgetWorld) counts() holt.Budget {
	w.t.Helper()
	w.ok(w.budgets.count(w.t.Context(), `WHERE state = 'running'`))
	return w.is().Budgets[0]
}

const hourMS = int64(3600e3)

// TestBudget: a computer, its forks and theirs are counted from when the budget is set, pause when it is exhausted,
// and none of them wakes, nor is another made, until it is raised.
func TestBudget(t *testing.T) {
	w := newBudgetWorld(t)
	w.sets("einstein", holt.BudgetChange{RunMS: ptr(10 * hourMS), CPUMS: ptr(100 * hourMS), NetworkBytes: ptr(int64(1 << 30))})
	if b := w.counts(); b.Used != (holt.BudgetUse{}) {
		t.Errorf("what was before is counted: %+v", b)
	}
	w.used.runs(w.r.ID, time.Hour, time.Minute, 1000)
	child, err := w.forks("child", w.r.ID)
	w.ok(err)
	grandchild, err := w.forks("grandchild", child.ID)
	w.ok(err)
	stranger, err := w.forks("stranger", "")
	w.ok(err)
	for _, id := range []holt.ComputerID{child.ID, grandchild.ID, stranger.ID} {
		w.used.runs(id, time.Hour, time.Minute, 1000)
	}
	own := w.sets("child", holt.BudgetChange{RunMS: ptr(100 * hourMS)}) // which counts from now on
	for range 3 {                                                       // a reading that is not new is not counted again
		if b := w.counts(); b.Used != (holt.BudgetUse{CPUMS: 3 * 60e3, RunMS: 3 * hourMS, NetworkBytes: 3000}) {
			t.Errorf("after three hours together: %+v", b)
		}
	}
	*w.used[grandchild.ID] = reading{networked: true, network: 1500, Consumption: machine.Consumption{Process: machine.Process{PID: 99}, Age: time.Minute}} // stopped and started
	if b := w.counts(); b.Used.RunMS != 3*hourMS+60e3 || b.Used.NetworkBytes != 3500 {
		t.Errorf("after a start: %+v", b)
	}
	if r, err := w.table.find(t.Context(), "grandchild"); err != nil || len(r.Budgets) != 2 || r.Budgets[1].ComputerID != own.ComputerID || r.Budgets[1].Used.RunMS != 60e3 {
		t.Errorf("the grandchild's budgets: %+v, %v", r.Budgets, err)
	}
	w.used.runs(child.ID, 7*time.Hour, 0, 0)
	if b := w.counts(); !b.Exhausted {
		t.Errorf("after eleven hours: %+v", b)
	}
	over, err := w.budgets.over(t.Context())
	w.ok(err)
	var names []string
	for _, o := range over {
		names = append(names, o.r.Name+" "+o.by)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"child budget", "einstein budget", "grandchild budget"}) {
		t.Errorf("to be paused: %q", names)
	}
	var verb string
	w.cfg.Fail = func(string) error {
		if other := w.machines.atWork(w.r.ID); other != nil {
			verb = other.Verb
		}
		return nil
	}
	w.budgets.rest(t.Context(), w.is(), PausedByBudget)
	if r := w.is(); r.State != holt.ComputerPaused || r.PausedBy != PausedByBudget || verb != "pause" {
		t.Fatalf("it is %s by %q; at work was %q", r.State, r.PausedBy, verb)
	}
	w.cfg.Fail = nil
	_, err = w.Memory().Resume(t.Context(), "einstein", "")
	if e := holt.AsError(err); holt.CodeOf(err) != holt.TooMany || !strings.Contains(e.Message, "budget of einstein is exhausted: used 10h1m of 10h of run time") || !strings.Contains(e.Hint, "holt computer budget einstein --run-time") {
		t.Errorf("resumed: %v", err)
	}
	if a := w.awake(); !strings.Contains(a.Note, "it cannot be woken") || !strings.Contains(a.Note, "paused, by budget") {
		t.Errorf("why-awake: %q", a.Note)
	}
	for _, of := range []holt.ComputerID{w.r.ID, grandchild.ID} {
		if _, err := w.forks("another", of); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "counts its fork another") {
			t.Errorf("a fork escapes: %v", err)
		}
	}
	if b := w.sets("einstein", holt.BudgetChange{RunMS: ptr(20 * hourMS)}); b.Exhausted || b.Used.RunMS < 10*hourMS || b.CPUMS != 100*hourMS {
		t.Errorf("raised: %+v", b)
	}
	r := w.is()
	r.State = holt.ComputerResuming
	w.ok(w.table.saveAdmitted(t.Context(), r))
	// A budget outlives its computer while there are forks: these are still counted, and its id names it.
	w.ok(w.table.erase(t.Context(), child.ID))
	w.used.runs(grandchild.ID, time.Hour, 0, 0)
	w.counts()
	if b := w.sets(string(child.ID), holt.BudgetChange{RunMS: ptr(hourMS / 2)}); !b.Exhausted || b.Computer != "child" {
		t.Errorf("of one that is gone: %+v", b)
	}
	w.ok(w.table.erase(t.Context(), grandchild.ID))
	if err := w.RemoveBudget(t.Context(), string(child.ID), ""); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a budget that counts nobody: %v", err)
	}
	w.ok(w.RemoveBudget(t.Context(), "einstein", ""))
}

// TestBudgetsOfDeaf: computers whose networks do not answer are waited for together, and by none that has no budget.
func TestBudgetsOfDeaf(t *testing.T) {
	w := newBudgetWorld(t)
	w.sets("einstein", holt.BudgetChange{RunMS: ptr(10 * hourMS)})
	const deaf = 10
	for i := range deaf - 1 {
		_, err := w.forks(fmt.Sprint("child-", i), w.r.ID)
		w.ok(err)
	}
	stranger, err := w.forks("stranger", "")
	w.ok(err)
	asked, answered := make(chan bool, deaf), make(chan bool)
	w.budgets.read = func(context.Context, *live, bool) (reading, error) {
		asked <- true
		<-answered
		return reading{}, machine.ErrGone
	}
	counted := make(chan error, 1)
	go func() { counted <- w.budgets.count(t.Context(), `WHERE state = 'running'`) }()
	for i := range deaf {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Errorf("only %d are asked", i)
			close(answered)
			t.FailNow()
		}
	}
	w.budgets.last(t.Context(), stranger.ID)
	close(answered)
	w.ok(<-counted)
}

// TestBudgetWarns: at four fifths somebody is told, once, and again after a raise.
func TestBudgetWarns(t *testing.T) {
	w := newBudgetWorld(t)
	var told bytes.Buffer
	w.log = slog.New(slog.NewTextHandler(&told, nil))
	w.sets("einstein", holt.BudgetChange{CPUMS: ptr(hourMS)})
	for i, step := range []struct {
		minutes time.Duration
		raise   bool
		told    int
	}{{47, false, 0}, {2, false, 1}, {1, false, 1}, {0, true, 1}, {30, false, 1}, {20, false, 2}} {
		if step.raise {
			w.sets("einstein", holt.BudgetChange{CPUMS: ptr(2 * hourMS)})
		}
		w.used.runs(w.r.ID, step.minutes*time.Minute, step.minutes*time.Minute, 0)
		w.counts()
		if n := strings.Count(told.String(), "budget nearly used up"); n != step.told {
			t.Errorf("step %d: told %d times, not %d", i, n, step.told)
		}
	}
}

// TestBudgetKilled: a daemon that is killed while it counts counts nothing twice, and the next one goes on.
func TestBudgetKilled(t *testing.T) {
	for _, point := range []string{"budget/count", "budget/counted"} {
		w := newBudgetWorld(t)
		w.sets("einstein", holt.BudgetChange{RunMS: ptr(100 * hourMS)})
		killed := errors.New("killed")
		for i := range 5 {
			w.used.runs(w.r.ID, time.Hour, time.Minute, 10)
			w.cfg.Fail = func(at string) error {
				if at == point {
					return killed
				}
				return nil
			}
			if err := w.budgets.count(t.Context(), `WHERE state = 'running'`); !errors.Is(err, killed) {
				t.Fatalf("%s: %v", point, err)
			}
			w.again()
			if b := w.counts(); b.Used != (holt.BudgetUse{CPUMS: int64(i+1) * 60e3, RunMS: int64(i+1) * hourMS, NetworkBytes: int64(i+1) * 10}) {
				t.Errorf("%s: after %d hours: %+v", point, i+1, b)
			}
		}
		w.used.runs(w.r.ID, time.Hour, 0, 0) // what is not counted when it is paused is, then
		_, err := w.pauser.pause(t.Context(), "einstein", "")
		w.ok(err)
		if b := w.is().Budgets[0]; b.Used.RunMS != 6*hourMS {
			t.Errorf("%s: when it was paused: %+v", point, b)
		}
	}
}

// TestRunTime: a computer that has run for as long as its tenant's may in one go is paused, and may go on.
func TestRunTime(t *testing.T) {
	w := newBudgetWorld(t)
	w.limits(holt.LimitChange{MaxRunMS: ptr(11 * hourMS)})
	for _, want := range []int{0, 1} {
		over, err := w.budgets.over(t.Context())
		w.ok(err)
		if len(over) != want {
			t.Fatalf("to be paused: %+v", over)
		}
		for _, o := range over {
			w.budgets.rest(t.Context(), o.r, o.by)
		}
		w.used.runs(w.r.ID, 2*time.Hour, 0, 0)
	}
	if r := w.is(); r.State != holt.ComputerPaused || r.PausedBy != PausedByLimit {
		t.Errorf("it is %s by %q", r.State, r.PausedBy)
	}
	r := w.is()
	r.State = holt.ComputerResuming
	w.ok(w.table.saveAdmitted(t.Context(), r))
}
