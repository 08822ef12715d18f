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

	"holt/internal/engine/machine"
	"holt/internal/engine/qemu"
	"holt/internal/image"
)

const restoreAbout = `
Machines outside any daemon, whose guest is the load generator: 512 MB of memory of which it holds 200, and 2 GB of which it holds 1,300. It is the engine's share of a
fork: a *restore* is an overlay, a new QEMU and the guest's first answer on a port; of several at once, the last one's. *Of its own* is what a fork does not share, 2 s
after its first answer.`

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

// frozen is a machine of which a snapshot was taken, to be restored.
type frozen struct {
	machineShape
	dir    string
	engine machine.Engine
	m      machine.Machine
	image  string
	disk   string // that goes with it
	diskMB int
	count  int
}

// restoreSection measures restores.
func restoreSection(ctx context.Context, b *bench, dir string) (*section, error) {
	s := &section{title: "Machines: restores", about: restoreAbout, columns: []string{smallShape.name, largeShape.name}}
	var columns []column[*frozen]
	for _, shape := range []machineShape{smallShape, largeShape} {
		f, end, err := openFrozen(ctx, b, dir, shape)
		if err != nil {
			return nil, err
		}
		defer end()
		columns = append(columns, column[*frozen]{shape.name, f})
	}
	var works []work[*frozen]
	for _, n := range []int{1, 4, 10} {
		works = append(works, work[*frozen]{name: fmt.Sprintf("restore → first answer, %d at once", n), unit: millis,
			measure: func(ctx context.Context, f *frozen) (float64, error) { return f.restore(ctx, n, nil) }})
	}
	guest := &figure{name: "of that: the guest's memory", unit: megabytesHeld}
	works = append(works, work[*frozen]{name: "memory of a fork's own", unit: megabytesHeld, measure: func(ctx context.Context, f *frozen) (float64, error) {
		held := nan
		_, err := f.restore(ctx, 1, func(m machine.Machine) (err error) {
			held, err = bothOwn(ctx, m.PID(), f.name, guest)
			return err
		})
		return held, err
	}})
	for _, w := range works {
		f, err := rounds(ctx, b, b.rounds, w, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	s.figures = append(s.figures, guest)
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
	f.disk, f.image = m.Disk(), f.path("image")
	err = tell(ctx, m, binary.LittleEndian.AppendUint64([]byte{'d'}, uint64(f.held)))
	if err == nil {
		_, err = m.Snapshot(ctx, machine.SnapshotSpec{Dir: f.image, Disk: f.path("disk")})
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return f, end, nil
}

func (f *frozen) path(what string) string {
	f.count++
	return filepath.Join(f.dir, fmt.Sprint(what, "-", f.count))
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

// bothOwn is how much memory a process has of its own, and adds to a column of the
// figure what of it is a guest's, 10⁶ bytes.
func bothOwn(ctx context.Context, pid int, column string, guest *figure) (float64, error) {
	if err := rest(ctx, 2*time.Second); err != nil { // its guest goes on with what it did
		return nan, err
	}
	all, err := ofItsOwn(pid, "")
	if err != nil {
		return nan, err
	}
	memory, err := ofItsOwn(pid, machine.MemoryFile)
	guest.add(column, memory)
	return all, err
}

// rest lets time pass.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ofItsOwn is how much memory a process has of its own in what it has mapped of a
// file of that name, or in all, 10⁶ bytes.
func ofItsOwn(pid int, name string) (float64, error) {
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
