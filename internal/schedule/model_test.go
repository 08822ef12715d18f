package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"holt"
	"holt/internal/store/db"
)

// TestModel has many schedules of several computers over days. The daemon is killed at any step or ended at any time, the
// host is suspended, its clock is set, and computers are paused during runs. Each due time runs once, or is skipped or
// missed by the schedule's policy, and no computer is left awake.
// HOLT_SOAK=1 makes it 4 days for each of 3 seeds; HOLT_SEED names one.
func TestModel(t *testing.T) {
	seeds, days := 1, 2
	if os.Getenv("HOLT_SOAK") != "" {
		seeds, days = 3, 4
	}
	first, err := strconv.ParseUint(os.Getenv("HOLT_SEED"), 10, 64)
	if err != nil {
		first = rand.Uint64N(1 << 40)
	}
	for i := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			synctest.Test(t, func(t *testing.T) { newModel(t, first+i).live(days) })
		})
	}
}

// model is a world with the expected schedules and firings.
type model struct {
	*world
	rng    *rand.Rand
	all    map[string]holt.Schedule // by name
	tables map[string]*Timetable
	seen   map[string]map[int64]firing // by name and seq: the latest state of each
	gaps   [][2]time.Time              // of the wall clock, without a daemon that reads it
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{world: newWorld(t, "einstein", "bohr", "curie"), rng: rand.New(rand.NewPCG(seed, 5)), all: map[string]holt.Schedule{}, tables: map[string]*Timetable{}, seen: map[string]map[int64]firing{}}
	time.Sleep(time.Duration(m.rng.IntN(365*24)) * time.Hour) // into any season
	m.open()
	crons := []string{"*/7 * * * *", "*/30 * * * *", "@hourly", "15 */2 * * *", "30 2 * * *", "0 3,4,5 * * *", "@daily", "5 1-23/3 * * 1-6", "0 0 1,15 * MON"}
	for i := range 16 {
		name, cron := fmt.Sprint("s-", i), crons[m.rng.IntN(len(crons))]
		zone := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}[m.rng.IntN(4)]
		takes := time.Duration(1+m.rng.IntN([]int{30, 300, 1500}[m.rng.IntN(3)])) * time.Second
		m.all[name] = m.add([]string{"einstein", "bohr", "curie"}[i%3], name, cron, takes.String(), func(s *holt.ScheduleSpec) {
			s.TimeZone = zone
			s.Missed = []holt.MissedPolicy{holt.MissedSkip, holt.MissedOnce, holt.MissedAll}[m.rng.IntN(3)]
			s.Overlap = []holt.OverlapPolicy{holt.OverlapSkip, holt.OverlapQueue, holt.OverlapReplace}[m.rng.IntN(3)]
		})
		table, err := Parse(cron, zone)
		m.ok(err)
		m.tables[name], m.seen[name] = table, map[int64]firing{}
	}
	return m
}

// live lets some days pass and records the firings.
func (m *model) live(days int) {
	for end := time.Now().Add(time.Duration(days) * 24 * time.Hour); time.Now().Before(end); m.look() {
		switch m.rng.IntN(7) {
		case 0:
			m.killed()
		case 1: // the daemon ends
			time.Sleep(m.some(3 * time.Hour))
			m.ok(m.s.Close())
			m.away(m.some([]time.Duration{time.Minute, 10 * time.Hour}[m.rng.IntN(2)]))
		case 2: // the host is suspended
			time.Sleep(m.some(time.Hour))
			now := m.now()
			m.jump(m.some(8 * time.Hour))
			m.gaps = append(m.gaps, [2]time.Time{now, m.now().Add(clockEvery)})
		case 3: // the clock is set back
			m.jump(-m.some(20 * time.Minute))
			time.Sleep(m.some(time.Hour))
		case 4: // a computer is paused, perhaps during a run
			time.Sleep(m.some(time.Hour))
			m.freezes([]string{"einstein", "bohr", "curie"}[m.rng.IntN(3)])
		default:
			time.Sleep(m.some(4 * time.Hour))
		}
	}
	for name := range m.all { // queued firings come to their end
		_, err := m.s.Update(m.t.Context(), name, holt.ScheduleChange{Enabled: new(bool)}, "")
		m.ok(err)
	}
	for _, c := range m.computers { // no further due time wakes a paused computer
		if m.freezes(c.Name) {
			m.ok(m.Wake(m.t.Context(), c.ID))
		}
	}
	for waits := true; waits; {
		time.Sleep(time.Hour)
		m.look()
		waits = false
		for _, all := range m.seen {
			for _, f := range all {
				waits = waits || f.State.Running()
			}
		}
	}
	time.Sleep(time.Minute)
	m.look()
	m.ok(m.s.Close())
	for name := range m.all {
		m.covers(name)
	}
	m.runsOnce()
}

func (m *model) some(most time.Duration) time.Duration {
	return time.Duration(m.rng.Int64N(int64(most)))
}

// killed kills the daemon at a step.
func (m *model) killed() {
	at, after := []string{"schedule/fired", "schedule/prepared", "schedule/started", "schedule/ended"}[m.rng.IntN(4)], m.rng.IntN(4)
	m.fatal(func(point string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if point == at {
			after--
		}
		return after < 0
	})
	select {
	case <-m.dead:
	case <-time.After(6 * time.Hour):
	}
	m.ok(m.s.Close())
	m.fatal(nil)
	m.away(m.some([]time.Duration{time.Minute, 10 * time.Hour}[m.rng.IntN(2)]))
}

