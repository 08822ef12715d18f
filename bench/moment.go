package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/machine"
)

const momentAbout = `
Through the program, of a computer that has settled: *fork* is from the call until the last of so many forks has answered ` + "`true`" + ` (the moment is
taken in it), *resume* from the call until ` + "`true`" + ` is answered. *Of its own* is what a fork's QEMU does not share with others, 2 s after its first answer.`

// momentSection measures forks, pause and resume as a client sees them.
func momentSection(ctx context.Context, d *daemon, name, _ string) (*section, error) {
	s := &section{title: "Computers: moments", about: momentAbout, columns: []string{apiColumn}}
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
				held, err = d.ownMemory(ctx, id)
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

// ownMemory is what a computer's machine has of its own, 10⁶ bytes.
func (d *daemon) ownMemory(ctx context.Context, id holt.ComputerID) (float64, error) {
	dir, err := machine.OpenDir(filepath.Join(d.data, "computers", string(id)))
	if err != nil {
		return nan, err
	}
	defer dir.Close()
	record, err := dir.ReadRecord()
	if err != nil {
		return nan, err
	}
	return ofItsOwn(ctx, record.Process.PID, "")
}

// registered is how many computers a daemon has whose memory is measured.
const registered = 50

// atRest is how long a daemon is left alone before its memory is measured: Go gives
// what a burst of work took back to the kernel little by little.
const atRest = time.Minute

// registrySection measures what computers cost that only exist. They are of the local
// engine, which makes fifty in seconds; for the daemon it is one registry.
func registrySection(ctx context.Context, b *bench, dir string) (*section, error) {
	engine := b.accelerator
	defer func() { b.accelerator = engine }()
	d, err := startDaemon(ctx, b, filepath.Join(dir, "registry"), "local")
	if err != nil {
		return nil, err
	}
	for i := range registered {
		name := fmt.Sprint("registered-", i)
		if _, err = d.client.Computers.Create(ctx, holt.ComputerSpec{Name: name}, ""); err == nil {
			_, err = d.client.Computers.Stop(ctx, name, "")
		}
		if err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(atRest):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	mb, err := resident(d.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	f := &figure{name: fmt.Sprintf("resident memory of a daemon with %d stopped computers", registered), unit: megabytesHeld, targets: []target{{column: apiColumn, limit: 80}}}
	f.add(apiColumn, mb)
	return &section{title: "Computers: registry", columns: []string{apiColumn}, figures: []*figure{f},
		about: "A minute after the daemon has made, started and stopped all of them (engine *local*)."}, nil
}

// resident is the memory that a process has in memory now, 10⁶ bytes.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nan, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kb * 1024 / 1e6, err
		}
	}
	return nan, fmt.Errorf("process %d has no resident memory", pid)
}
