package computer

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
)

// wish is the part of a record with what was requested and is not in effect yet.
type wish struct {
	wishCPUs, wishMemoryMB int  // 0: those that it has
	growing                bool // a live resize is not finished
}

// want requests a shape. For a stopped computer it is in effect at once.
func (r *record) want(cpus, memoryMB int) {
	if r.State == holt.ComputerStopped {
		r.CPUs, r.MemoryMB = cpus, memoryMB
	}
	r.wishCPUs, r.wishMemoryMB = 0, 0
	if cpus != r.CPUs {
		r.wishCPUs = cpus
	}
	if memoryMB != r.MemoryMB {
		r.wishMemoryMB = memoryMB
	}
}

// wanted is the shape with all requests in effect.
func (r *record) wanted() (cpus, memoryMB int) {
	return cmp.Or(r.wishCPUs, r.CPUs), cmp.Or(r.wishMemoryMB, r.MemoryMB)
}

// fulfil puts all requests into effect, for a computer whose machine has ended.
func (r *record) fulfil() {
	r.CPUs, r.MemoryMB = r.wanted()
	r.wish = wish{}
}

// pending shows the requests; nil if there are none.
func (r *record) pending() *holt.Pending {
	if r.wishCPUs == 0 && r.wishMemoryMB == 0 {
		return nil
	}
	p := &holt.Pending{CPUs: r.wishCPUs, MemoryMB: r.wishMemoryMB, When: "start"}
	if r.State == holt.ComputerPaused && r.growing && (r.wishCPUs > r.CPUs || r.wishMemoryMB > r.MemoryMB) {
		p.When = "resume"
	}
	return p
}

// maxCPUs bounds the processors of a running computer: those of this host, or of a larger one.
func maxCPUs() int { return min(max(runtime.NumCPU(), 8), mostCPUs) }

// Resize changes the shape of a computer. A running computer gets more processors, memory and disk
// at once where the engine can, and its root file system grows; the rest takes effect at the next
// start. A paused one gets them when it is resumed. Resize completes even when its caller leaves.
//
// Errors: NotFound, InvalidArgument (the shape; a smaller disk), Conflict (an unfinished call),
// Unsupported (by the engine), TooMany (see [table.admit]), OutOfSpace, Unavailable; then the shape
// is as before, or as Get shows.
func (m *Memory) Resize(ctx context.Context, ref string, spec holt.ResizeSpec, key string) (holt.ResizedComputer, error) {
	return detach(ctx, m.s.shutdown, func(ctx context.Context) (holt.ResizedComputer, error) {
		return idempotency.Once(ctx, m.s.cfg.Keys, idempotency.Call[holt.ResizedComputer]{
			Key: key, Method: "computer.resize", Request: []any{ref, spec},
			Act: func(ctx context.Context, _ *idempotency.Claim) (holt.ResizedComputer, error) {
				return m.s.resizer.resize(ctx, ref, spec)
			},
		})
	})
}

// resizer changes the shape of computers.
type resizer struct{ *Store }

func (s *resizer) resize(ctx context.Context, ref string, spec holt.ResizeSpec) (out holt.ResizedComputer, err error) {
	r, unlock, err := s.hold(ctx, ref)
	if err != nil {
		return out, err
	}
	defer unlock()
	if err := s.mayResize(r, spec); err != nil {
		return out, err
	}
	z := &resizing{transition: transition{s: s.Store, r: &r}, spec: spec, was: r}
	z.live = s.machines.live(r.ID)
	switch r.State {
	case holt.ComputerRunning:
		if z.live == nil {
			return out, unreachable(r)
		}
		err = z.forward(ctx, "resize", []step{{"row", z.ask, z.unask}, {"machine", z.add, nothing}, {"guest", z.tell, nothing}})
	case holt.ComputerStopped, holt.ComputerPaused:
		err = z.forward(ctx, "resize", []step{{"row", z.ask, nothing}})
	default:
		err = wrongState(r)
	}
	if err != nil {
		return out, err
	}
	out = holt.ResizedComputer{Computer: s.shown(r), Guest: z.guest, Note: z.note()}
	s.log.InfoContext(ctx, "computer resized", "computer", r.ID, "name", r.Name, "cpus", r.CPUs, "memory_mb", r.MemoryMB, "disk_mb", r.DiskSizeMB, "note", out.Note)
	return out, nil
}

