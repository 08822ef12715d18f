package computer

import (
	"context"
	"sync"
	"time"

	"holt"
	"holt/internal/store/db"
)

// pauser pauses and resumes computers.
type pauser struct {
	*Store
	stuck sync.Map // of holt.ComputerID to *transition: resumes that could not be undone
}

// Pause saves the memory and both disks of a running computer, and ends its machine. It is resumed
// with Resume, or when somebody uses it. A paused computer is left as it is. Pause completes even
// when its caller leaves.
//
// Errors: NotFound, Conflict (it is not running), Unsupported (by the engine), OutOfSpace,
// Unavailable; then it keeps running.
func (m *Memory) Pause(ctx context.Context, ref, key string) (holt.Computer, error) {
	by := m.s.by(ctx)
	return m.s.verb(ctx, "computer.pause", ref, key, func(ctx context.Context, ref string) (holt.Computer, error) {
		return m.s.pauser.pause(ctx, ref, by)
	})
}

// Resume resumes a paused computer; a running one is left as it is. It returns once the agent
// answers and the clock is set. It completes even when its caller leaves.
//
// Errors: NotFound, Conflict (it is neither paused nor running; its workspace is mounted read-write
// on the host), Unsupported (this host cannot run its memory), TooMany (see [table.admit]),
// OutOfSpace, Unavailable. Then it stays paused, unless its machine runs and only the guest does
// not answer.
func (m *Memory) Resume(ctx context.Context, ref, key string) (holt.Computer, error) {
	began := time.Now()
	was, _ := m.s.table.find(ctx, ref)
	c, err := m.s.verb(ctx, "computer.resume", ref, key, m.s.pauser.resume)
	if err == nil && was.State == holt.ComputerPaused {
		m.s.waker.woken(ctx, c.ID, began, holt.Use{Kind: holt.UseCall, Detail: "resume"})
	}
	return c, err
}

func (s *pauser) pause(ctx context.Context, ref, by string) (holt.Computer, error) {
	if r, err := s.table.find(ctx, ref); err == nil && r.State == holt.ComputerPaused {
		return s.shown(r), nil
	}
	r, l, unlock, err := s.snapshotter.holdRunning(ctx, ref)
	if err != nil {
		if r.State == holt.ComputerPaused { // meanwhile
			return s.shown(r), nil
		}
		return holt.Computer{}, err
	}
	defer unlock()
	return s.pauseLocked(ctx, &r, l, by)
}

// pauseLocked pauses a running computer and records by whom.
func (s *pauser) pauseLocked(ctx context.Context, r *record, l *live, by string) (holt.Computer, error) {
	if err := s.idler.rows.pausing(ctx, r.ID, by); err != nil {
		return holt.Computer{}, err
	}
	r.PausedBy = by
	if _, err := s.hibernate(ctx, r, l, snapshotRequest{verb: "pause", kind: holt.SnapshotOfPause, end: true, durable: true}); err != nil {
		return holt.Computer{}, err
	}
	return s.shown(*r), nil
}

// hibernate takes a snapshot of a running computer, whose lock is held, and ends its machine. If it
// fails the computer keeps running.
func (s *pauser) hibernate(ctx context.Context, r *record, l *live, e snapshotRequest) (snapshot, error) {
	rested, _ := s.uses.rest(r.ID, false)
	defer rested()
	s.budgets.last(ctx, r.ID)
	l.handOver(ctx)
	r.State, r.Reason = holt.ComputerPausing, ""
	if err := s.table.save(ctx, *r); err != nil {
		r.State = holt.ComputerRunning
		return snapshot{}, err
	}
	m, err := s.snapshotter.take(ctx, r, l, e)
	if r.State == holt.ComputerPaused { // as far as that goes the error does not matter
		s.leave(*r, l)
		s.log.InfoContext(ctx, "computer paused", "computer", r.ID, "name", r.Name, "snapshot", r.snapshot)
		return m, nil
	}
	if ctx.Err() != nil {
		return m, ending() // the next daemon continues
	}
	r.State = holt.ComputerRunning
	if lost := s.table.save(ctx, *r); lost != nil {
		s.log.ErrorContext(ctx, "record failed pause", "computer", r.ID, "err", lost)
	}
	if ended(l.m) { // watch has waited for the lock
		s.log.ErrorContext(ctx, "machine ended during pause", "computer", r.ID, "err", err)
	}
	return m, err
}

// leave releases the machine of a computer that is now paused. Its guest's mount of the workspace
// stays, since it is resumed with the guest.
func (s *pauser) leave(r record, l *live) {
	s.machines.put(r.ID, nil)
	l.close()
	if err := l.m.Kill(); err != nil { // it has ended, unless its memory was kept by a daemon before this one
		s.log.Error("end paused machine", "computer", r.ID, "err", err)
	}
	l.m.Release()
	if err := l.unplug(true); err != nil {
		s.log.Error("end network of paused machine", "computer", r.ID, "err", err)
	}
	if err := l.ws.Tree().Sync(); err != nil {
		s.log.Warn("sync workspace", "computer", r.ID, "workspace", r.workspaceID, "err", err)
	}
	l.release()
}

func (s *pauser) resume(ctx context.Context, ref string) (holt.Computer, error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	switch r.State {
	case holt.ComputerRunning:
		return s.alreadyRunning(r)
	case holt.ComputerPaused, holt.ComputerResuming:
		return s.resumeOrUndo(ctx, &r)
	}
	return holt.Computer{}, wrongState(r)
}

// resumeOrUndo resumes a computer, whose lock is held, that is paused or whose last resume could
// not be undone.
func (s *pauser) resumeOrUndo(ctx context.Context, r *record) (holt.Computer, error) {
	if r.State == holt.ComputerResuming {
		if err := s.undoStuck(ctx, r); err != nil {
			return holt.Computer{}, err
		}
	}
	return s.resumeLocked(ctx, r)
}

