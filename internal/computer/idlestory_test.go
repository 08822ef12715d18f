package computer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

var idleSeed = flag.Uint64("idle-seed", 0, "seed of TestIdleStory; 0: by the clock")

// drowsy is a machine whose memory can be kept, and of which there is nothing else.
type drowsy struct {
	machine.Machine
	done chan struct{}
}

func (m *drowsy) Done() <-chan struct{} { return m.done }
func (m *drowsy) Disk() string          { return "" }
func (m *drowsy) Kill() error           { return nil }
func (m *drowsy) Release()              {}

func (m *drowsy) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	err := errors.Join(os.MkdirAll(spec.Dir, 0o700), spec.Held(ctx))
	if err == nil {
		err = machine.Image{Engine: "none", Spec: machine.Spec{CPUs: 1, MemoryMB: 1}, Hardware: json.RawMessage("{}")}.Write(spec.Dir, false)
	}
	if err == nil && spec.End {
		close(m.done)
	}
	return machine.SnapshotReport{}, err
}

// idleWorld is a computer in a world whose clock the test moves.
type idleWorld struct {
	*keptWorld
	now time.Time
	ws  *workspace.Workspace
	l   *live
	// What the guest tells: counters, and what it works on until when.
	told  agent.Activity
	works map[string]time.Time // cpu, net, or the id of a terminal or run
}

func newIdleWorld(t *testing.T) *idleWorld {
	w := &idleWorld{keptWorld: keeps(t, &chunk.Memory{}, 1<<40), now: time.Unix(2e9, 0), works: map[string]time.Time{}}
	w.cfg.Keys, w.cfg.Engines.Default, w.cfg.Workspaces, w.cfg.Dir = idempotency.New(w.cfg.DB), &remembering{layered{base: "none"}}, &lasting{}, t.TempDir()
	w.cfg.Limits = Limits{Flush: time.Millisecond}.or(w.cfg.Limits)
	w.reopens()
	var err error
	w.ws, err = workspace.Create(t.TempDir()+"/workspace", workspace.Options{})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.ws.Close()) })
	w.wakes()
	t.Cleanup(w.l.cancel)
	return w
}

// reopens is what a new daemon knows.
func (w *idleWorld) reopens() { w.uses = newUses(func() time.Time { return w.now }) }

// wakes has the computer run, as a call of the API would.
func (w *idleWorld) wakes() {
	w.t.Helper()
	r := w.is()
	r.State, r.StartedAt = holt.ComputerRunning, &w.now
	w.ok(w.table.save(w.t.Context(), r))
	l := newLive(w.Store, r, w.ws, func() {})
	l.m, l.log = &drowsy{done: make(chan struct{})}, slog.New(slog.DiscardHandler)
	l.ctx, l.cancel = context.WithCancel(w.t.Context())
	w.attaches(l)
	w.machines.put(r.ID, l)
	w.uses.used(r.ID, holt.Use{Kind: holt.UseStart})
}

// attaches gives a machine a guest that tells what the test wants.
func (w *idleWorld) attaches(l *live) {
	before := w.now
	l.busy.now = func() time.Time { return w.now }
	l.busy.named = func(holt.TerminalID) (string, bool) { return "main", true }
	l.busy.ask = func(context.Context) (agent.Activity, error) {
		span := w.now.Sub(before)
		used := func(what string) int64 { // half a processor, until it is done
			return max(0, min(span, span-w.now.Sub(w.works[what]))).Milliseconds() / 2
		}
		rest := span.Milliseconds() / 50 // its systemd
		if w.now.Unix()/3600%2 == 0 {
			rest = -rest // what its agent used is more than the tick has seen of all
		}
		w.told.CPUMS += used("cpu") + rest
		w.told.NetBytes += used("net") * 100
		groups := w.told.Groups
		w.told.Groups = nil
		for id, until := range w.works {
			if id == "cpu" || id == "net" {
				continue
			}
			if w.now.Sub(until) > time.Hour {
				delete(w.works, id)
				continue
			}
			g := agent.GroupActivity{ID: id, Processes: 1, CPUMS: used(id)}
			for _, old := range groups {
				if old.ID == id {
					g.CPUMS += old.CPUMS
				}
			}
			w.told.CPUMS += used(id)
			w.told.Groups = append(w.told.Groups, g)
		}
		before = w.now
		told := w.told
		told.Top = []agent.ProcessActivity{{PID: 42, CPUMS: used("cpu"), Command: "python train.py"}}
		return told, nil
	}
	w.l = l
}

func (w *idleWorld) is() record {
	w.t.Helper()
	r, err := w.table.find(w.t.Context(), string(w.r.ID))
	w.ok(err)
	return r
}

