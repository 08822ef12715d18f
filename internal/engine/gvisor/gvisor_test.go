package gvisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

func open(t *testing.T, guest string) *gvisor.Engine {
	t.Helper()
	e, err := gvisor.Open(gvisor.Options{Program: machinetest.Holt(t), Guest: guest})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestConformance(t *testing.T) {
	machinetest.Run(t, machinetest.Subject{
		Open: func(t *testing.T) machine.Engine { return open(t, machinetest.GuestDir(t)) },
		Spec: func(t *testing.T) machine.Spec {
			return machine.Spec{CPUs: 1, MemoryMB: 128, Network: true, Unserved: true}
		},
		Root:  machinetest.Base(t, machinetest.Guest(t)).Root,
		Ports: []string{machine.PortControl}, // the keeper has the other one
		Broken: func(t *testing.T, spec *machine.Spec) machine.Engine {
			return open(t, "/nonexistent") // it cannot be mounted
		},
	})
}

// stand is a directory with a machine of the stand-in guest.
type stand struct {
	*testing.T
	*gvisor.Engine
	dir  string
	spec machine.Spec
	machine.Machine
}

// newStand starts a machine, which is killed at the end of the test.
func newStand(t *testing.T, memoryMB int) *stand {
	t.Helper()
	s := &stand{T: t, Engine: open(t, machinetest.GuestDir(t)), dir: t.TempDir()}
	s.spec = machine.Spec{ID: "x", Dir: s.path("machine"), Disk: s.path("disk"), CPUs: 1, MemoryMB: memoryMB, Unserved: true}
	im := machinetest.Base(t, machinetest.Guest(t))
	if err := s.CreateDisk(t.Context(), s.spec.Disk, machine.Base{Path: im.Root}, im.RootMB); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Machine == nil {
			return
		}
		if t.Failed() {
			for _, name := range []string{machine.ConsoleFile, "keeper.log"} {
				b, _ := os.ReadFile(filepath.Join(s.spec.Dir, name))
				t.Logf("%s:\n%s", name, b[max(0, len(b)-2000):])
			}
		}
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		s.Release()
	})
	s.boot()
	return s
}

func (s *stand) path(name string) string { return filepath.Join(s.dir, name) }

// boot starts the machine, again if there was one.
func (s *stand) boot() {
	s.Helper()
	m, err := s.Start(s.Context(), s.spec)
	if err != nil {
		s.Fatal(err)
	}
	s.Machine = m
}

// says fails the test unless the guest gives that answer.
func (s *stand) says(request, want string) {
	s.Helper()
	if got, err := machinetest.Ask(s.Context(), s.Machine, request); err != nil || got != want {
		s.Errorf("%s: %q (%v), want %q", request, got, err, want)
	}
}

func (s *stand) ends() {
	s.Helper()
	select {
	case <-s.Done():
	case <-time.After(time.Minute):
		s.Fatal("the machine did not end")
	}
}

// TestEnded: Ended says how the last machine ended.
func TestEnded(t *testing.T) {
	s := newStand(t, 128)
	for _, end := range []struct {
		by   string
		want machine.EndKind
	}{
		{"end reboot", machine.EndReboot}, {"end off", machine.EndOff}, {"end exit", machine.EndOff}, {"power", machine.EndOff}, {"kill", machine.EndUnknown},
	} {
		s.says("recall", "")
		if got := s.Ended(s.spec.Dir); got != (machine.Ending{}) {
			t.Errorf("it runs, and ended %+v", got)
		}
		switch end.by {
		case "power":
			if err := s.PowerDown(t.Context()); err != nil {
				t.Error(err)
			}
		case "kill":
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
		default:
			if said, err := machinetest.Ask(t.Context(), s.Machine, end.by); err == nil {
				t.Errorf("%s: %q", end.by, said)
			}
		}
		s.ends()
		if got := s.Ended(s.spec.Dir); got.Kind != end.want {
			t.Errorf("%s: ended %+v", end.by, got)
		}
		s.boot()
	}
}

