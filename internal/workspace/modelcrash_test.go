package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-cmp/cmp"

	"holt/internal/store/journal"
)

// fail is called at every failpoint.
func (r *modelRun) fail(point string) error {
	if r.wreck > 0 {
		if r.wreck--; r.wreck == 0 {
			r.images++
			r.image = &crash{filepath.Join(r.TempDir(), fmt.Sprint("image", r.images)), r.power, false, r.base, slices.Clone(r.since)}
			r.takeImage()
		}
	}
	if r.armed && r.rng.IntN(150) == 0 && point != "commit.apply" && point != "flush.committed" {
		r.faulted = true
		return []error{syscall.ENOSPC, syscall.EIO}[r.rng.IntN(2)]
	}
	return nil
}

// hook is called at every call of the disk.
func (r *modelRun) hook(op journal.Op, _ string, n int) (int, error) {
	if !r.armed || op == journal.OpRead || r.rng.IntN(300) != 0 {
		return n, nil
	}
	r.faulted = true
	return r.rng.IntN(n + 1), syscall.ENOSPC
}

// takeImage copies the workspace as a crash now would leave it.
func (r *modelRun) takeImage() {
	armed := r.armed
	r.armed = false
	defer func() { r.armed = armed }()
	disk := r.disk
	if !r.image.power {
		disk = nil
	}
	image(r.T, r.t, r.dir, r.image.dir, disk, r.rng)
}

func (r *modelRun) now(power bool) *crash {
	r.images++
	return &crash{filepath.Join(r.TempDir(), fmt.Sprint("image", r.images)), power, true, r.base, slices.Clone(r.since)}
}

// restart ends the process and begins another: nothing may be lost.
func (r *modelRun) restart(how string, fn func()) {
	r.count[how]++
	r.say("%s", how)
	fn()
	r.opened()
	r.compare()
}

// opened is what is known once a workspace was opened.
func (r *modelRun) opened() {
	r.m.restart()
	r.base, r.since, r.wreck, r.image = r.m.clone(), nil, 0, nil
}

// crash goes on with the image that was taken. k was done meanwhile.
func (r *modelRun) crash(k *call, answer result) {
	c := r.image
	r.image = nil
	r.abandon()
	r.ok(os.RemoveAll(r.dir))
	r.dir, r.disk = c.dir, journal.NewFaultDisk()
	r.opt.Disk = r.disk
	r.open()
	r.disk.SetHook(r.hook)
	switch {
	case c.rest:
		r.count["power"]++
	case c.power:
		r.count["wreck, power"]++
	default:
		r.count["wreck"]++
	}
	got := r.state()
	if k != nil && (len(c.since) == 0 || c.since[len(c.since)-1] != k) {
		c.since = append(c.since, k)
	}
	m := c.base.clone()
	first := 0
	if !c.power && k != nil {
		first = len(c.since) - 1
	} else if !c.power {
		first = len(c.since)
	}
	for i := 0; ; i++ {
		if i >= first {
			after := m.clone()
			after.restart()
			if after.dump(r.hash) == got {
				r.say("crash, power %v: after %d of %d calls", c.power, i, len(c.since))
				r.m = m
				r.opened()
				r.settleAnswers(c, k, answer, i)
				return
			}
		}
		if i == len(c.since) {
			break
		}
		m.do(c.since[i])
	}
	m.restart()
	r.Fatalf("power %v: the recovered state is none of those after %d to %d calls, the last of which were\n%s\nagainst the last:\n%s",
		c.power, first, len(c.since), strings.Join(r.last, "\n"), cmp.Diff(strings.Split(m.dump(r.hash), "\n"), strings.Split(got, "\n")))
}

// settleAnswers does again what a kernel would ask again, after i calls of the
// crash were found.
func (r *modelRun) settleAnswers(c *crash, k *call, answer result, i int) {
	if c.power {
		clear(r.unacked) // the guest is gone too
		return
	}
	if k == nil || k.c.Unique == 0 || answer.err != nil {
		return
	}
	if _, open := r.m.epochs[k.c.Epoch]; !open {
		return
	}
	r.clock.Store(k.now)
	r.say("asked again, at %d: %+v", k.now, k.brief())
	if got := k.on(r.w); got != answer {
		r.Fatalf("%+v, asked again after a crash: got %+v, want %+v", k.brief(), got, answer)
	}
	if i < len(c.since) {
		r.m.do(k)
	}
	r.base, r.since = r.m.clone(), nil
	r.ok(r.t.Sync())
	r.compare()
}
