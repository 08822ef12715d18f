package computer

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/store/db"
)

const (
	mib = 1 << 20
	// reservedMB is the least of its memory that the host keeps for itself when a machine begins, and reservedPart
	// the part of all of it that it keeps. Background work, for instance a job, leaves waitingPart:
	// so that a computer can still be woken.
	reservedMB   = 256
	reservedPart = 20
	waitingPart  = 4
	// roomWait is how long a verb waits for the memory of computers that are about to rest.
	roomWait = 20 * time.Second
	// roomIdle is for how long nothing has used a computer that is paused to make room, whatever its idle timeout.
	roomIdle = 30 * time.Second
)

// pausedByMemory is who pauses an idle computer to free its memory.
const pausedByMemory = "memory"

// room tells whether the host has memory for another machine. A machine takes the memory it was
// promised over time, so the promises count: if all machines take all of theirs, a reserve is still
// left. See docs/design/budget.md.
type room struct {
	host     func() (total, available int64)     // bytes; nil: machines take no memory that could be counted
	times    float64                             // how many times what is available may be promised
	overhead func(engine string) int64           // of a machine in addition to its guest's memory, bytes
	has      func(id holt.ComputerID) (of int64) // what a computer's machine has taken by now, bytes

	mu     sync.Mutex
	others map[*int64]bool // promised to machines that are no computer's, bytes
}

func newRoom(s *registry) *room {
	o := &room{host: s.cfg.HostMemory, times: cmp.Or(s.cfg.Overcommit, 1), others: map[*int64]bool{}}
	o.overhead = func(engine string) int64 { return int64(s.cfg.Engines.Of(engine).Capabilities().OverheadMB) * mib }
	if o.host == nil && o.overhead("") > 0 {
		o.host = machine.HostMemory
	}
	o.has = func(id holt.ComputerID) int64 {
		if l := s.machines.live(id); l != nil && l.m != nil {
			return machine.OwnMemory(l.m.PID())
		}
		return 0
	}
	return o
}

// left is the memory that can still be promised, not counting one computer: what is available, less
// what is promised and not taken yet, less the reserve.
func (o *room) left(tx *db.Tx, but holt.ComputerID, waits bool) (left, total int64, err error) {
	total, left = o.host()
	left = int64(float64(left-o.kept(total, waits)) * o.times)
	err = tx.Query(`SELECT id, max(memory_mb, wish_memory_mb), engine FROM computer WHERE id <> ? AND `+runsNow, []any{but}, func(row *db.Row) error {
		left -= max(0, row.Int64(1)*mib+o.overhead(row.Text(2))-o.has(holt.ComputerID(row.Text(0))))
		return nil
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	for one := range o.others {
		left -= *one
	}
	return left, total, err
}

// kept is the reserve, bytes.
func (o *room) kept(total int64, waits bool) int64 {
	if waits {
		return max(reservedMB*mib, total/waitingPart)
	}
	return max(reservedMB*mib, total/reservedPart)
}

// admit refuses, as part of a transaction, a computer for whose machine the host has no memory.
func (o *room) admit(tx *db.Tx, r record) error {
	if o == nil || o.host == nil {
		return nil
	}
	left, total, err := o.left(tx, r.ID, false)
	if err != nil {
		return err
	}
	left += o.has(r.ID)
	asked := r.allotment().memory
	if asked*mib+o.overhead(r.Engine) <= left {
		return nil
	}
	return o.full(r.Name, r.Engine, asked, left, total)
}

// full is the error of a request for more than is left.
func (o *room) full(what, engine string, askedMB, left, total int64) error {
	overhead := o.overhead(engine)
	most := total - o.kept(total, false) - overhead
	detail := holt.NoMemory{AskedMB: askedMB, NeedMB: askedMB + overhead/mib, LeftMB: max(0, left) / mib, MostMB: most / mib}
	e := holt.Errorf(holt.TooMany, "the host has no memory for %s: it needs %d MiB with overhead, and %d MiB are left after the memory reserved for running computers",
		what, detail.NeedMB, detail.LeftMB).WithHint("pause or stop a running computer, or request less memory")
	if askedMB*mib > most {
		e = e.WithHint("the host has %d MiB; request at most %d MiB", total/mib, detail.MostMB)
	}
	e.Detail = detail
	return e
}

// reserve promises memory to a machine like r's that is not a computer's; TooMany if the host has none. The
// promise counts before it is checked, so that of two concurrent ones at least one sees the other.
func (o *room) reserve(ctx context.Context, d *db.DB, what string, r record, waits bool) (done func(), err error) {
	if o.host == nil {
		return func() {}, nil
	}
	need := int64(r.MemoryMB)*mib + o.overhead(r.Engine)
	o.mu.Lock()
	o.others[&need] = true
	o.mu.Unlock()
	done = sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.others, &need)
	})
	var left, total int64
	err = read(ctx, d, func(tx *db.Tx) error {
		left, total, err = o.left(tx, "", waits)
		return err
	})
	if err == nil && left < 0 {
		err = o.full(what, r.Engine, int64(r.MemoryMB), left+need, total)
	}
	if err != nil {
		done()
	}
	return done, err
}

