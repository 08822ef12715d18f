package machinetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

func testEcho(t *testing.T, l *lab) {
	m := l.shared(t)
	if err := unix.Kill(m.PID(), 0); err != nil {
		t.Errorf("process %d: %v", m.PID(), err)
	}
	waitFor(t, "the console", func() bool {
		b, err := os.ReadFile(m.Console())
		return err == nil && bytes.Contains(b, []byte("guest: ready"))
	})
	if _, err := m.Dial(t.Context(), "other"); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("dial an unknown port: %v", err)
	}
	if info, err := os.Stat(l.where.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("machine directory: %v, %v", info.Mode(), err)
	}
}

func testDialAgain(t *testing.T, l *lab) {
	m := l.shared(t)
	port := l.Ports[len(l.Ports)-1]
	first := dial(t, m, port)
	if err := echo(first); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := echo(dial(t, m, port)); err != nil {
			t.Fatalf("echo on a newer connection: %v", err)
		}
	}
	first.SetDeadline(time.Now().Add(patience))
	if n, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first connection lives on: %d bytes, %v", n, err)
	}
}

func testSecondStart(t *testing.T, l *lab) {
	m := l.shared(t)
	for _, e := range []machine.Engine{l.engine, l.Open(t)} {
		if _, err := e.Start(t.Context(), l.where); holt.CodeOf(err) != holt.Conflict {
			t.Errorf("second start: %v", err)
		}
	}
	l.alive(t, m)
}

func testAdoptAfterKill9(t *testing.T, l *lab) {
	spec := l.next(t)
	starter := l.startInProcess(t, spec)
	if err := starter.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	starter.Wait()
	m := l.adopt(t, l.Open(t), spec.Dir)
	l.alive(t, m)
	l.alive(t, m)
	if err := m.PowerDown(t.Context()); err != nil {
		t.Fatalf("power down: %v", err)
	}
	ends(t, m)
	l.gone(t, spec.Dir)
}

func testRelease(t *testing.T, l *lab) {
	m := l.shared(t)
	m.Release()
	m.Release() // a second Release does nothing
	if _, err := m.Dial(t.Context(), machine.PortControl); err == nil {
		t.Error("a released machine can be dialled")
	}
	if ended(m) {
		t.Error("release ended the machine")
	}
	l.machine = l.adopt(t, l.engine, l.where.Dir)
	l.alive(t, l.machine)
	if l.machine.PID() != m.PID() {
		t.Errorf("adopted process %d instead of %d", l.machine.PID(), m.PID())
	}
}

func testPowerDown(t *testing.T, l *lab) {
	m := l.shared(t)
	if err := m.PowerDown(t.Context()); err != nil {
		t.Fatalf("power down: %v", err)
	}
	ends(t, m)
	l.gone(t, l.where.Dir)
	if err := m.PowerDown(t.Context()); !errors.Is(err, machine.ErrGone) {
		t.Errorf("power down of a dead machine: %v", err)
	}
}

