package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/qemu"
)

const jailAbout = `
The machine of 512 MB of *Machines: restores*, by one engine whose QEMU is the daemon's user, and by one whose QEMU is a user of its own in a jail, taken in turn. A *snapshot* is
of a machine that was just restored; what jails cost a network's process, which begins while the guest does, is not in it.`

const (
	plainColumn = "the daemon's user"
	jailColumn  = "in a jail"
)

// jailSection measures what it costs that machines are users of their own.
func jailSection(ctx context.Context, b *bench, dir string) (*section, error) {
	s := &section{title: "Machines: jails", about: jailAbout, columns: []string{plainColumn, jailColumn}}
	plain, end, err := openFrozen(ctx, b, dir, smallShape)
	if err != nil {
		return nil, err
	}
	defer end()
	engine, err := qemu.Open(ctx, qemu.Options{Apart: []string{dir, b.imageDir}, Log: b.log})
	if err != nil {
		return nil, err
	}
	if !engine.Capabilities().OwnUser {
		return nil, holt.Errorf(holt.Unsupported, "no jails can be made here")
	}
	jailed := *plain
	jailed.engine, jailed.dir = engine, filepath.Join(dir, "jailed")
	if err := os.MkdirAll(jailed.dir, 0o700); err != nil {
		return nil, err
	}
	columns := []column[*frozen]{{plainColumn, plain}, {jailColumn, &jailed}}
	works := []work[*frozen]{{name: "snapshot", unit: millis, measure: func(ctx context.Context, f *frozen) (float64, error) {
		took := nan
		_, err := f.restore(ctx, 1, func(m machine.Machine) (err error) {
			took, err = f.snapshot(ctx, m)
			return err
		})
		return took, err
	}}}
	for _, n := range []int{1, 4} {
		works = append(works, work[*frozen]{name: fmt.Sprintf("restore → first answer, %d at once", n), unit: millis,
			measure: func(ctx context.Context, f *frozen) (float64, error) { return f.restore(ctx, n, nil) }})
	}
	for _, w := range works {
		f, err := rounds(ctx, b, b.rounds, w, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

// snapshot takes one of a machine, and returns how long that took, ms.
func (f *frozen) snapshot(ctx context.Context, m machine.Machine) (float64, error) {
	image, was := f.path("taken"), m.Disk()
	began := time.Now()
	_, err := m.Snapshot(ctx, machine.SnapshotSpec{Dir: image, Disk: f.path("disk")})
	return sinceMS(began), errors.Join(err, os.RemoveAll(image), os.Remove(was))
}
