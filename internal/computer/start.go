package computer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Start boots a stopped computer or resumes a paused one (see [Memory.Resume]), and returns once
// its agent answers and its workspace is mounted; a running one is left as it is. It completes even
// when its caller leaves.
//
// Errors: NotFound, Conflict (it is being deleted; its workspace is mounted read-write on the
// host), TooMany (see [table.admit]), OutOfSpace, Unavailable; those of Resume.
func (s *Store) Start(ctx context.Context, ref, key string) (holt.Computer, error) {
	began := time.Now()
	was, _ := s.table.find(ctx, ref)
	c, err := s.verb(ctx, "computer.start", ref, key, s.start)
	if err == nil && (was.State == holt.ComputerStopped || was.State == holt.ComputerPaused) {
		s.waker.woken(ctx, c.ID, began, holt.Use{Kind: holt.UseCall, Detail: "start"})
	}
	return c, err
}

func (s *Store) start(ctx context.Context, ref string) (holt.Computer, error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	switch r.State {
	case holt.ComputerRunning:
		return s.alreadyRunning(r)
	case holt.ComputerPaused, holt.ComputerResuming:
		return s.pauser.resumeOrUndo(ctx, &r)
	case holt.ComputerStopped:
	default:
		return holt.Computer{}, wrongState(r)
	}
	err = s.bootLocked(ctx, &r)
	return s.shown(r), err
}

// bootLocked starts the machine of a stopped computer, whose lock is held.
func (s *Store) bootLocked(ctx context.Context, r *record) (err error) {
	engine := s.cfg.engine(*r)
	if err := present(engine); err != nil {
		return err
	}
	m := &transition{s: s, r: r}
	if m.img, err = s.cfg.pick(ctx, engine, r.imageRef()); err != nil {
		return err
	}
	if r.State = holt.ComputerStarting; r.Reason != rebootReason {
		r.Reason = ""
	}
	if err := s.idler.withRoom(ctx, func() error { return s.table.saveAdmitted(ctx, *r) }); err != nil {
		return err
	}
	if err := m.forward(ctx, "start", append(m.boot(), step{"settle", m.settle, nothing})); err != nil {
		m.stayStopped(ctx, err)
		return err
	}
	s.log.InfoContext(ctx, "computer started", "computer", r.ID, "name", r.Name, "boot_ms", r.BootMS)
	return nil
}

// alreadyRunning is the answer of a start or resume of a running computer.
func (s *Store) alreadyRunning(r record) (holt.Computer, error) {
	if s.machines.live(r.ID) == nil {
		return holt.Computer{}, unreachable(r)
	}
	return s.shown(r), nil
}

// stayStopped records a failed start.
func (m *transition) stayStopped(ctx context.Context, err error) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	m.r.State, m.r.Reason = holt.ComputerStopped, "the last start failed: "+err.Error()
	if err := m.s.table.save(late, *m.r); err != nil {
		m.s.log.ErrorContext(ctx, "record failed start", "computer", m.r.ID, "err", err)
	}
}

// wrongState is the error of a call that the state of the computer does not allow.
func wrongState(r record) error {
	e := holt.Errorf(holt.Conflict, "%s is %s", r.Name, r.State)
	switch r.State {
	case holt.ComputerFailed:
		return e.WithHint("its creation or deletion failed (%s): remove the rest with holt computer delete", r.Reason)
	case holt.ComputerStopped:
		return e.WithHint("start it with holt computer start")
	case holt.ComputerPaused:
		return e.WithHint("resume it with holt computer resume")
	case holt.ComputerRunning:
		return e
	default:
		return e.WithHint("try again when that has ended")
	}
}

// unreachable is the error of a running machine that could not be adopted.
func unreachable(r record) error {
	return holt.Errorf(holt.Unavailable, "the machine of %s cannot be reached: %s", r.Name, r.Reason).
		WithHint("end it with holt computer stop, then boot it with holt computer start")
}

// unfinished is the error of a computer with a failed call that could not be undone.
func unfinished(r record) error {
	return holt.Errorf(holt.Unavailable, "%s is still %s, and no call is at work on it: %s", r.Name, r.State, cmp.Or(r.Reason, "the last call could neither be finished nor undone")).
		WithHint("fix the cause, then restart the daemon, which finishes or undoes it")
}

