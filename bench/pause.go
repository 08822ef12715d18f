package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holt"
)

const pauseAbout = `
Through the program, of computers as users have them: systemd, a root disk, a workspace, one virtual processor, template *%s*; a snapshot is on the disk when it is answered. In the one
with 512 MB a program holds 200, in the one with 2 GB 1,300. The *pause* is how long the processors stand, by QEMU's clock: ` + "`pause_ms`" + ` of the snapshot. *Whole* is from the call to
its answer. *Pace* is what a program in the guest gets done in a second of that, the pause included, by what it got done in the second before: pages changed, or passes of a calculation.`

const (
	pauseCount = "/dev/shm/count" // where the load generator counts in the guest
	paceBefore = time.Second
	flatOut    = -1 // MiB/s, for the load generator: as fast as it goes
)

// strain is what a guest does while snapshots of it are taken.
type strain struct {
	name    string
	rate    int  // MiB/s of its memory that change
	compute bool // a program calculates as well
	paced   bool // it has something to do at any time
	targets []target
	most    int // rounds; 0: as many as there are
}

// strained is a computer of which snapshots are taken.
type strained struct {
	machineShape
	d    *daemon
	load holt.RunID // of the load generator; "": none runs
}

// stood is how a guest fared in a snapshot.
type stood struct {
	pause, whole float64 // ms
	pace         float64 // in it, by that before
}

// pauseSection measures how long computers stand for snapshots, and how much slower
// they are while one is taken.
func pauseSection(ctx context.Context, d *daemon, _, _ string) (*section, error) {
	s := &section{title: "Computers: the pause of a snapshot", about: fmt.Sprintf(pauseAbout, d.b.template), columns: []string{smallShape.name, largeShape.name}}
	var columns []column[*strained]
	for _, shape := range []machineShape{smallShape, largeShape} {
		c := &strained{machineShape: shape, d: d}
		if err := c.open(ctx); err != nil {
			return nil, err
		}
		columns = append(columns, column[*strained]{shape.name, c})
	}
	limits := []target{{column: smallShape.name, limit: 50}, {column: largeShape.name, limit: 200}}
	var pauses, wholes, paces []*figure
	for _, w := range []strain{
		{name: "idle", targets: limits},
		{name: "20 MB/s of memory changing", rate: 20, targets: limits},
		{name: "memory changing as fast as it goes", rate: flatOut, paced: true, most: 5},
		{name: "calculating", compute: true, paced: true, most: 5},
		{name: "calculating, 20 MB/s of memory changing", rate: 20, compute: true, paced: true, most: 5},
	} {
		whole, pace := &figure{name: "whole, " + w.name, unit: millis}, &figure{name: "pace, " + w.name, unit: share}
		pause, err := rounds(ctx, d.b, d.b.snapshots, work[*strained]{
			name: "pause, " + w.name, unit: millis, targets: w.targets, most: w.most,
			setup:  func(ctx context.Context, c *strained) error { return c.begin(ctx, w) },
			before: func(ctx context.Context, c *strained) error { return c.signal(ctx, "SIGCONT") },
			measure: func(ctx context.Context, c *strained) (float64, error) {
				t, err := c.snapshot(ctx)
				if err == nil {
					whole.add(c.name, t.whole)
					pace.add(c.name, t.pace)
				}
				return t.pause, err
			},
			after: func(ctx context.Context, c *strained) error { return c.signal(ctx, "SIGSTOP") },
		}, columns)
		if err != nil {
			return nil, err
		}
		pauses, wholes = append(pauses, pause), append(wholes, whole)
		if w.paced {
			paces = append(paces, pace)
		}
	}
	s.figures = slices.Concat(pauses, wholes, paces)
	var err error
	for _, c := range columns {
		_, lost := d.client.Computers.Delete(ctx, c.place.computer(), "")
		err = errors.Join(err, lost)
	}
	return s, err
}

func (c *strained) computer() string { return fmt.Sprint("strained-", c.mb) }

// open makes the computer.
func (c *strained) open(ctx context.Context) error {
	spec := holt.ComputerSpec{Name: c.computer(), Template: c.d.b.template, CPUs: 1, MemoryMB: c.mb}
	if _, err := c.d.client.Computers.Create(ctx, spec, ""); err != nil {
		return err
	}
	if err := c.d.settle(ctx, c.computer()); err != nil {
		return err
	}
	return c.d.bring(ctx, c.computer())
}

// begin has the load generator hold memory, in place of the one before, and stops it.
func (c *strained) begin(ctx context.Context, w strain) error {
	if c.load != "" {
		if err := c.signal(ctx, "SIGKILL"); err != nil {
			return err
		}
		if _, err := c.d.run(ctx, c.computer(), "rm", pauseCount); err != nil {
			return err
		}
	}
	argv := []string{guestLoad, "hold", "-file", pauseCount, "-mb", strconv.Itoa(c.held), "-rate", strconv.Itoa(w.rate), "-compute=" + strconv.FormatBool(w.compute)}
	r, err := c.d.client.Runs.Start(ctx, c.computer(), holt.RunSpec{Argv: holt.OSStrings(argv), User: "root", Cwd: "/"}, "")
	if err != nil {
		return err
	}
	c.load = r.ID
	if _, err := c.d.run(ctx, c.computer(), "sh", "-c", "until [ -s "+pauseCount+" ]; do sleep 0.1; done"); err != nil {
		return err
	}
	return c.signal(ctx, "SIGSTOP")
}

func (c *strained) signal(ctx context.Context, name string) error {
	return c.d.client.Runs.Signal(ctx, c.load, name, "")
}

// snapshot takes one, and deletes it.
func (c *strained) snapshot(ctx context.Context) (stood, error) {
	none := stood{nan, nan, nan}
	first, err := c.look(ctx)
	if err == nil {
		err = rest(ctx, paceBefore)
	}
	if err != nil {
		return none, err
	}
	before, err := c.look(ctx)
	if err != nil {
		return none, err
	}
	began := time.Now()
	m, err := c.d.client.Computers.Snapshot(ctx, c.computer(), holt.SnapshotSpec{}, "")
	if err != nil {
		return none, err
	}
	t := stood{pause: m.PauseMS, whole: sinceMS(began)}
	after, err := c.look(ctx)
	if err != nil {
		return none, err
	}
	t.pace = after.since(before) / before.since(first)
	_, err = c.d.client.Snapshots.Delete(ctx, string(m.ID), "")
	return t, err
}

// count is what the load generator had got done at a time.
type count struct {
	n  uint64
	at time.Time
}

// since is the pace since an earlier count, a second.
func (c count) since(earlier count) float64 {
	return float64(c.n-earlier.n) / c.at.Sub(earlier.at).Seconds()
}

// look reads the load generator's count.
func (c *strained) look(ctx context.Context) (count, error) {
	var b bytes.Buffer
	asked := time.Now()
	if err := c.d.client.Files.Read(ctx, c.computer(), pauseCount, 0, -1, &b); err != nil {
		return count{}, err
	}
	if b.Len() != 8 {
		return count{}, fmt.Errorf("%s in the guest holds %d bytes", pauseCount, b.Len())
	}
	return count{binary.LittleEndian.Uint64(b.Bytes()), asked.Add(time.Since(asked) / 2)}, nil
}