// Room returns TooMany if the host has no memory for another job, which can wait. begun are jobs
// that have begun, with their memory in MiB: those without a computer yet count, too. The overhead is
// that of the default engine.
func (s *Store) Room(ctx context.Context, memoryMB int, begun map[holt.JobID]int) error {
	o := s.table.room
	if o.host == nil {
		return nil
	}
	return read(ctx, s.cfg.DB, func(tx *db.Tx) error {
		left, total, err := o.left(tx, "", true)
		if err != nil {
			return err
		}
		for id, mb := range begun {
			if _, made, err := textOf(tx, `SELECT id FROM computer WHERE job = ? AND `+runsNow, id); err != nil {
				return err
			} else if !made {
				left -= int64(mb)*mib + o.overhead("")
			}
		}
		if int64(memoryMB)*mib+o.overhead("") > left {
			return o.full("another job", "", int64(memoryMB), left, total)
		}
		return nil
	})
}

// isFull reports whether an error is a lack of memory that pausing other computers can fix.
func isFull(err error) bool {
	full, ok := holt.LacksMemory(err)
	return ok && full.AskedMB <= full.MostMB
}

// withRoom calls do, which [table.admit] may refuse. If the host lacks memory it pauses the longest
// idle computers, one by one, and waits a little for those that are about to release theirs.
func (s *idler) withRoom(ctx context.Context, do func() error) error {
	end := time.Now().Add(roomWait)
	for try := 0; ; try++ {
		err := do()
		if !isFull(err) {
			return err
		}
		idle, leaves, lost := s.resting(ctx)
		if lost != nil {
			return err
		}
		if s.yields(holt.WithActor(ctx, holt.Actor{}), idle) {
			continue
		}
		if !leaves || time.Now().After(end) || ctx.Err() != nil {
			return busyWith(err, holt.Confined(ctx), idle)
		}
		backoff(ctx, min(try, 3))
	}
}

// restful is an idle computer.
type restful struct {
	record
	since time.Time
}

// resting returns the idle computers, and whether others are about to release their memory.
func (s *idler) resting(ctx context.Context) (idle []restful, leaves bool, err error) {
	all, err := s.table.list(ctx, `WHERE `+runsNow+` ORDER BY used, name`)
	for _, r := range all {
		switch r.State {
		case holt.ComputerPausing, holt.ComputerStopping, holt.ComputerDeleting:
			leaves = true
		case holt.ComputerRunning:
			l := s.machines.live(r.ID)
			if l == nil {
				continue
			}
			in, lost := s.inUse(ctx, r, l)
			_, unknown := l.busy.is(s.patience(r))
			if lost != nil {
				return nil, false, lost
			}
			if len(in) == 0 && unknown == "" {
				since, _ := s.idle(r)
				idle = append(idle, restful{r, since})
			}
		}
	}
	return idle, leaves, err
}

// yields pauses the longest idle computer, if one may be paused.
func (s *idler) yields(ctx context.Context, idle []restful) bool {
	for len(idle) > 0 {
		first := 0
		for i, r := range idle {
			if r.since.Before(idle[first].since) {
				first = i
			}
		}
		r := idle[first]
		idle = append(idle[:first:first], idle[first+1:]...)
		if s.never(r.record) != "" || s.uses.now().Sub(r.since) < roomIdle {
			continue
		}
		paused, err := s.pauseIfIdle(ctx, string(r.ID), pausedByMemory)
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pause idle computer to free memory", "computer", r.ID, "err", err)
		}
		if paused {
			s.log.InfoContext(ctx, "idle computer paused to free memory", "computer", r.ID, "name", r.Name, "memory_mb", r.MemoryMB)
			return true
		}
	}
	return false
}

// busyWith adds to an error of [room.full] which computers could be paused.
func busyWith(err error, in string, idle []restful) error {
	var names []string
	for _, r := range idle {
		if in == "" || r.Tenant == in {
			names = append(names, r.Name)
		}
	}
	if len(names) == 0 { // what others have is nothing to tell
		return err
	}
	e := holt.AsError(err)
	return e.WithHint("%s: free its memory with holt computer pause %s, or request less memory", idles(names), names[0])
}

func idles(names []string) string {
	if len(names) == 1 {
		return names[0] + " is idle"
	}
	return fmt.Sprint(strings.TrimPrefix(namesOf(names), " "), " are idle")
}