// mayResize refuses an impossible size.
func (s *resizer) mayResize(r record, spec holt.ResizeSpec) error {
	if spec == (holt.ResizeSpec{}) {
		return holt.Errorf(holt.InvalidArgument, "no size was given").WithHint("give at least one of cpus, memory_mb and disk_size_mb")
	}
	if spec.CPUs < 0 || spec.MemoryMB < 0 || spec.DiskSizeMB < 0 {
		return holt.Errorf(holt.InvalidArgument, "a size must not be negative")
	}
	cpus, memoryMB := r.wanted()
	if err := boundShape(cmp.Or(spec.CPUs, cpus), cmp.Or(spec.MemoryMB, memoryMB)); err != nil {
		return err
	}
	switch {
	case spec.DiskSizeMB == 0 || spec.DiskSizeMB == r.DiskSizeMB:
		return nil
	case !s.cfg.engine(r).Capabilities().RootDisk:
		return holt.Errorf(holt.Unsupported, "computers of the engine %s have no root disk", s.cfg.engine(r).Name()).WithHint(machine.UseVirtual)
	case spec.DiskSizeMB > mostDiskSize:
		return holt.Errorf(holt.InvalidArgument, "invalid root disk size %d MiB", spec.DiskSizeMB).WithHint("the maximum is %d MiB", mostDiskSize)
	case spec.DiskSizeMB < r.DiskSizeMB:
		return holt.Errorf(holt.InvalidArgument, "the root disk of %s cannot shrink: it has %d MiB, and its file system may use all of it", r.Name, r.DiskSizeMB).
			WithHint("it takes space on the host only for written data; for a smaller disk, delete the computer and create another with the same workspace")
	}
	return nil
}

// resizing is one resize, as steps that can be undone.
type resizing struct {
	transition
	spec  holt.ResizeSpec
	was   record
	guest *holt.GuestShape // what the guest says that it uses
	fault error            // why it does not use all of it
}

// ask records the request. After a crash the next daemon finishes it.
func (z *resizing) ask(ctx context.Context) error {
	cpus, memoryMB := z.r.wanted()
	z.r.want(cmp.Or(z.spec.CPUs, cpus), cmp.Or(z.spec.MemoryMB, memoryMB))
	z.r.DiskSizeMB = max(z.r.DiskSizeMB, z.spec.DiskSizeMB)
	z.r.growing = z.r.State != holt.ComputerStopped && z.engine().Capabilities().Growing
	return z.s.idler.withRoom(ctx, func() error { return z.s.table.saveAdmitted(ctx, *z.r) })
}

// unask withdraws it. What the machine has got it keeps until it ends.
func (z *resizing) unask(ctx context.Context) error {
	if z.s.shutdown.ctx.Err() != nil {
		return ending() // the next daemon continues
	}
	z.r.CPUs, z.r.MemoryMB, z.r.DiskSizeMB, z.r.wish = z.was.CPUs, z.was.MemoryMB, z.was.DiskSizeMB, z.was.wish
	if err := z.r.measure(ctx, z.live.m); err != nil && z.engine().Capabilities().Growing {
		z.s.log.WarnContext(ctx, "get shape of machine", "computer", z.r.ID, "err", err)
	}
	return z.s.table.save(ctx, *z.r)
}

// growLimit bounds how long an engine may take to grow a machine, which usually takes milliseconds.
const growLimit = 30 * time.Second

// add grows the machine as far as it can while running, and records the result.
func (z *resizing) add(ctx context.Context) error {
	if !z.r.growing {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, growLimit)
	defer cancel()
	cpus, memoryMB := z.r.wanted()
	err := z.live.m.Grow(bounded, machine.Shape{CPUs: cpus, MemoryMB: memoryMB, DiskMB: z.r.DiskSizeMB})
	if err == nil {
		err = z.r.measure(bounded, z.live.m)
	}
	if err != nil {
		return hosterror.Full(err)
	}
	return z.s.table.save(ctx, *z.r)
}