func testKill(t *testing.T, l *lab) {
	m := l.shared(t)
	for range 2 { // the second kills a dead machine
		if err := m.Kill(); err != nil {
			t.Fatalf("kill: %v", err)
		}
		ends(t, m)
	}
	if _, err := m.Dial(t.Context(), machine.PortControl); !errors.Is(err, machine.ErrGone) {
		t.Errorf("dial a dead machine: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(l.where.Dir, "*.sock")); err != nil || len(left) > 0 {
		t.Errorf("sockets left: %v, %v", left, err)
	}
	l.gone(t, l.where.Dir)
	l.gone(t, filepath.Join(l.root, "never-was"))
}

func testMurder(t *testing.T, l *lab) {
	m := l.shared(t)
	if err := unix.Kill(m.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ends(t, m)
	l.gone(t, l.where.Dir)
	m.Release()
}

func testStrays(t *testing.T, l *lab) {
	e := l.Open(t)
	spec := l.next(t)
	m := l.launch(t, e, spec)
	if strays, err := e.Strays(l.root); err != nil || len(strays) != 0 {
		t.Errorf("its own machine is a stray: %v, %v", strays, err)
	}
	if strays, err := l.Open(t).Strays(t.TempDir()); err != nil || len(strays) != 0 {
		t.Errorf("strays elsewhere: %v, %v", strays, err)
	}
	if strays, err := l.Open(t).Strays(filepath.Join(l.root, "absent")); err != nil || len(strays) != 0 {
		t.Errorf("strays nowhere: %v, %v", strays, err)
	}
	other := l.Open(t)
	strays, err := other.Strays(l.root)
	if err != nil || len(strays) != 1 || strays[0].Process.PID != m.PID() || strays[0].Dir != spec.Dir {
		t.Fatalf("strays: %+v, %v; want process %d in %s", strays, err, m.PID(), spec.Dir)
	}
	if err := strays[0].Kill(); err != nil {
		t.Fatal(err)
	}
	if strays, err := other.Strays(l.root); err != nil || len(strays) != 0 {
		t.Errorf("strays after the kill: %v, %v", strays, err)
	}
	ends(t, m)
}

func testUndo(t *testing.T, l *lab) {
	e := l.Open(t)
	broken := l.next(t)
	failing := l.Broken(t, &broken)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, start := range map[string]func() (machine.Machine, error){
		"broken":    func() (machine.Machine, error) { return failing.Start(t.Context(), broken) },
		"cancelled": func() (machine.Machine, error) { return e.Start(cancelled, l.next(t)) },
		"no cpu":    func() (machine.Machine, error) { s := l.next(t); s.CPUs = 0; return e.Start(t.Context(), s) },
	} {
		if m, err := start(); err == nil {
			m.Kill()
			t.Errorf("%s: started", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	if strays, err := l.Open(t).Strays(l.root); err != nil || len(strays) != 0 {
		t.Errorf("processes left: %v, %v", strays, err)
	}
	left := map[string]bool{}
	filepath.WalkDir(l.root, func(path string, d fs.DirEntry, err error) error {
		left[filepath.Base(path)] = true
		return err
	})
	for _, name := range []string{"control.sock", "files.sock", machine.RecordFile} {
		if left[name] {
			t.Errorf("%s left", name)
		}
	}
}

// testHalfStarted: the starter died before it recorded the machine.
func testHalfStarted(t *testing.T, l *lab) {
	e := l.Open(t)
	spec := l.next(t)
	m := l.launch(t, e, spec)
	m.Release()
	if err := os.Remove(filepath.Join(spec.Dir, machine.RecordFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(t.Context(), spec); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("start beside it: %v", err)
	}
	if strays, err := e.Strays(l.root); err != nil || len(strays) != 1 {
		t.Errorf("strays: %v, %v", strays, err)
	}
	l.gone(t, spec.Dir) // adopting ends it
	l.launch(t, e, spec)
}

// testNeverTrustAPID: the process id in the record now belongs to another process.
func testNeverTrustAPID(t *testing.T, l *lab) {
	bystander := exec.Command("sleep", "infinity")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		bystander.Process.Kill()
		bystander.Wait()
	})
	who, err := machine.Identify(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	e := l.Open(t)
	dir, err := machine.MakeDir(l.diskless().Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	earlier := who
	earlier.Start--
	for _, p := range []machine.Process{who, earlier} {
		if err := dir.WriteRecord(machine.Record{Engine: e.Name(), Process: p}); err != nil {
			t.Fatal(err)
		}
		l.gone(t, dir.Path)
		lock, err := dir.Lock() // held by another process
		if err != nil {
			t.Fatal(err)
		}
		l.gone(t, dir.Path)
		lock.Close()
	}
	if err := bystander.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the bystander was harmed: %v", err)
	}
}

// testThree starts three machines at once. Package e2e tests that their guests work concurrently.
func testThree(t *testing.T, l *lab) {
	e := l.Open(t)
	var machines [3]machine.Machine
	var errs [3]error
	specs := []machine.Spec{l.next(t), l.next(t), l.next(t)}
	var wg sync.WaitGroup
	for i, spec := range specs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			machines[i], errs[i] = e.Start(ctx, spec)
		})
	}
	wg.Wait()
	processes := map[int]bool{}
	for i, m := range machines {
		if errs[i] != nil {
			t.Errorf("machine %d: %v", i, errs[i])
			continue
		}
		l.own(m)
		processes[m.PID()] = true
	}
	if len(processes) != len(specs) {
		t.Fatalf("processes %v", processes)
	}
	for _, m := range machines {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
		ends(t, m)
	}
}
