package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"holt/image"
	"holt/machine"
	"holt/qemu"
)

const snapshotAbout = `
Snapshots of machines outside any daemon, whose guest is the load generator: 512 MB of memory of which it holds 200, and 2 GB of which it holds 1,300. The
*pause* is how long the processors stand, by QEMU's clock, disk and memory together. A *restore* is an overlay, a new QEMU and the guest's first answer on
a port; of several at once, the last one's. *Of its own* is what a fork does not share, 2 s after its first answer.`

// smallShape and largeShape are the shapes of machines that are measured.
var (
	smallShape = machineShape{"512 MB", 512, 200}
	largeShape = machineShape{"2 GB", 2048, 1300}
)

type machineShape struct {
	name string
	mb   int
	held int // by the guest, MiB
}

// flatOut is a rate that no guest reaches, MiB/s.
const flatOut = 1 << 20

// frozen is a machine of which snapshots are taken and restored.
type frozen struct {
	machineShape
	dir    string
	engine machine.Engine
	m      machine.Machine
	image  string // the last
	disk   string // that goes with it
	diskMB int
	count  int
}

// snapshotSection measures snapshots and restores.
func snapshotSection(ctx context.Context, b *bench, dir string) (*section, error) {
	s := &section{title: "Computers: snapshots", about: snapshotAbout, columns: []string{smallShape.name, largeShape.name}}
	under := func(small, large float64) []target {
		return []target{{column: smallShape.name, limit: small}, {column: largeShape.name, limit: large}}
	}
	var columns []column[*frozen]
	for _, shape := range []machineShape{smallShape, largeShape} {
		f, end, err := openFrozen(ctx, b, dir, shape)
		if err != nil {
			return nil, err
		}
		defer end()
		columns = append(columns, column[*frozen]{shape.name, f})
	}
	works := []work[*frozen]{
		{name: "pause, idle", unit: millis, targets: under(50, 200), measure: pauseAt(0)},
		{name: "pause, 20 MB/s of memory changing", unit: millis, targets: under(50, 200), measure: pauseAt(20)},
		{name: "pause, memory changing as fast as it goes", unit: millis, measure: pauseAt(flatOut)},
		{name: "whole snapshot, idle", unit: millis, measure: func(ctx context.Context, f *frozen) (float64, error) {
			began := time.Now()
			_, err := f.snapshot(ctx)
			return sinceMS(began), err
		}},
	}
	for _, n := range []int{1, 4, 10} {
		works = append(works, work[*frozen]{name: fmt.Sprintf("restore → first answer, %d at once", n), unit: millis,
			measure: func(ctx context.Context, f *frozen) (float64, error) { return f.restore(ctx, n, nil) }})
	}
	for _, own := range []struct{ name, of string }{{"guest memory of a fork's own", machine.MemoryFile}, {"all memory of a fork's own", ""}} {
		works = append(works, work[*frozen]{name: own.name, unit: megabytesHeld, measure: func(ctx context.Context, f *frozen) (float64, error) {
			held := nan
			_, err := f.restore(ctx, 1, func(m machine.Machine) (err error) {
				held, err = ofItsOwn(ctx, m.PID(), own.of)
				return err
			})
			return held, err
		}})
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

func sinceMS(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1e3 }

// openFrozen boots a machine and has its guest hold memory.
func openFrozen(ctx context.Context, b *bench, dir string, shape machineShape) (*frozen, func() error, error) {
	f := &frozen{machineShape: shape, dir: filepath.Join(dir, "frozen-"+strconv.Itoa(shape.mb))}
	m, end, err := openMachine(ctx, b, dir, filepath.Base(f.dir), func(spec *machine.Spec, e *qemu.Engine, img image.Image) error {
		f.engine, f.diskMB = e, img.MinDiskMB
		spec.MemoryMB, spec.Disk = shape.mb, f.path("disk")
		base := spec.Initrd
		spec.Initrd = filepath.Join(spec.Dir, "initrd")
		return errors.Join(withInit(spec.Initrd, base, b.load), e.CreateDisk(ctx, spec.Disk, machine.Base{Path: img.Root}, f.diskMB))
	})
	if err != nil {
		return nil, nil, err
	}
	f.m = m
	if err := f.hold(ctx, 0); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	_, err = f.snapshot(ctx)
	return f, end, err
}

func (f *frozen) path(what string) string {
	f.count++
	return filepath.Join(f.dir, fmt.Sprint(what, "-", f.count))
}

// hold has the guest hold its memory, and change so much of it.
func (f *frozen) hold(ctx context.Context, rate uint64) error {
	order := binary.LittleEndian.AppendUint64([]byte{'d'}, uint64(f.held)<<32|rate)
	return tell(ctx, f.m, order)
}

// tell sends something to a guest and waits until its first byte comes back.
func tell(ctx context.Context, m machine.Machine, what []byte) error {
	conn, err := m.Dial(ctx, machine.PortFiles)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(what); err != nil {
		return err
	}
	for r := bufio.NewReader(conn); ; {
		if c, err := r.ReadByte(); err != nil || c == what[0] {
			return err
		}
	}
}

// snapshot takes one, in place of the last.
func (f *frozen) snapshot(ctx context.Context) (machine.SnapshotReport, error) {
	if f.image != "" {
		if err := os.RemoveAll(f.image); err != nil {
			return machine.SnapshotReport{}, err
		}
	}
	f.disk, f.image = f.m.Disk(), f.path("image")
	return f.m.Snapshot(ctx, machine.SnapshotSpec{Dir: f.image, Disk: f.path("disk")})
}

// pauseAt measures the pause while the guest changes its memory, MiB/s.
func pauseAt(rate uint64) func(context.Context, *frozen) (float64, error) {
	return func(ctx context.Context, f *frozen) (float64, error) {
		if err := f.hold(ctx, rate); err != nil {
			return nan, err
		}
		r, err := f.snapshot(ctx)
		if err != nil {
			return nan, err
		}
		return float64(r.Pause.Microseconds()) / 1e3, f.hold(ctx, 0)
	}
}

// restore starts n machines at once and returns when the last has answered, ms. Look,
// if it is there, is shown the first; it is no part of the time.
func (f *frozen) restore(ctx context.Context, n int, look func(machine.Machine) error) (float64, error) {
	machines, errs := make([]machine.Machine, n), make([]error, n)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		spec := machine.Spec{ID: fmt.Sprint("bench-fork-", i), Dir: f.path("fork"), Disk: f.path("disk"), Restore: f.image}
		wg.Go(func() {
			if errs[i] = f.engine.CreateDisk(ctx, spec.Disk, machine.Base{Path: f.disk, Format: "qcow2"}, f.diskMB); errs[i] != nil {
				return
			}
			if machines[i], errs[i] = f.engine.Start(ctx, spec); errs[i] == nil {
				errs[i] = tell(ctx, machines[i], []byte{'?'})
			}
		})
	}
	wg.Wait()
	took := sinceMS(began)
	err := errors.Join(errs...)
	if err == nil && look != nil {
		err = look(machines[0])
	}
	for _, m := range machines {
		if m != nil {
			err = errors.Join(err, m.Kill(), os.Remove(m.Disk()))
		}
	}
	return took, err
}

// ofItsOwn is how much memory a process has of its own in what it has mapped of a
// file of that name, or in all, 10⁶ bytes.
func ofItsOwn(ctx context.Context, pid int, name string) (float64, error) {
	select {
	case <-time.After(2 * time.Second): // its guest goes on with what it did
	case <-ctx.Done():
		return nan, ctx.Err()
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return nan, err
	}
	sum, counts := 0.0, name == ""
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 3 && fields[0] == "Anonymous:" && counts:
			kb, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nan, err
			}
			sum += kb * 1024 / 1e6
		case len(fields) > 4 && strings.Contains(fields[0], "-"):
			counts = name == "" || filepath.Base(fields[len(fields)-1]) == name
		}
	}
	return sum, nil
}