// measure takes over the shape of a machine. Requests stay.
func (r *record) measure(ctx context.Context, m machine.Machine) error {
	has, err := m.Shape(ctx)
	if err != nil {
		return err
	}
	cpus, memoryMB := r.wanted()
	r.CPUs, r.MemoryMB, r.DiskSizeMB = has.CPUs, has.MemoryMB, max(has.DiskMB, r.DiskSizeMB)
	r.want(cpus, memoryMB)
	return nil
}

// tell makes the guest use the new shape. A failure does not undo the resize.
func (z *resizing) tell(ctx context.Context) error {
	if !z.r.growing {
		return nil
	}
	limits := z.live.limits
	z.fault = z.live.do(ctx, limits.Answer, true, func(ctx context.Context, c *agent.Client) error {
		is, err := c.Grow(ctx, holt.GuestShape{CPUs: z.r.CPUs, MemoryMB: z.r.MemoryMB, DiskSizeMB: z.r.DiskSizeMB}, limits.Answer/2)
		if err == nil {
			z.guest = &is.GuestShape
			if is.Fault != "" {
				err = holt.Errorf(holt.Unavailable, "%s", is.Fault)
			}
		}
		return err
	})
	if ctx.Err() != nil {
		return ending() // the next daemon continues
	}
	z.r.growing = z.guest == nil // the guest is told at the next resume, or by the next daemon
	return z.s.table.save(ctx, *z.r)
}

// note describes what is not in effect, and when it will be; "" if everything is.
func (z *resizing) note() string {
	var say []string
	r := z.r
	if p := r.pending(); p != nil {
		var what []string
		if p.CPUs != 0 {
			what = append(what, fmt.Sprintf("cpus %d", p.CPUs))
		}
		if p.MemoryMB != 0 {
			what = append(what, fmt.Sprintf("memory %d MiB", p.MemoryMB))
		}
		say = append(say, fmt.Sprintf("%s at the next %s", strings.Join(what, ", "), p.When))
	}
	switch {
	case r.State == holt.ComputerStopped:
		say = append(say, "it takes effect at the next start")
	case r.DiskSizeMB != z.was.DiskSizeMB && !z.engine().Capabilities().Growing:
		say = append(say, "the root disk grows at the next start")
	case r.State == holt.ComputerPaused && r.DiskSizeMB != z.was.DiskSizeMB:
		say = append(say, "the root file system grows at the next resume")
	case z.fault != nil:
		say = append(say, "the guest does not use all of it: "+z.fault.Error())
	case z.guest != nil && (z.guest.CPUs < r.CPUs || z.guest.MemoryMB < r.MemoryMB):
		say = append(say, fmt.Sprintf("the guest uses cpus %d, memory %d MiB so far", z.guest.CPUs, z.guest.MemoryMB))
	}
	return strings.Join(say, "; ")
}

// settleShape grows the machine of a computer, whose lock is held, as requested while it was paused
// or before a crash. What fails stays requested.
func (s *resizer) settleShape(ctx context.Context, r *record, l *live) {
	if !r.growing {
		return
	}
	z := &resizing{transition: transition{s: s.Store, r: r, live: l}, was: *r}
	err := z.add(ctx)
	if err == nil {
		err = z.tell(ctx)
	}
	if err == nil {
		err = z.fault
	}
	if err != nil && s.shutdown.ctx.Err() == nil {
		s.log.WarnContext(ctx, "finish resize", "computer", r.ID, "err", err)
	}
}

// settleShapeLater is settleShape in the background, for an adopted computer whose guest may not
// answer yet.
func (t *takeover) settleShapeLater() {
	t.s.shutdown.spawn(func(ctx context.Context) {
		r, unlock, err := t.s.hold(ctx, string(t.r.ID))
		if err != nil {
			return
		}
		defer unlock()
		if l := t.s.machines.live(r.ID); l != nil && r.State == holt.ComputerRunning {
			t.s.resizer.settleShape(ctx, &r, l)
		}
	})
}
