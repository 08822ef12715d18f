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

// QEMU's names of migration states.
const (
	statusActive        = "active"
	statusPreSwitchover = "pre-switchover" // the processors are stopped, and it waits for migrate-continue
	statusCompleted     = "completed"
)

const (
	// migrationPoll is how often a migration is polled, in addition to its events.
	migrationPoll = 20 * time.Millisecond
	// proceedPoll is how often a guest is polled that is about to continue.
	proceedPoll = time.Millisecond
	// maxDowntime is the longest downtime that QEMU accepts, ms.
	maxDowntime = 2_000_000
	// pipeSize is the requested size of a pipe, bytes; it is the maximum for an
	// unprivileged process.
	pipeSize = 1 << 20
)

// migration is QEMU's status of a migration. Source: MigrationInfo in
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
	out      *os.File // read end of the pipe
	splitter *splitter

	end   sync.Once
	done  chan struct{} // closed when the splitter has ended; guards the fields below
	state int64         // bytes
	err   error
}

// openStream begins a migration. It stops the processors when the remaining memory
// can be copied within pause, and then waits.
//
// In software emulation QEMU (7.2 and others) loses writes: the scan for changed
// pages marks them unchanged, while the emulated processors continue to write
// through cached TLB entries without setting the mark. So there is only one round,
// with the processors stopped at its beginning and end: stopping flushes the TLB,
// after which the first write to each page sets the mark.
func (g *guest) openStream(ctx context.Context, memory []*os.File, state *os.File, pause time.Duration) (*stream, error) {
	if err := g.capabilities(ctx, "events", "pause-before-switchover", "auto-converge"); err != nil {
		return nil, err
	}
	limit := max(pause.Milliseconds(), 1)
	if g.oneRound() {
		limit = 0 // do not scan again, even for the rest of the first round
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
	defer in.Close() // QEMU has a copy
	unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, pipeSize)
	s := &stream{guest: g, out: out, done: make(chan struct{}), splitter: newSplitter(out, int64(g.hardware.MemoryMB)*mib, memory[0])}
	for i, dimm := range g.hardware.Memory {
		s.splitter.also(blockOf(i+1), int64(dimm.SizeMB)*mib, memory[i+1])
	}
	go func() {
		s.state, s.err = s.splitter.split(state)
		close(s.done) // first: QEMU's error after failed writes is not the cause
		s.shut()
	}()
	if err := s.begin(ctx, in); err != nil {
		in.Close()
		s.close()
		return nil, err
	}
	return s, nil
}

// oneRound reports whether memory may be scanned only while the processors are stopped.
func (g *guest) oneRound() bool { return g.engine.verdict.Accel != machine.AccelKVM }

// begin passes the pipe to QEMU and starts the migration.
func (s *stream) begin(ctx context.Context, pipe *os.File) error {
	if err := s.monitor.give(ctx, "migration", pipe); err != nil {
		return err
	}
	s.pauses.begin()
	if disk := s.Disk(); disk != "" { // QEMU does it again when the processors are stopped; then less is left
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
	copied := false // before the guest could run
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

// standing waits for the end of the round when QEMU has refused to continue the
// processors: shortly before the end they are stopped until migrate-continue. A
// guest that is stopped for another reason is copied too.
func (s *stream) standing(ctx context.Context, refused error) error {
	if err := s.await(ctx, func(migration) error { return nil }, statusPreSwitchover); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// capabilities enables migration capabilities, whatever was set before.
func (g *guest) capabilities(ctx context.Context, names ...string) error {
	var all []map[string]any
	for _, name := range names {
		all = append(all, map[string]any{"capability": name, "state": true})
	}
	return g.monitor.do(ctx, "migrate-set-capabilities", map[string]any{"capabilities": all}, nil)
}

// await returns when the migration has one of the statuses. It calls each with
// every status, including the last.
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

// broke returns the error of the splitter, if it has ended with one.
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

// shut closes the pipe: further writes of QEMU fail.
func (s *stream) shut() { s.end.Do(func() { s.out.Close() }) }

// close ends the splitter and waits for it.
func (s *stream) close() {
	s.shut()
	<-s.done
}

// status returns QEMU's status of the guest.
func (g *guest) status(ctx context.Context) (string, error) {
	var now struct {
		Status string `json:"status"`
	}
	err := g.monitor.do(ctx, "query-status", nil, &now)
	return now.Status, err
}

// settle cancels a migration, if there is one, and continues the guest.
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

// proceed continues the guest. QEMU reports the end of a migration slightly
// before it accepts that command.
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
		default: // it runs, or is stopped for another reason
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

// isOver reports whether the machine has ended, which may be the cause of err:
// QEMU closes its monitor slightly earlier.
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

// pauses measures how long the guest was stopped, by QEMU's clock.
type pauses struct {
	mu    sync.Mutex
	since time.Time // zero: running
	sum   time.Duration
}

// begin resets the measurement.
func (p *pauses) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.sum = time.Time{}, 0
}

// see handles the events STOP and RESUME.
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

// total returns how long the guest was stopped since begin, including a stop that has not ended.
func (p *pauses) total() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return p.sum
	}
	return p.sum + time.Since(p.since)
}
