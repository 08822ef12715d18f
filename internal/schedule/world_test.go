package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// world fakes computers, in which a run takes as long as its command says, and a wall
// clock that can be set. It outlives the daemon.
type world struct {
	t *testing.T
	d *db.DB

	mu        sync.Mutex
	dies      func(point string) bool // whether the daemon dies at this step
	ahead     time.Duration           // of the wall clock
	computers map[holt.ComputerID]*holt.Computer
	runs      map[holt.RunID]*fakeRun
	order     []holt.RunID
	rested    []holt.ComputerState
	refuse    error                             // of Start and Wake
	tries     int                               // of those
	down      map[holt.ComputerID]time.Duration // computers that fail to wake, after how long
	room      int                               // how many may run; 0: all
	s         *Store
	dead      chan struct{} // closed when the daemon is killed
}

type fakeRun struct {
	holt.Run
	began, ends time.Time     // by the bubble's clock
	left        time.Duration // of a run whose computer is paused
	signals     []string
}

// newWorld returns a world with paused computers of these names.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), computer.Schema+Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, d: d, computers: map[holt.ComputerID]*holt.Computer{}, runs: map[holt.RunID]*fakeRun{}, down: map[holt.ComputerID]time.Duration{}}
	for _, name := range names {
		c := &holt.Computer{ID: holt.NewComputerID(), Name: name, State: holt.ComputerPaused}
		w.computers[c.ID] = c
	}
	t.Cleanup(func() { w.ok(d.Close()) })
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// open starts the next daemon.
func (w *world) open() *Store {
	w.t.Helper()
	w.dead = make(chan struct{})
	var s *Store
	var once sync.Once
	opened := make(chan struct{})
	s, err := Open(w.t.Context(), Config{DB: w.d, Keys: idempotency.New(w.d), Computers: w, Now: w.now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Fail: func(point string) error {
			<-opened
			w.mu.Lock()
			dies := w.dies
			w.mu.Unlock()
			if dies == nil || !dies(point) {
				return nil
			}
			s.cancel()
			once.Do(func() { close(w.dead) })
			return errors.New("killed")
		}})
	w.ok(err)
	w.s = s
	close(opened)
	return s
}

// fatal sets the steps at which the daemon is killed.
func (w *world) fatal(dies func(point string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dies = dies
}

// refuses sets the error of Start and Wake.
func (w *world) refuses(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead).Round(0)
}

// jump sets the wall clock.
func (w *world) jump(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += by
}

func (w *world) Get(_ context.Context, ref string) (holt.Computer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if string(c.ID) == ref || c.Name == ref {
			return *c, nil
		}
	}
	return holt.Computer{}, holt.Errorf(holt.NotFound, "there is no computer %q", ref)
}

func (w *world) List(ctx context.Context) (all []holt.Computer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if in := holt.Confined(ctx); in == "" || in == c.Tenant {
			all = append(all, *c)
		}
	}
	return all, nil
}

func (w *world) Check(spec holt.RunSpec) error {
	if spec.Command == "" {
		return holt.Errorf(holt.InvalidArgument, "no command")
	}
	return nil
}

// wakeTime is the duration of a wake.
const wakeTime = 3 * time.Second

func (w *world) Start(ctx context.Context, id holt.RunID, computer holt.ComputerID, spec holt.RunSpec) (holt.Run, error) {
	by, _ := holt.ActorOf(ctx)
	if err := pause(ctx, w.takes(computer)); err != nil {
		return holt.Run{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.awaken(computer); err != nil {
		return holt.Run{}, err
	}
	if run := w.runs[id]; run != nil {
		return w.at(run), nil
	}
	takes, err := time.ParseDuration(string(spec.Command))
	if err != nil {
		return holt.Run{}, err
	}
	run := &fakeRun{Run: holt.Run{ID: id, ComputerID: computer, Schedule: by.Name, State: holt.RunRunning, StartedAt: time.Now().Add(w.ahead)}, began: time.Now(), ends: time.Now().Add(takes)}
	w.runs[id] = run
	w.order = append(w.order, id)
	return run.Run, nil
}

func (w *world) Wake(ctx context.Context, id holt.ComputerID) error {
	if err := pause(ctx, w.takes(id)); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.awaken(id)
}

// awaken wakes a computer, unless that is refused. w.mu is held.
func (w *world) awaken(id holt.ComputerID) error {
	w.tries++
	if w.refuse != nil {
		return w.refuse
	}
	if w.down[id] > 0 {
		return holt.Errorf(holt.Unavailable, "it does not come up")
	}
	c := w.computers[id]
	if c == nil {
		return holt.Errorf(holt.NotFound, "there is no computer")
	}
	awake := 0
	for _, other := range w.computers {
		if other != c && other.State == holt.ComputerRunning {
			awake++
		}
	}
	if w.room > 0 && awake >= w.room {
		return holt.Errorf(holt.TooMany, "the host has no memory")
	}
	c.State = holt.ComputerRunning
	for _, run := range w.runs {
		if run.ComputerID == id && run.left > 0 {
			run.ends, run.left = time.Now().Add(run.left), 0
		}
	}
	return nil
}

// takes returns the duration of a wake of a computer.
func (w *world) takes(id holt.ComputerID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.down[id], wakeTime)
}

// mends makes all computers wake.
func (w *world) mends() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.down)
}

