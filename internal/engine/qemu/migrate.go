package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// Names of QEMU's for what a migration is in.
const (
	statusActive        = "active"
	statusPreSwitchover = "pre-switchover" // the processors stand, and it waits to be told to go on
	statusCompleted     = "completed"
)

const (
	// migrationPoll is how often a migration is looked at, beside its events.
	migrationPoll = 20 * time.Millisecond
	// proceedPoll is how often a guest is looked at that is about to go on.
	proceedPoll = time.Millisecond
	// maxDowntime is the longest that QEMU takes for a guest's stand, ms.
	maxDowntime = 2_000_000
	// pipeSize is what is asked for, bytes; an unprivileged process gets no more.
	pipeSize = 1 << 20
)

// migration is what QEMU says about one. Source: MigrationInfo in
// qapi/migration.json of QEMU 7.2.
type migration struct {
	Status   string `json:"status"`
	Error    string `json:"error-desc"`
	Throttle int    `json:"cpu-throttle-percentage"`
	RAM      struct {
		Rounds int `json:"dirty-sync-count"`
	} `json:"ram"`
}

// stream is a migration into a pipe, and its splitter.
type stream struct {
	*guest
	out      *os.File // of the pipe
	splitter *splitter

	end   sync.Once
	done  chan struct{} // closed when the splitter has ended; guards what follows
	state int64         // bytes
	err   error
}

// openStream begins a migration that stops the processors when what is left can be
// copied within pause, and waits then.
//
// In software emulation QEMU (7.2 and others) forgets writes: a round that looks for
// changed pages makes them count as unchanged, while the emulated processors go on
// writing to those that they have at hand without telling. So there is one round
// only, which begins and ends with the processors at rest: as it begins they
// forget what they have at hand, and from then on the first write to each page is told.
func (g *guest) openStream(ctx context.Context, memory []*os.File, state *os.File, pause time.Duration) (*stream, error) {
	if err := g.capabilities(ctx, "events", "pause-before-switchover", "auto-converge"); err != nil {
		return nil, err
	}
	limit := max(pause.Milliseconds(), 1)
	if g.oneRound() {
		limit = 0 // not even what is left of the first round is looked at again
	}
	err := g.monitor.do(ctx, "migrate-set-parameters", map[string]any{
		"max-bandwidth": int64(1) << 40, "downtime-limit": limit,
		"cpu-throttle-initial": 40, "cpu-throttle-increment": 20, "max-cpu-throttle": 90,
	}, nil)
	if err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer in.Close() // QEMU's copy keeps it
	unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	s := &stream{guest: g, out: out, done: make(chan struct{}), splitter: newSplitter(out, int64(g.hardware.MemoryMB)*mib, memory[0])}
	for i, dimm := range g.hardware.Memory {
		s.splitter.also(blockOf(i+1), int64(dimm.SizeMB)*mib, memory[i+1])
	}
	go func() {
		s.state, s.err = s.splitter.split(state)
		close(s.done) // first: what QEMU says once its writes fail is not why they do
		s.shut()
	}()
	if err := s.begin(ctx, in); err != nil {
		in.Close()
		s.close()
		return nil, err
	}
	return s, nil
}

// oneRound says whether memory may be looked at only while the processors rest.
func (g *guest) oneRound() bool { return g.engine.verdict.Accel != machine.AccelKVM }

// begin lets QEMU write to the pipe.
func (s *stream) begin(ctx context.Context, pipe *os.File) error {
	if err := s.monitor.give(ctx, "migration", pipe); err != nil {
		return err
	}
	s.pauses.begin()
	if disk := s.Disk(); disk != "" { // QEMU does it when the processors stop; then less is left to do
		if err := machine.Sync(disk); err != nil {
			return fmt.Errorf("write out root disk: %w", err)
		}
	}
	if s.oneRound() {
		if err := s.monitor.do(ctx, "stop", nil, nil); err != nil {
			return err
		}
	}
	if err := s.monitor.do(ctx, "migrate", map[string]string{"uri": "fd:migration"}, nil); err != nil || !s.oneRound() {
		return err
	}
	copied := false // before it could run
	err := s.await(ctx, func(now migration) error { copied = now.Status == statusPreSwitchover; return nil }, statusActive, statusPreSwitchover)
	if err != nil || copied {
		return err
	}
	s.engine.step("let run")
	if err := s.monitor.do(ctx, "cont", nil, nil); err != nil {
		return s.standing(ctx, err)
	}
	return nil
}