// passes lets time pass and has the computer looked at.
func (w *idleWorld) passes(d time.Duration) {
	w.t.Helper()
	w.now = w.now.Add(d)
	if w.is().State == holt.ComputerRunning {
		_, err := w.idler.step(w.t.Context(), w.l)
		w.ok(err)
	}
}

func (w *idleWorld) awake() holt.Awake {
	w.t.Helper()
	a, err := w.Awake(w.t.Context(), "einstein")
	w.ok(err)
	return a
}

// begins starts a run, which is on record.
func (w *idleWorld) begins(command string) holt.RunID {
	w.t.Helper()
	run := holt.Run{ID: holt.NewRunID(), ComputerID: w.r.ID, Spec: holt.RunSpec{Command: holt.OSString(command)}, State: holt.RunRunning, StartedAt: w.now}
	w.ok(w.runRows.insert(w.t.Context(), run, nil))
	return run.ID
}

func (w *idleWorld) ends(id holt.RunID) {
	w.t.Helper()
	w.ok(w.cfg.DB.Write(w.t.Context(), func(tx *db.Tx) error { return tx.Exec(`UPDATE run SET state = 'exited' WHERE id = ?`, id) }))
}

// TestIdle: what a computer is in use for keeps it awake and is named, one after the other; then it is
// paused, once its timeout has passed and not before.
func TestIdle(t *testing.T) {
	w := newIdleWorld(t)
	minutes := func(n int) {
		for range n {
			w.passes(time.Minute)
		}
	}
	names := func(what string, kinds ...holt.UseKind) {
		t.Helper()
		a := w.awake()
		var got []holt.UseKind
		for _, u := range a.Uses {
			got = append(got, u.Kind)
		}
		if a.State != holt.ComputerRunning || !slices.Equal(got, kinds) || a.PausesAt != nil {
			t.Errorf("%s: %s, in use for %+v, pauses at %v", what, a.State, a.Uses, a.PausesAt)
		}
	}
	run := w.begins("make test")
	minutes(60)
	names("a run", holt.UseRun)
	if u := w.awake().Uses[0]; u.ID != string(run) || u.Detail != "make test" {
		t.Errorf("the run is %+v", u)
	}
	w.ends(run)
	detach := w.Use(w.r.ID, holt.UseTerminal, "main")
	minutes(60)
	names("a terminal", holt.UseTerminal)
	detach()
	h, err := w.Hold(t.Context(), "einstein", holt.HoldSpec{Reason: "thinking", ForMS: (5 * time.Hour).Milliseconds()}, "")
	w.ok(err)
	minutes(299)
	names("a hold", holt.UseHold)
	if u := w.awake().Uses[0]; u.ID != string(h.ID) || u.Detail != "thinking" || !u.Until.Equal(h.ExpiresAt) {
		t.Errorf("the hold is %+v", u)
	}
	left := holt.NewRunID()
	w.works[string(left)] = w.now.Add(time.Hour)
	minutes(59)
	names("a background job", holt.UseBackground)
	delete(w.works, string(left))
	w.works["cpu"], w.works["net"] = w.now.Add(time.Hour), w.now.Add(time.Hour)
	minutes(59)
	names("work", holt.UseCPU, holt.UseNetwork)
	if u := w.awake().Uses[0]; !strings.Contains(u.Detail, "python train.py (pid 42)") {
		t.Errorf("the work is %+v", u)
	}
	minutes(15)
	a := w.awake()
	if len(a.Uses) > 0 || a.PausesAt == nil || a.PausesAt.Before(w.now) || a.PausesAt.After(w.now.Add(2*time.Minute)) {
		t.Errorf("before it is paused: %+v", a)
	}
	minutes(2)
	if r := w.is(); r.State != holt.ComputerPaused || r.PausedBy != pausedByIdle {
		t.Errorf("it is %s by %q", r.State, r.PausedBy)
	}
	if a := w.awake(); !strings.Contains(a.Note, "paused, by idle") || len(a.Uses) > 0 {
		t.Errorf("of a paused one: %+v", a)
	}
}

