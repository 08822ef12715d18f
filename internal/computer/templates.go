package computer

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/image"
)

// Templates is the templates that computers are created from, and their snapshots.
type Templates struct {
	*registry
	makeRoom    func(ctx context.Context, do func() error) error
	failedBoots failedBoots
	preempt     preemption
}

func (s *Store) Templates() *Templates { return s.templates }

// List returns all templates, built or not. Ready are the shapes with a snapshot for the engine that
// its computers have by default.
func (t *Templates) List(ctx context.Context) ([]holt.Image, error) {
	all, err := t.cfg.Images.List()
	if err != nil {
		return nil, err
	}
	for i, shown := range all {
		if len(shown.Ready) == 0 {
			continue
		}
		img, err := t.cfg.Images.Get(ctx, shown.Digest)
		all[i].Ready = slices.DeleteFunc(shown.Ready, func(shape holt.Shape) bool {
			one, wrong := t.of(img, shape)
			return err != nil || wrong != nil || !keepsTemplates(one.engine) || !t.cfg.Images.HasSnapshot(shown.Digest, one.key())
		})
	}
	return all, nil
}

// Boot makes the snapshot of a template in a shape, unless it exists, and returns the image; ref
// may be its digest. Zero fields of the shape are the defaults of a computer. The idempotency key
// is ignored: a repeat is harmless.
//
// Errors: InvalidArgument (the shape), NotFound (the template), Unavailable when a service does not
// start, TooMany (the host has no memory for it), OutOfSpace, Unsupported (by the engine).
func (t *Templates) Boot(ctx context.Context, ref string, shape holt.Shape, _ string) (holt.Image, error) {
	ctx, leave, err := t.shutdown.enter(ctx)
	if err != nil {
		return holt.Image{}, err
	}
	defer leave()
	img, err := t.cfg.pick(ctx, t.cfg.Engines.Default, ref)
	if err != nil {
		return holt.Image{}, err
	}
	one, err := t.of(img, shape)
	if err == nil {
		err = present(one.engine)
	}
	if err == nil && !keepsTemplates(one.engine) {
		err = holt.Errorf(holt.Unsupported, "the engine %s does not support boot snapshots", one.engine.Name()).WithHint(machine.UseVirtual)
	}
	if err != nil {
		return holt.Image{}, err
	}
	err = t.makeRoom(ctx, func() error { return one.boot(ctx) })
	if ctx.Err() != nil {
		return holt.Image{}, gone(ctx)
	}
	t.tried(ctx, img, err)
	if err != nil {
		return holt.Image{}, err
	}
	if now, err := t.cfg.pick(ctx, one.engine, img.Digest); err == nil { // it takes more, and is booted
		img = now
	}
	img.Ready = []holt.Shape{{CPUs: one.r.CPUs, MemoryMB: one.r.MemoryMB}}
	return img.Image, nil
}

// boot makes the snapshot unless it exists; TooMany if the host has no memory for it.
func (t template) boot(ctx context.Context) error {
	if !t.cfg.Images.HasSnapshot(t.img.Digest, t.key()) {
		leave, err := t.table.room.reserve(ctx, t.cfg.DB, "the template "+t.img.Template, t.r, false)
		if err != nil {
			return err
		}
		defer leave()
	}
	_, _, err := t.keep(ctx, true)
	return err
}

// of is a template in a shape, for the engine that its computers have by default.
func (t *Templates) of(img image.Image, shape holt.Shape) (template, error) {
	return t.on(t.cfg.Engines.Of(img.Engine), img, shape)
}

func (t *Templates) on(e machine.Engine, img image.Image, shape holt.Shape) (template, error) {
	r := record{Computer: holt.Computer{Engine: e.Name(), CPUs: cmp.Or(shape.CPUs, defaultCPUs), MemoryMB: cmp.Or(shape.MemoryMB, defaultMemoryMB)}}
	return template{Templates: t, engine: e, img: img, r: r}, CheckShape(shape)
}

// tried records that the boot was tried, unless the host prevented it.
func (t *Templates) tried(ctx context.Context, img image.Image, err error) {
	if code := holt.CodeOf(err); code == holt.OutOfSpace || code == holt.TooMany || code == holt.Timeout || cutOff(err) {
		return
	}
	if err := t.cfg.Images.Booted(ctx, img.Template, img.Digest); err != nil {
		t.log.WarnContext(ctx, "record that a template was booted", "template", img.Template, "err", err)
	}
}

