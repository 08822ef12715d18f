package computer

import (
	"context"
	"slices"
	"sync"
	"time"

	"holt"
)

// uses is what keeps computers in use, as far as calls to this daemon go. A caller that needs a
// running machine marks its use before it looks for the machine (see [waker.use]). A pause holds
// the computer's lock and marks the computer as resting only while there is no use, under the same
// mutex. So one of the two sees the other, and no work begins in a machine that is about to be
// paused.
type uses struct {
	now    func() time.Time // the clock, but in tests
	opened time.Time

	mu  sync.Mutex
	set map[holt.ComputerID]*usage
}

// usage is the use of one computer.
type usage struct {
	going   map[*holt.Use]bool
	resting bool      // it is being paused; new uses wait for its lock
	last    holt.Use  // what it was last used for; Since is when that ended
	broke   error     // why it could not be paused
	retry   time.Time // when that is tried again
}

func newUses(now func() time.Time) *uses {
	return &uses{now: now, opened: now(), set: map[holt.ComputerID]*usage{}}
}

// at returns the usage of a computer, a new one if necessary. mu is held.
func (u *uses) at(id holt.ComputerID) *usage {
	if u.set[id] == nil {
		u.set[id] = &usage{going: map[*holt.Use]bool{}}
	}
	return u.set[id]
}

const mostUseDetail = 200

// begin marks a use until done is called.
func (u *uses) begin(id holt.ComputerID, use holt.Use) (done func()) {
	if len(use.Detail) > mostUseDetail {
		use.Detail = use.Detail[:mostUseDetail] + "…"
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	use.Since = u.now()
	mine := &use
	u.at(id).going[mine] = true
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.at(id).going, mine)
		u.touch(id, *mine)
	})
}

// used records that a computer was in use until now.
func (u *uses) used(id holt.ComputerID, use holt.Use) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.touch(id, use)
}

// touch is used with mu held.
func (u *uses) touch(id holt.ComputerID, use holt.Use) {
	use.Since = u.now()
	usage := u.at(id)
	usage.last, usage.broke = use, nil
}

// lastOf returns the last use of a computer since the daemon started, and when a failed pause is
// retried.
func (u *uses) lastOf(id holt.ComputerID) (last holt.Use, retry time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if usage := u.set[id]; usage != nil {
		return usage.last, usage.retry
	}
	return last, retry
}

// failed records that an idle computer could not be paused.
func (u *uses) failed(id holt.ComputerID, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	usage := u.at(id)
	usage.broke, usage.retry = err, u.now().Add(idleRetry)
}

// fault describes the last failed pause; "" if there is none.
func (u *uses) fault(id holt.ComputerID) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if usage := u.set[id]; usage != nil && usage.broke != nil {
		return "the last pause failed and will be retried: " + usage.broke.Error()
	}
	return ""
}

// forget removes a deleted computer.
func (u *uses) forget(id holt.ComputerID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.set, id)
}

// going returns the current uses of a computer, oldest first.
func (u *uses) going(id holt.ComputerID) []holt.Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	usage := u.set[id]
	if usage == nil {
		return nil
	}
	var all []holt.Use
	for one := range usage.going {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b holt.Use) int { return a.Since.Compare(b.Since) })
	return all
}

// rest marks a computer, whose lock is held, as being paused until done is called. With idle it
// fails if the computer is in use.
func (u *uses) rest(id holt.ComputerID, idle bool) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	usage := u.at(id)
	if idle && len(usage.going) > 0 {
		return nil, false
	}
	usage.resting = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		usage.resting = false
	}, true
}

// rests reports whether a computer is being paused.
func (u *uses) rests(id holt.ComputerID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	usage := u.set[id]
	return usage != nil && usage.resting
}

// Use marks a use of a computer until done is called: the computer is not paused for being idle,
// and Awake shows the use. It does not wake the computer; see [Store.Wake].
func (s *Store) Use(id holt.ComputerID, kind holt.UseKind, detail string) (done func()) {
	return s.uses.begin(id, holt.Use{Kind: kind, Detail: detail})
}

// Wake is Use, and starts or resumes the computer if necessary.
//
// Errors: NotFound, Conflict (it is incomplete or being deleted), Unavailable, Timeout.
func (s *Store) Wake(ctx context.Context, ref string, kind holt.UseKind, detail string) (c holt.Computer, done func(), err error) {
	r, _, done, err := s.waker.use(ctx, ref, holt.Use{Kind: kind, Detail: detail})
	return r.Computer, done, err
}

// use returns the running machine of a computer, woken if necessary, in use until done is called.
func (s *waker) use(ctx context.Context, ref string, use holt.Use) (r record, l *live, done func(), err error) {
	r, err = s.table.find(ctx, ref)
	if err != nil {
		return record{}, nil, nil, err
	}
	done = s.uses.begin(r.ID, use)
	if r, l, err = s.wake(ctx, string(r.ID), use); err != nil {
		done()
		return record{}, nil, nil, err
	}
	return r, l, done, nil
}