// TestNotPaused: what cannot be paused, or is not to be, is not, and why-awake says why.
func TestNotPaused(t *testing.T) {
	for name, c := range map[string]struct {
		with func(w *idleWorld)
		says string
	}{
		"null": {func(w *idleWorld) {
			_, err := w.Update(w.t.Context(), "einstein", holt.ComputerUpdate{IdleTimeout: holt.NeverIdle}, "")
			w.ok(err)
		}, "idle timeout is null"},
		"engine": {func(w *idleWorld) { w.cfg.Engines.Default = forkless{} }, "forkless does not support pausing"},
		"silent guest": {func(w *idleWorld) {
			w.l.busy.ask = func(context.Context) (agent.Activity, error) { return agent.Activity{}, errors.New("hangs") }
		}, "does not answer: hangs"},
		"broken": {func(w *idleWorld) {
			w.cfg.Fail = func(point string) error {
				if point == "idle/pause" {
					return errPlanned
				}
				return nil
			}
		}, "the last pause failed and will be retried: planned"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newIdleWorld(t)
			c.with(w)
			for range 30 {
				w.now = w.now.Add(time.Minute)
				w.idler.step(t.Context(), w.l)
			}
			if r := w.is(); r.State != holt.ComputerRunning {
				t.Errorf("it is %s", r.State)
			}
			if a := w.awake(); !strings.Contains(a.Note, c.says) {
				t.Errorf("why-awake says %+v", a)
			}
		})
	}
}

// TestIdleAfterRestart: a new daemon goes on with the idle clock of the one before, and pauses nothing before
// it has looked around.
func TestIdleAfterRestart(t *testing.T) {
	w := newIdleWorld(t)
	w.Use(w.r.ID, holt.UseFiles, "read /etc/hosts")()
	for range 10 {
		w.passes(time.Minute)
	}
	w.now = w.now.Add(2 * time.Minute) // nobody looked
	w.reopens()
	w.attaches(w.l)
	a := w.awake()
	if since := w.now.Sub(*a.IdleSince); since < 11*time.Minute || since > 13*time.Minute+idleRecord {
		t.Errorf("after a restart: idle for %v", since)
	}
	w.now = w.now.Add(time.Hour)
	w.reopens()
	w.attaches(w.l)
	w.l.busy.at = time.Time{}
	w.passes(time.Second)
	w.passes(time.Second)
	if r := w.is(); r.State != holt.ComputerRunning {
		t.Error("it was paused at once")
	}
	for range 3 {
		w.passes(idleAdopted)
	}
	if r := w.is(); r.State != holt.ComputerPaused {
		t.Errorf("it is %s: its clock began anew", r.State)
	}
}

// story is what TestIdleStory believes of a computer.
type story struct {
	*idleWorld
	rng      *rand.Rand
	runs     []holt.RunID
	done     map[holt.UseKind][]func()
	holds    []holt.Hold
	terminal string
	last     time.Time // that anything used it
	sure     time.Time // that something used it which was seen to
	woke     time.Time
	counts   map[string]int
}

// TestIdleStory: over fake days at random, a computer is never paused while it is in use or before its timeout
// has passed, always soon after that, and why-awake names what uses it. HOLT_SOAK=1 makes it 5 days for each of
// 4 seeds instead of 2 days for one.
func TestIdleStory(t *testing.T) {
	days, seeds, seed := 2, 1, *idleSeed
	if os.Getenv("HOLT_SOAK") != "" {
		days, seeds = 5, 4
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for i := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed+i), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			idleStory(t, seed+i, days)
		})
	}
}