// newLive is a machine that is about to run on an open workspace.
func newLive(s *Store, r record, ws *workspace.Workspace, release func()) *live {
	engine := s.cfg.engine(r)
	l := &live{
		id: r.ID, engine: engine, ws: ws, release: release, log: s.log, observe: s.cfg.Observe, serve: s.cfg.Serve, limits: s.cfg.limits(engine), keep: s.cfg.Keep,
		hostname: r.Name, guest: guestBooted, stood: newNotification(), up: make(chan struct{}), runs: newRunSet(),
	}
	l.runTracker, l.terminals = &runTracker{l, s.runRows, s.outputs}, newTerminalSet(l, s.terminalRows)
	l.busy, l.look = newBusy(s.uses.now, l), newNotification()
	l.explain = func(o *holt.OutOfMemory) { s.explain(o, r.ID) }
	l.proxy = func(ctx context.Context) (*agent.Proxy, error) { return s.cfg.proxyOf(ctx, engine, r.ID, r.Name) }
	l.greeted = func(ctx context.Context, is agent.Identified) error {
		return write(ctx, s.cfg.DB, func(tx *db.Tx) error {
			if err := s.table.identify(tx, r.ID, is, s.log); err != nil {
				return err
			}
			return s.table.greet(tx, r.ID, false)
		})
	}
	return l
}

// awaitAgent connects to the guest and waits until its agent answers, it has its identity, and the
// workspace is mounted.
func (m *transition) awaitAgent(ctx context.Context) error {
	l, limit := m.live, m.limit()
	m.identify()
	l.connect(m.s.shutdown.ctx)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := l.await(bounded, limit); err != nil {
		if m.kept != "" && ctx.Err() == nil {
			return m.again(ctx, err)
		}
		return m.explain(ctx, err)
	}
	m.s.uses.used(m.r.ID, holt.Use{Kind: holt.UseStart})
	m.s.machines.put(m.r.ID, l)
	m.s.supervise(l)
	return nil
}

// again boots a computer whose guest could not be resumed from the template's snapshot.
func (m *transition) again(ctx context.Context, why error) error {
	if err := m.back(ctx, "undo-kept", m.boot()); err != nil {
		return err
	}
	if err := m.bootInstead(ctx, why); err != nil {
		return err
	}
	return m.forward(ctx, "boot", m.boot())
}

// limit is how long the guest may take to answer.
func (m *transition) limit() time.Duration {
	if m.restored() {
		return m.live.limits.Resume
	}
	return m.live.limits.Boot
}

// identify sets which identity the guest is given.
func (m *transition) identify() {
	switch {
	case m.restored() && m.repeats:
		m.live.guest = guestResumedAgain
	case m.restored():
		m.live.guest = guestResumed
	}
	if m.source != "" || m.kept != "" {
		m.live.machineID = newMachineID()
	} else { // systemd draws an id at the first boot
		m.live.newKeys = m.r.State == holt.ComputerCreating && m.r.disk != ""
	}
	if m.kept != "" {
		m.live.diskSizeMB = m.r.DiskSizeMB
	}
}

// attach connects to a resumed guest, whether it answers or not.
func (m *transition) attach() {
	m.identify()
	m.live.connect(m.s.shutdown.ctx)
	m.s.uses.used(m.r.ID, holt.Use{Kind: holt.UseStart})
	m.s.machines.put(m.r.ID, m.live)
	m.s.supervise(m.live)
}

// await returns when the agent answers and the workspace is mounted.
func (l *live) await(ctx context.Context, limit time.Duration) error {
	for try := 0; ; try++ {
		client, err := l.agent(ctx, limit)
		if err != nil {
			return err
		}
		h, err := client.Hello(ctx)
		switch {
		case err == nil && h.Workspace == agent.Served:
			l.awaitNetwork(ctx)
			return nil
		case ctx.Err() != nil && err == nil:
			return notAnswering(fmt.Errorf("the workspace is %v", h.Workspace))
		case ctx.Err() != nil:
			return notAnswering(err)
		case l.ctx.Err() != nil:
			return ending()
		}
		backoff(ctx, min(try, 2))
	}
}

// explain adds the end of the console to the error of a failed boot: the log is removed when a
// create is undone.
func (m *transition) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	tail, _ := tailOf(m.live.m.Console(), 4<<10)
	m.s.log.ErrorContext(ctx, "guest did not start", "computer", m.r.ID, "err", err, "console", string(tail))
	e := holt.Errorf(holt.Unavailable, "%s did not start: %w", m.r.Name, err)
	if m.live.refused() != nil {
		e = e.WithHint("a guest program prevents this: fix it in the parent, or stop and start the parent")
	} else {
		e = e.WithHint("the guest did not answer within %s, and the host may be overloaded; the daemon's log has the end of the console", holt.ShortDuration(m.limit()))
	}
	e.Detail = map[string]string{"console": string(tail)}
	return e
}

// tailOf returns the last n bytes of a file, from the start of a line.
func tailOf(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	skip := max(0, fi.Size()-n)
	b, err := io.ReadAll(io.NewSectionReader(f, skip, n))
	if skip > 0 {
		b = wholeLines(b)
	}
	return b, err
}