// TestOlderVersion: an image of an older gVisor is restored with the program that was kept for it, and refused without.
func TestOlderVersion(t *testing.T) {
	s := newStand(t, 128)
	opt := gvisor.Options{Program: machinetest.Holt(t), Guest: machinetest.GuestDir(t), Kept: s.path("kept")}
	err := s.Kill()
	if err == nil {
		s.Engine, err = gvisor.Open(opt)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.says("keep memory", "memory,")
	spec := machine.SnapshotSpec{Dir: s.path("image"), Disk: s.path("next"), End: true, Durable: true, Held: func(context.Context) error { return nil }}
	if _, err := s.Snapshot(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	const older = "v0.0.0-20260101000000-0123456789ab"
	record := filepath.Join(spec.Dir, machine.RecordFile)
	b, err := os.ReadFile(record)
	if err == nil {
		err = os.WriteFile(record, bytes.Replace(b, []byte(gvisor.Version), []byte(older), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.spec.Restore, s.spec.Disk = spec.Dir, spec.Disk
	if _, err := s.Start(t.Context(), s.spec); holt.CodeOf(err) != holt.Unsupported || holt.AsError(err).Hint == "" {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(opt.Kept, gvisor.Version), filepath.Join(opt.Kept, older)); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.says("recall", "memory,")
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	runs := slices.ContainsFunc(all, func(exe string) bool {
		is, _ := os.Readlink(exe)
		return is == filepath.Join(opt.Kept, older)
	})
	if !runs {
		t.Error("another program restored it")
	}
	for _, v := range []string{"1", "2", "3", "4"} { // of which the newest stay
		if err := os.WriteFile(filepath.Join(opt.Kept, "v0.0.0-2025010"+v), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	spec.Dir, spec.Disk = s.path("image2"), s.path("next2")
	if _, err := s.Snapshot(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(opt.Kept + "/*")
	if err != nil || len(left) != 4 || filepath.Base(left[3]) != gvisor.Version || filepath.Base(left[2]) != older {
		t.Errorf("kept: %v %v", left, err)
	}
}

// TestSnapshotUndone: a snapshot that fails late, at which the machine was to end, has no effect.
func TestSnapshotUndone(t *testing.T) {
	s := newStand(t, 128)
	s.says("keep memory", "memory,")
	s.says("write 1 disk", "disk")
	spec := machine.SnapshotSpec{Dir: s.path("image"), Disk: s.path("next"), End: true}
	spec.Held = func(context.Context) error { return os.RemoveAll(spec.Dir) }
	if _, err := s.Snapshot(t.Context(), spec); err == nil {
		t.Fatal("it succeeded")
	}
	s.says("recall", "memory,")
	s.says("read 1", "disk")
	s.says("write 2 after", "after")
	s.left("disk", "machine")
	if s.Disk() != s.spec.Disk {
		t.Errorf("its disk is %s", s.Disk())
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.says("read 2", "after")
}

// left fails the test unless the directory has just these files.
func (s *stand) left(names ...string) {
	s.Helper()
	got, err := filepath.Glob(s.path("*"))
	if err != nil || len(got) != len(names) {
		s.Errorf("left: %v (%v), want %v", got, err, names)
	}
}

// TestSnapshotOnFullHost: it returns OutOfSpace, and the machine continues.
func TestSnapshotOnFullHost(t *testing.T) {
	small := t.TempDir()
	mount := func(source, kind string, flags uintptr, options string) {
		t.Helper()
		if err := unix.Mount(source, small, kind, flags, options); err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			t.Cleanup(func() { unix.Unmount(small, unix.MNT_DETACH) })
		}
	}
	mount(small, "none", unix.MS_BIND, "") // shared, as mounts of hosts with systemd
	mount("", "", unix.MS_SHARED, "")
	s := newStand(t, 256)
	mount("tmpfs", "tmpfs", 0, "size=100m") // it gets there although the machine runs
	s.says("fill 150 1", "150")
	s.says("write 1 disk", "disk")
	sum, err := machinetest.Ask(t.Context(), s.Machine, "sum")
	if err != nil {
		t.Fatal(err)
	}
	spec := machine.SnapshotSpec{Dir: filepath.Join(small, "image"), Disk: s.path("next")}
	if _, err := s.Snapshot(t.Context(), spec); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
	s.left("disk", "machine")
	s.says("sum", sum)
	s.says("read 1", "disk")
	spec.Dir = s.path("image")
	if _, err := s.Snapshot(t.Context(), spec); err != nil {
		t.Error(err)
	}
}

// TestKilledInSnapshot: the keeper is killed before the disks change their names, and while they do. The
// machine's disk is where [machine.SnapshotSpec] says that it is.
func TestKilledInSnapshot(t *testing.T) {
	s := newStand(t, 128)
	word := "begun"
	s.says("write 1 begun", word)
	between := 0
	for n := range 6 {
		base, err := s.DiskBase(t.Context(), s.spec.Disk)
		if err != nil {
			t.Fatal(err)
		}
		old, next := s.spec.Disk, s.path("disk"+string(rune('a'+n)))
		spec := machine.SnapshotSpec{Dir: s.path("image" + string(rune('a'+n))), Disk: next}
		killed := make(chan error, 1)
		if n == 0 {
			spec.Held = func(context.Context) error { killed <- unix.Kill(s.PID(), unix.SIGKILL); return nil }
		} else {
			go s.killAt(next, killed, s.PID())
		}
		_, err = s.Snapshot(t.Context(), spec)
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		s.ends()
		if n == 0 && !errors.Is(err, machine.ErrGone) {
			t.Errorf("snapshot: %v", err)
		}
		now, err := os.Stat(next)
		if err == nil {
			s.spec.Disk, base = next, machine.Base{Path: old, Format: gvisor.DiskFormat}
			if was, err := os.Stat(old); err != nil || os.SameFile(was, now) {
				between++
			}
		} else if n > 0 {
			t.Error(err)
		}
		if got, err := s.DiskBase(t.Context(), s.spec.Disk); err != nil || got != base {
			t.Errorf("%d: the base of the disk is %+v (%v), want %+v", n, got, err, base)
		}
		s.boot()
		s.says("read 1", word)
		word += "x"
		s.says("write 1 "+word, word)
	}
	t.Logf("killed between the last two steps: %d of 5 times", between)
}

// killAt kills a process as soon as path exists.
func (s *stand) killAt(path string, killed chan<- error, pid int) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		killed <- err
		return
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_CREATE)
	for err == nil {
		if _, err = unix.Read(fd, make([]byte, 4096)); err != nil {
			break
		}
		if _, err := os.Lstat(path); err == nil {
			killed <- unix.Kill(pid, unix.SIGKILL)
			return
		}
	}
	killed <- err
}

// TestInterrupted: the daemon ends in the middle of a snapshot. The next one adopts the machine with its disk.
func TestInterrupted(t *testing.T) {
	s := newStand(t, 128)
	s.says("keep memory", "memory,")
	s.says("write 1 disk", "disk")
	for n, goOn := range []bool{false, true} {
		suffix := string(rune('a' + n))
		spec := machine.SnapshotSpec{Dir: s.path("image" + suffix), Disk: s.path("disk" + suffix)}
		if err := os.Mkdir(spec.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s.Release()
		s.interrupt(spec, goOn)
		m, err := open(t, machinetest.GuestDir(t)).Adopt(t.Context(), s.spec.Dir)
		if err != nil {
			t.Fatal(err)
		}
		s.Machine = m
		if goOn {
			if im, err := machine.ReadImage(spec.Dir); err != nil || im.Spec.Disk != s.spec.Disk {
				t.Errorf("the image: %+v (%v)", im, err)
			}
			s.spec.Disk = spec.Disk
		}
		if m.Disk() != s.spec.Disk {
			t.Errorf("go on %v: the machine has the disk %s, want %s", goOn, m.Disk(), s.spec.Disk)
		}
		if left, err := filepath.Glob(s.path("*.frozen")); err != nil || len(left) > 0 {
			t.Errorf("left: %v (%v)", left, err)
		}
		s.says("recall", "memory,")
		s.says("read 1", "disk")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s.boot()
	s.says("read 1", "disk")
}

// interrupt requests a snapshot and closes the connection when the machine stands still, or as soon as it
// was told to go on.
func (s *stand) interrupt(spec machine.SnapshotSpec, goOn bool) {
	s.Helper()
	dir, err := machine.OpenDir(s.spec.Dir)
	if err != nil {
		s.Fatal(err)
	}
	defer dir.Close()
	conn, err := dir.Dial(s.Context(), gvisor.KeeperSocket)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	var held gvisor.Answer
	enc := json.NewEncoder(conn)
	if err := errors.Join(enc.Encode(gvisor.Request{Op: gvisor.OpSnapshot, Snapshot: &spec}), json.NewDecoder(conn).Decode(&held)); err != nil || held.Error != nil {
		s.Fatal(err, held.Error)
	}
	if goOn {
		if err := enc.Encode(gvisor.Request{Op: gvisor.OpGoOn}); err != nil {
			s.Fatal(err)
		}
	}
}