// away runs no daemon for some time, in which machines may end.
func (m *model) away(d time.Duration) {
	now := m.now()
	time.Sleep(d)
	m.look()
	m.open()
	m.gaps = append(m.gaps, [2]time.Time{now.Add(-clockEvery), m.now()})
}

// look records the firings, since the store prunes old ones.
func (m *model) look() {
	names := map[holt.ScheduleID]string{}
	for name, s := range m.all {
		names[s.ID] = name
	}
	m.ok(m.d.Read(m.t.Context(), func(tx *db.Tx) error {
		all, err := firings(tx, `ORDER BY seq`)
		for _, f := range all {
			m.seen[names[f.Schedule]][f.seq] = f
		}
		return err
	}))
}

// covers checks that each due time of a schedule has exactly one firing, which the policy allows.
func (m *model) covers(name string) {
	s, table := m.all[name], m.tables[name]
	became := map[int64]firing{}
	for _, f := range m.seen[name] {
		if f.State.Running() {
			m.t.Errorf("%s: the firing of %v is %s at the end", name, f.Due, f.State)
		}
		until, count := f.Due, 0
		if f.Until != nil {
			until = *f.Until
		}
		table.Between(f.Due.Add(-1), until, func(due time.Time) bool {
			if before, twice := became[due.UnixNano()]; twice {
				m.t.Errorf("%s: %v is %s and %s", name, due, before.State, f.State)
			}
			became[due.UnixNano()] = f
			count++
			return true
		})
		if count != f.Count {
			m.t.Errorf("%s: %s of %v to %v counts %d, want %d", name, f.State, f.Due, until, count, f.Count)
		}
		m.may(s, f, until)
	}
	var after time.Time
	m.ok(m.d.Read(m.t.Context(), func(tx *db.Tx) error {
		r, _, err := byID(tx, s.ID)
		after = r.after
		return err
	}))
	due := 0
	table.Between(s.CreatedAt, after, func(at time.Time) bool {
		if _, ok := became[at.UnixNano()]; !ok {
			m.t.Errorf("%s: no firing of %v", name, at)
		}
		due++
		return true
	})
	if due != len(became) {
		m.t.Errorf("%s: %d due times, %d with a firing", name, due, len(became))
	}
}

// may checks that the policy allows the state of a firing.
func (m *model) may(s holt.Schedule, f firing, until time.Time) {
	in := func(t time.Time) bool {
		return slices.ContainsFunc(m.gaps, func(g [2]time.Time) bool { return !t.Before(g[0]) && !t.After(g[1]) })
	}
	slept := func(g [2]time.Time) bool { // while the run was being started
		return !g[0].Before(f.Due) && g[0].Sub(f.Due) <= grace && !f.StartedAt.After(g[1])
	}
	switch {
	case f.State == holt.FiringMissed && f.Run != "": // the daemon ended before the start, which can be long after the due time if the firing was queued
		if !in(*f.EndedAt) {
			m.t.Errorf("%s: %v is missed at %v, although the daemon ran", s.Name, f.Due, f.EndedAt)
		}
	case f.State == holt.FiringMissed && (!in(f.Due) || !in(until)):
		m.t.Errorf("%s: %v to %v are missed, although the daemon ran", s.Name, f.Due, until)
	case f.State == holt.FiringMissed && s.Missed == holt.MissedAll && f.Count == 0:
		m.t.Errorf("%s: a firing is missed without due times", s.Name)
	case f.State == holt.FiringSkipped && f.Reason == "":
		m.t.Errorf("%s: %v is skipped without a reason", s.Name, f.Due)
	case f.State == holt.FiringExited && s.Missed == holt.MissedSkip && s.Overlap == holt.OverlapSkip && f.StartedAt.Sub(f.Due) > grace+time.Minute && !slices.ContainsFunc(m.gaps, slept):
		m.t.Errorf("%s: %v ran too late, at %v", s.Name, f.Due, f.StartedAt)
	case f.State == holt.FiringFailed || f.State == holt.FiringLost:
		m.t.Errorf("%s: %v is %s: %s", s.Name, f.Due, f.State, f.Reason)
	}
}

// runsOnce checks that each run belongs to one firing, that runs of a schedule did not overlap, and
// that all computers are paused.
func (m *model) runsOnce() {
	of := map[holt.RunID]int{}
	total := map[holt.FiringState]int{}
	for _, all := range m.seen {
		for _, f := range all {
			if f.State == holt.FiringExited {
				of[f.Run]++
			}
			total[f.State] += f.Count
		}
	}
	last := map[string]time.Time{}
	for _, id := range m.order {
		run := m.runs[id]
		if of[id] != 1 {
			m.t.Errorf("run %s of %s belongs to %d firings", id, run.Schedule, of[id])
		}
		if run.began.Before(last[run.Schedule]) {
			m.t.Errorf("run %s of %s began before the last one ended", id, run.Schedule)
		}
		last[run.Schedule] = run.ends
	}
	if len(of) != len(m.order) {
		m.t.Errorf("%d firings have run, there are %d runs", len(of), len(m.order))
	}
	for _, c := range m.computers {
		if c.State != holt.ComputerPaused {
			m.t.Errorf("%s is %s", c.Name, c.State)
		}
	}
	m.t.Logf("counts: due times: %v", total)
}