// standing waits for the end of the round when QEMU has refused to let the processors run: from a little before it says so
// they stand until they are told to go on. What stands for another reason is copied, too.
func (s *stream) standing(ctx context.Context, refused error) error {
	if err := s.await(ctx, func(migration) error { return nil }, statusPreSwitchover); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// capabilities turns them on, whatever QEMU was told before.
func (g *guest) capabilities(ctx context.Context, names ...string) error {
	var all []map[string]any
	for _, name := range names {
		all = append(all, map[string]any{"capability": name, "state": true})
	}
	return g.monitor.do(ctx, "migrate-set-capabilities", map[string]any{"capabilities": all}, nil)
}

// await returns when the migration has one of the statuses. It calls each with what
// it saw, also the last.
func (s *stream) await(ctx context.Context, each func(migration) error, statuses ...string) error {
	tick := time.NewTicker(migrationPoll)
	defer tick.Stop()
	done := s.done
	for {
		var now migration
		if err := s.monitor.do(ctx, "query-migrate", nil, &now); err != nil {
			return err
		}
		if slices.Contains(statuses, now.Status) {
			return each(now)
		}
		switch now.Status {
		case "failed", "cancelled", statusCompleted:
			if err := s.broke(); err != nil {
				return err
			}
			return holt.Errorf(holt.Internal, "QEMU's migration %s: %s", now.Status, clip(now.Error))
		}
		if err := each(now); err != nil {
			return err
		}
		select {
		case <-s.moved:
		case <-tick.C:
		case <-done:
			if s.err != nil {
				return s.err
			}
			done = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// broke returns the error with which the splitter has ended, if it has.
func (s *stream) broke() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// finish waits for the end of the stream.
func (s *stream) finish(ctx context.Context) (state, data int64, err error) {
	select {
	case <-s.done:
		return s.state, s.splitter.data * pageSize, s.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// shut closes the pipe: what QEMU writes fails from then on.
func (s *stream) shut() { s.end.Do(func() { s.out.Close() }) }

// close ends the splitter and waits for it.
func (s *stream) close() {
	s.shut()
	<-s.done
}

// status is what QEMU says about the guest.
func (g *guest) status(ctx context.Context) (string, error) {
	var now struct {
		Status string `json:"status"`
	}
	err := g.monitor.do(ctx, "query-status", nil, &now)
	return now.Status, err
}

// settle ends a migration, if there is one, and lets the guest go on.
func (g *guest) settle(ctx context.Context) error {
	if err := g.monitor.do(ctx, "migrate_cancel", nil, nil); err != nil {
		return err
	}
	for {
		var now migration
		if err := g.monitor.do(ctx, "query-migrate", nil, &now); err != nil {
			return err
		}
		switch now.Status {
		case "", "none", "failed", "cancelled", statusCompleted:
			return g.proceed(ctx)
		}
		if err := wait(ctx, proceedPoll); err != nil {
			return err
		}
	}
}

// proceed lets the guest go on. A migration that has ended says so a little
// before it lets the guest be told to.
func (g *guest) proceed(ctx context.Context) error {
	for {
		status, err := g.status(ctx)
		if err != nil {
			return err
		}
		switch status {
		case "finish-migrate":
			err = wait(ctx, proceedPoll)
		case "postmigrate", "paused":
			err = g.monitor.do(ctx, "cont", nil, nil)
		default: // it runs, or stands for a reason of its own
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isOver says whether the machine has ended, which can be the reason for err: QEMU's
// monitor is closed a little before.
func (g *guest) isOver(err error) bool {
	if errors.Is(err, errMonitorClosed) {
		timer := time.NewTimer(g.engine.wait)
		defer timer.Stop()
		select {
		case <-g.Handle.Done():
		case <-timer.C:
		}
	}
	select {
	case <-g.Handle.Done():
		return true
	default:
		return false
	}
}

// pauses is how long the guest stood still, by QEMU's own clock.
type pauses struct {
	mu    sync.Mutex
	since time.Time // zero: it runs
	sum   time.Duration
}

// begin forgets what was before.
func (p *pauses) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.sum = time.Time{}, 0
}

// see takes the events STOP and RESUME.
func (p *pauses) see(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.name == "STOP" && p.since.IsZero():
		p.since = e.at
	case e.name == "RESUME" && !p.since.IsZero():
		p.sum += e.at.Sub(p.since)
		p.since = time.Time{}
	}
}

// total is how long the guest stood since begin, until now if it still does.
func (p *pauses) total() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return p.sum
	}
	return p.sum + time.Since(p.since)
}
