package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/internal/engine/machine"
)

const snapshotAbout = `
Through the program, of a computer that has settled: *fork* is from the call until the last of so many forks has answered ` + "`true`" + ` (the snapshot is
taken in it), *resume* from the call until ` + "`true`" + ` is answered. *Of its own* is what a fork's QEMU does not share with others, 2 s after its first answer; what is
not the guest's memory is the emulator's, with the code that it has translated.`

// snapshotSection measures forks, pause and resume as a client sees them.
func snapshotSection(ctx context.Context, d *daemon, name, _ string) (*section, error) {
	s := &section{title: "Computers: snapshots", about: snapshotAbout, columns: []string{apiColumn}}
	guest := &figure{name: "of that: the guest's memory", unit: megabytesHeld}
	var works []work[string]
	for _, n := range []int{1, 4, 10} {
		w := work[string]{name: fmt.Sprintf("fork → first command answered, %d at once", n), unit: millis,
			measure: func(ctx context.Context, name string) (float64, error) { return d.fork(ctx, name, n, nil) }}
		if n == 1 {
			w.targets = []target{{column: apiColumn, limit: 500}}
		}
		works = append(works, w)
	}
	works = append(works,
		work[string]{name: "resume → first command answered", unit: millis, targets: []target{{column: apiColumn, limit: 700}},
			before: func(ctx context.Context, name string) error {
				_, err := d.client.Computers.Pause(ctx, name, "")
				return err
			},
			measure: func(ctx context.Context, name string) (float64, error) {
				began := time.Now()
				if _, err := d.client.Computers.Resume(ctx, name, ""); err != nil {
					return nan, err
				}
				_, err := d.run(ctx, name, "true")
				return sinceMS(began), err
			}},
		work[string]{name: "memory of a fork's own", unit: megabytesHeld, measure: func(ctx context.Context, name string) (float64, error) {
			held := nan
			_, err := d.fork(ctx, name, 1, func(id holt.ComputerID) (err error) {
				held, err = d.ownMemory(ctx, id, guest)
				return err
			})
			return held, err
		}})
	for _, w := range works {
		f, err := rounds(ctx, d.b, d.b.rounds, w, []column[string]{{apiColumn, name}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	s.figures = append(s.figures, guest)
	return s, nil
}

// fork forks a computer n times at once, returns when each has run a command, ms, and
// deletes them. Look, if it is there, is shown the first; it is no part of the time.
func (d *daemon) fork(ctx context.Context, name string, n int, look func(holt.ComputerID) error) (float64, error) {
	began := time.Now()
	made, err := d.client.Computers.Fork(ctx, name, holt.ComputerForkSpec{Count: n}, "")
	if err != nil {
		return nan, err
	}
	var g errgroup.Group
	for _, c := range made.Computers {
		g.Go(func() error {
			if c.Error != nil {
				return c.Error
			}
			_, err := d.run(ctx, string(c.ID), "true")
			return err
		})
	}
	err = g.Wait()
	took := sinceMS(began)
	if err == nil && look != nil {
		err = look(made.Computers[0].ID)
	}
	for _, c := range made.Computers {
		if c.ID == "" {
			continue
		}
		if _, lost := d.client.Computers.Delete(ctx, string(c.ID), ""); err == nil {
			err = lost
		}
	}
	return took, err
}

// ownMemory is what a computer's machine has of its own, 10⁶ bytes; what of it is the
// guest's goes into the figure.
func (d *daemon) ownMemory(ctx context.Context, id holt.ComputerID, guest *figure) (float64, error) {
	pid, err := d.process(id)
	if err != nil {
		return nan, err
	}
	return bothOwn(ctx, pid, apiColumn, guest)
}

// process is that of a computer's machine.
func (d *daemon) process(id holt.ComputerID) (pid int, err error) {
	dir, err := machine.OpenDir(filepath.Join(d.data, "computers", string(id)))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	record, err := dir.ReadRecord()
	return record.Process.PID, err
}