// undoStuck undoes a resume that could neither finish nor be undone, for instance because the
// host's disk was full. One that a daemon before this one began is settled at the next start.
func (s *pauser) undoStuck(ctx context.Context, r *record) error {
	v, ok := s.stuck.Load(r.ID)
	if !ok {
		return unfinished(*r)
	}
	m := v.(*transition)
	m.r = r // it may have been renamed since
	if err := m.back(ctx, "undo-resume", m.resume()); err != nil {
		return err
	}
	s.stuck.Delete(r.ID)
	return nil
}

// keepStuck keeps a resume that could not be undone for [pauser.undoStuck].
func (m *transition) keepStuck() {
	if m.stuck != nil {
		m.s.pauser.stuck.Store(m.r.ID, m)
	}
}

// resumeLocked resumes a paused computer, whose lock is held.
func (s *pauser) resumeLocked(ctx context.Context, r *record) (holt.Computer, error) {
	from, err := s.snapshots.get(ctx, r.snapshot)
	if err != nil {
		return holt.Computer{}, err
	}
	m := &transition{s: s.Store, r: r, from: &from, before: r.disk}
	if err := m.forward(ctx, "resume", m.resume()); err != nil {
		m.keepStuck()
		return holt.Computer{}, err
	}
	return m.resumed(ctx)
}

// resume are the steps that resume a paused computer.
func (m *transition) resume() []step {
	return []step{
		{"row", m.claimResume, m.stayPaused},
		{"disk", m.makeOverlay, nothing},
		{"open", m.openWorkspace, m.closeWorkspace},
		{"machine", m.startMachine, m.killMachine},
		{"run", m.goesOn, m.disconnect},
	}
}

// claimResume records the resume and a new disk for it: a failed try may have written to its disk.
func (m *transition) claimResume(ctx context.Context) error {
	m.r.State, m.r.Reason = holt.ComputerResuming, ""
	if m.from.disk != "" {
		m.from.next = holt.NewDiskID()
	}
	err := m.s.idler.withRoom(ctx, func() error { return m.writeResume(ctx) })
	m.before, m.r.disk = m.r.disk, m.from.next
	return err
}

func (m *transition) writeResume(ctx context.Context) error {
	return writeSync(ctx, m.s.cfg.DB, func(tx *db.Tx) error {
		if err := m.s.table.admit(tx, *m.r); err != nil {
			return err
		}
		if m.from.next != "" {
			if err := m.s.disks.insert(tx, m.from.next, m.from.disk, m.r); err != nil {
				return err
			}
		}
		if err := m.s.snapshots.setNext(tx, *m.from); err != nil {
			return err
		}
		return m.s.table.update(tx, *m.r)
	})
}

// stayPaused undoes claimResume.
func (m *transition) stayPaused(ctx context.Context) error {
	m.r.State, m.r.Reason, m.r.disk, m.r.Snapshot = holt.ComputerPaused, "", m.before, m.from.ID
	return m.endResume(ctx)
}

// endResume records the result of a resume.
func (m *transition) endResume(ctx context.Context) error {
	m.from.next = ""
	err := writeSync(ctx, m.s.cfg.DB, func(tx *db.Tx) error {
		if err := m.s.snapshots.setNext(tx, *m.from); err != nil {
			return err
		}
		if err := m.s.table.greet(tx, m.r.ID, m.r.State == holt.ComputerRunning); err != nil {
			return err
		}
		return m.s.table.update(tx, *m.r)
	})
	if err != nil {
		return err
	}
	if _, err := m.s.disks.collect(ctx); err != nil { // it has happened; a later one removes them
		m.s.log.WarnContext(ctx, "remove unused root disks", "computer", m.r.ID, "err", err)
	}
	return nil
}

// goesOn records that the guest's processors run. From here on there is no way back: the workspace
// changes with the guest.
func (m *transition) goesOn(ctx context.Context) error {
	now := time.Now().UTC()
	m.r.State, m.r.StartedAt, m.r.Snapshot = holt.ComputerRunning, &now, ""
	if err := m.endResume(ctx); err != nil {
		return err
	}
	m.attach()
	return nil
}

// settleResume finishes the resume of a daemon that crashed if the machine runs, and undoes it
// otherwise.
func (s *pauser) settleResume(ctx context.Context, r *record, runs bool) error {
	from, err := s.snapshots.get(ctx, r.snapshot)
	if err != nil {
		return err
	}
	m := &transition{s: s.Store, r: r, from: &from, before: r.disk}
	if !runs {
		return m.stayPaused(ctx)
	}
	now := time.Now().UTC()
	r.disk, r.State, r.StartedAt = from.next, holt.ComputerRunning, &now
	return m.endResume(ctx)
}

// resumed waits for the guest of a resumed machine.
func (m *transition) resumed(ctx context.Context) (holt.Computer, error) {
	bounded, cancel := context.WithTimeout(ctx, m.live.limits.Resume)
	defer cancel()
	if err := m.live.await(bounded, m.live.limits.Resume); err != nil {
		return holt.Computer{}, m.explain(ctx, err)
	}
	m.r.BootMS = time.Since(m.live.launched).Milliseconds()
	m.s.resizer.settleShape(ctx, m.r, m.live)
	if err := m.s.table.save(ctx, *m.r); err != nil {
		return holt.Computer{}, err
	}
	m.s.log.InfoContext(ctx, "computer resumed", "computer", m.r.ID, "name", m.r.Name, "ms", m.r.BootMS)
	m.s.snapshotter.prune(ctx, m.r.ID, "")
	return m.s.shown(*m.r), nil
}