// freezes pauses a computer and reports whether anything ran in it.
func (w *world) freezes(name string) (held bool) {
	c, err := w.Get(w.t.Context(), name)
	w.ok(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range w.runs {
		if run.ComputerID == c.ID && run.left == 0 && w.at(run).State == holt.RunRunning {
			run.left, held = time.Until(run.ends), true
		}
	}
	w.computers[c.ID].State = holt.ComputerPaused
	return held
}

// tried returns the number of tries to wake a computer.
func (w *world) tried() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries
}

// at returns the present state of a run. w.mu is held.
func (w *world) at(run *fakeRun) holt.Run {
	if run.left == 0 && run.State == holt.RunRunning && !time.Now().Before(run.ends) {
		end := run.ends.Add(w.ahead)
		run.State, run.EndedAt = holt.RunExited, &end
	}
	return run.Run
}

func (w *world) Run(_ context.Context, id holt.RunID) (holt.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[id] == nil {
		return holt.Run{}, holt.Errorf(holt.NotFound, "there is no run")
	}
	return w.at(w.runs[id]), nil
}

func (w *world) Signal(_ context.Context, id holt.RunID, signal string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := w.runs[id]
	if w.computers[run.ComputerID].State != holt.ComputerRunning {
		if err := w.awaken(run.ComputerID); err != nil {
			return err
		}
	}
	run.signals = append(run.signals, signal)
	if signal == "SIGKILL" {
		run.ends, run.ExitCode = time.Now(), 137
	}
	return nil
}

func (w *world) Rest(_ context.Context, id holt.ComputerID, as holt.ComputerState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, run := range w.runs {
		if run.ComputerID == id && w.at(run).State == holt.RunRunning {
			return nil
		}
	}
	w.computers[id].State = as
	w.rested = append(w.rested, as)
	return nil
}

// was returns the schedule of a run and the signals that it got.
func (w *world) was(id holt.RunID) (schedule string, signals []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id].Schedule, slices.Clone(w.runs[id].signals)
}

// restedAs returns the states to which computers were returned.
func (w *world) restedAs() []holt.ComputerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.rested)
}

// begun returns the number of runs.
func (w *world) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.order)
}

// add makes a schedule whose runs take as long as takes says.
func (w *world) add(computer, name, cron, takes string, change func(*holt.ScheduleSpec)) holt.Schedule {
	w.t.Helper()
	spec := holt.ScheduleSpec{Computer: computer, Name: name, Cron: cron, Spec: holt.RunSpec{Command: holt.OSString(takes)}}
	if change != nil {
		change(&spec)
	}
	s, err := w.s.Create(w.t.Context(), spec, "")
	w.ok(err)
	return s
}

// tells returns the firings of a schedule, the first first: hour and minute of the due time, and the state.
func (w *world) tells(ref string) (all []string) {
	w.t.Helper()
	list, err := w.s.History(w.t.Context(), ref, 0)
	w.ok(err)
	slices.Reverse(list)
	for _, f := range list {
		one := f.Due.Format("15:04 ") + string(f.State)
		if f.Count > 1 {
			one = fmt.Sprintf("%s-%s %d %s", f.Due.Format("15:04"), f.Until.Format("15:04"), f.Count, f.State)
		}
		all = append(all, one)
	}
	return all
}

func (w *world) wants(ref string, want ...string) {
	w.t.Helper()
	if got := w.tells(ref); !slices.Equal(got, want) {
		w.t.Errorf("%s:\n got %q\nwant %q", ref, got, want)
	}
}