func idleStory(t *testing.T, seed uint64, days int) {
	t.Logf("%d days, -idle-seed=%d", days, seed)
	s := &story{idleWorld: newIdleWorld(t), rng: rand.New(rand.NewPCG(seed, 1)), done: map[holt.UseKind][]func(){}, terminal: string(holt.NewTerminalID()), counts: map[string]int{}}
	s.last, s.sure, s.woke = s.now, s.now, s.now
	for range days * 24 * 60 {
		s.acts()
		s.passes(time.Minute)
		s.checks()
		if t.Failed() {
			t.Fatalf("at %v, idle since %v: %v", s.now, s.last, s.counts)
		}
	}
	t.Logf("counts: of %d days: %v", days, s.counts)
	for _, what := range []string{"run", "hold", "paused", "woken", "cpu", "attach", "connection", "files", "background", "terminal"} {
		if s.counts[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}

// acts does one thing, or most often nothing: an agent works in bouts.
func (s *story) acts() {
	bout := s.now.Unix()/3600%4 == 0
	if s.rng.IntN(100) >= 3 && !(bout && s.rng.IntN(100) < 20) {
		return
	}
	span := time.Duration(s.rng.IntN(40)) * time.Minute
	switch s.rng.IntN(17) {
	case 0, 1:
		s.comes("run")
		s.runs = append(s.runs, s.begins("make"))
	case 2, 3, 4, 12, 13, 14, 15, 16:
		s.stops()
	case 5:
		s.comes("attach")
		s.done[holt.UseTerminal] = append(s.done[holt.UseTerminal], s.Use(s.r.ID, holt.UseTerminal, "main"))
	case 6:
		s.comes("connection")
		s.done[holt.UseConnection] = append(s.done[holt.UseConnection], s.Use(s.r.ID, holt.UseConnection, "port 3000"))
	case 7: // it does not wake
		s.counts["hold"]++
		h, err := s.Hold(s.t.Context(), "einstein", holt.HoldSpec{Reason: "thinking", ForMS: (span + time.Minute).Milliseconds()}, "")
		s.ok(err)
		s.holds = append(s.holds, h)
		if s.is().State == holt.ComputerRunning {
			s.last, s.sure = s.now, s.now
		}
	case 8:
		s.comes("files")
		s.Use(s.r.ID, holt.UseFiles, "read /etc/hosts")()
		s.last, s.sure = s.now, s.now
	case 9:
		s.comes("cpu")
		s.works[[]string{"cpu", "net"}[s.rng.IntN(2)]] = s.now.Add(span)
	case 10:
		s.comes("background")
		s.works[string(holt.NewRunID())] = s.now.Add(span)
	case 11:
		s.comes("terminal")
		s.works[s.terminal] = s.now.Add(span)
	}
}

// comes is somebody who needs the computer to run.
func (s *story) comes(what string) {
	s.counts[what]++
	if s.is().State == holt.ComputerPaused {
		s.wakes()
		s.counts["woken"]++
		s.last, s.woke = s.now, s.now
	}
}

// stops ends one thing that goes on.
func (s *story) stops() {
	if len(s.runs) > 0 {
		s.ends(s.runs[0])
		s.runs = s.runs[1:]
	}
	for kind, all := range s.done {
		if len(all) > 0 {
			all[0]()
			s.done[kind] = all[1:]
			s.last, s.sure = s.now, s.now
		}
	}
	if len(s.holds) > 0 && s.rng.IntN(2) == 0 {
		err := s.Release(s.t.Context(), "einstein", s.holds[0].ID, "")
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			s.t.Error(err)
		}
		if err == nil && s.is().State == holt.ComputerRunning {
			s.last, s.sure = s.now, s.now
		}
		s.holds = s.holds[1:]
	}
}

// going is what uses the computer by the story: what must be named, and what may still be, since
// what works by itself is seen by what it did until now.
func (s *story) going() (must, may map[holt.UseKind]bool) {
	must, may = map[holt.UseKind]bool{}, map[holt.UseKind]bool{}
	if len(s.runs) > 0 {
		must[holt.UseRun] = true
	}
	for kind, all := range s.done {
		if len(all) > 0 {
			must[kind] = true
		}
	}
	for _, h := range s.holds {
		if h.ExpiresAt.After(s.now) {
			must[holt.UseHold] = true
		}
	}
	for what, until := range s.works {
		kind := holt.UseBackground
		switch what {
		case "cpu":
			kind = holt.UseCPU
		case "net":
			kind = holt.UseNetwork
		case s.terminal:
			kind = holt.UseTerminal
		}
		if !until.Before(s.now) && s.now.Sub(s.woke) > time.Minute { // what it does is the difference of two looks
			must[kind] = true
		} else if s.now.Sub(until) <= 2*time.Minute {
			may[kind] = true
		}
	}
	return must, may
}

// checks compares the computer with the story.
func (s *story) checks() {
	must, may := s.going()
	r, a := s.is(), s.awake()
	if r.State == holt.ComputerRunning && len(must)+len(may) > 0 {
		s.last = s.now
	}
	if r.State == holt.ComputerRunning && len(must) > 0 {
		s.sure = s.now
	}
	idle, most := s.now.Sub(latest(s.sure, s.woke)), s.now.Sub(s.last)
	const slack = 3 * time.Minute
	switch {
	case r.State == holt.ComputerPaused && len(must) > 0 && !(len(must) == 1 && must[holt.UseHold]):
		s.t.Errorf("paused while it is in use for %v", must)
	case r.State == holt.ComputerPaused && idle < 15*time.Minute:
		s.t.Errorf("paused after %v", idle)
	case r.State == holt.ComputerRunning && most > 15*time.Minute+slack:
		s.t.Errorf("not paused after %v: %+v", most, a)
	}
	if r.State == holt.ComputerPaused {
		if len(s.l.m.(*drowsy).done) == 0 && s.counts["seen"] != s.counts["woken"]+1 {
			s.counts["seen"]++
			s.counts["paused"]++
		}
		return
	}
	named := map[holt.UseKind]bool{}
	for _, u := range a.Uses {
		named[u.Kind] = true
		if !must[u.Kind] && !may[u.Kind] {
			s.t.Errorf("why-awake names %+v", u)
		}
	}
	for kind := range must {
		if !named[kind] {
			s.t.Errorf("why-awake does not name %s: %s", kind, fmt.Sprint(a.Uses))
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