// renew makes, one by one at low priority, the snapshots of newly built templates and of those
// whose build, guest agent or engine has changed. Those that the host has no memory for wait.
func (t *Templates) renew(ctx context.Context) {
	if t.cfg.Renew <= 0 || !slices.ContainsFunc(t.cfg.Engines.All(), keepsTemplates) {
		return
	}
	wait := func() (ended bool) {
		select {
		case <-ctx.Done():
			return true
		case <-time.After(t.cfg.Renew):
			return false
		}
	}
	if wait() {
		return
	}
	all, err := t.stale(ctx)
	if err != nil {
		t.log.ErrorContext(ctx, "list templates to boot", "err", err)
	}
	for ended := false; len(all) > 0 && !ended; {
		if all = slices.DeleteFunc(all, func(one *staleTemplate) bool { return t.renewOne(ctx, one) }); len(all) > 0 {
			ended = wait()
		}
	}
}

// renewTries bounds boots of a template that time out, as on a busy host.
const renewTries = 3

// renewOne makes one snapshot; false if it has to be tried again.
func (t *Templates) renewOne(ctx context.Context, one *staleTemplate) (done bool) {
	if ctx.Err() != nil {
		return true
	}
	leave, err := t.table.room.reserve(ctx, t.cfg.DB, "the template "+one.img.Template, one.r, true)
	if err != nil {
		t.log.Debug("boot of template postponed", "template", one.img.Template, "memory_mb", one.r.MemoryMB, "err", err)
		return false
	}
	defer leave()
	one.tries++
	dir, made, err := one.keep(ctx, one.tries > 1)
	if ctx.Err() != nil || cutOff(err) {
		return true
	}
	if err == nil && made && one.former != "" {
		err = errors.Join(setUsed(dir, one.used), setUsed(one.former, one.used.Add(-formerAge))) // this was no use of it
	}
	if err != nil && holt.CodeOf(err) != holt.NotFound { // its image was deleted
		one.notKept(err)
	}
	t.tried(ctx, one.img, err)
	return holt.CodeOf(err) != holt.Timeout || one.tries == renewTries
}

// formerAge is added to the age of a replaced snapshot, so that it is removed first.
const formerAge = 13 * 24 * time.Hour

// setUsed sets when a snapshot was last used, if it exists.
func setUsed(dir string, at time.Time) error {
	err := os.Chtimes(filepath.Join(dir, image.SnapshotRecord), at, at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// staleTemplate is a template whose snapshot is missing or out of date.
type staleTemplate struct {
	template
	former string // directory of what was kept of it before; "": nothing was
	used   time.Time
	tries  int // how often it was booted
}

// stale returns those, the most recently used first.
func (t *Templates) stale(ctx context.Context) (all []*staleTemplate, err error) {
	kept, err := t.cfg.Images.Kept()
	if err != nil {
		return nil, err
	}
	known := map[string]bool{} // by key
	for _, k := range kept {
		known[k.Key] = true
	}
	add := func(name, engine string, shape holt.Shape, former string, used time.Time) {
		img, err := t.cfg.Images.Get(ctx, name)
		if err != nil {
			return // it was deleted, or a create says why
		}
		e := t.cfg.Engines.Of(cmp.Or(engine, img.Engine))
		if !keepsTemplates(e) {
			return
		}
		one, err := t.on(e, img, shape)
		if err != nil { // it was kept by a larger host
			if former == "" { // or no computer can have this shape
				t.tried(ctx, img, nil)
			}
			return
		}
		one.background = true
		if !known[one.key()] {
			known[one.key()] = true
			all = append(all, &staleTemplate{template: one, former: former, used: used})
		} else if former == "" {
			t.tried(ctx, img, nil)
		}
	}
	unbooted, err := t.cfg.Images.Unbooted()
	for _, u := range unbooted {
		add(u.Template, "", u.Shape, "", time.Time{})
	}
	for _, k := range kept {
		if im, err := machine.ReadImage(k.Dir); err == nil {
			add(k.Template, im.Engine, holt.Shape{CPUs: im.Spec.CPUs, MemoryMB: im.Spec.MemoryMB}, k.Dir, k.Used)
		}
	}
	return all, err
}
