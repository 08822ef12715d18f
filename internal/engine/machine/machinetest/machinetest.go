// Package machinetest is the conformance suite of [machine.Engine]. It runs real
// machines, including one whose starter is killed.
//
// It is not a fake engine (that is machine/local) and does not test the protocols
// on a machine's ports: its guest only echoes.
//
// Trap: a killed test leaves machines behind. A later test does not find them,
// because it uses other directories.
package machinetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt/internal/engine/machine"
)

// patience is the timeout of every wait for a guest. It is long because a boot
// in software emulation on a busy host is slow.
const patience = 10 * time.Minute

// starterEnv holds the spec of the machine that a second process of the test
// starts before it is killed.
const starterEnv = "HOLT_MACHINETEST_START"

// Subject is an engine under test.
type Subject struct {
	// Open returns a fresh engine, as a new daemon would have.
	Open func(t *testing.T) machine.Engine
	// Spec returns a spec that boots the stand-in of [Guest]; the suite sets ID, Dir and Disk.
	Spec func(t *testing.T) machine.Spec
	// Root is the raw image below the root disks, if the engine boots nothing without
	// one. Otherwise only the tests of snapshots have disks, over an empty image.
	Root string
	// Ports are those on which the stand-in echoes. Nil: both.
	Ports []string
	// Broken returns an engine, and changes the spec, so that a start fails after a
	// process was launched.
	Broken func(t *testing.T, spec *machine.Spec) machine.Engine
}

// Run runs the suite. It must be called by a test function directly: it runs
// that function again in a second process.
func Run(t *testing.T, s Subject) {
	if spec := os.Getenv(starterEnv); spec != "" {
		s.startAndWait(t, spec)
		return
	}
	s.checkRoot(t)
	if s.Ports == nil {
		s.Ports = []string{machine.PortControl, machine.PortFiles}
	}
	spec := s.Spec(t)
	type test struct {
		name string
		run  func(*testing.T, *lab)
	}
	// A boot takes seconds, so these tests share one machine. Those that end it
	// show that its directory can be reused.
	shared := newLab(t, s, spec)
	together := []test{
		{"Echo", testEcho},
		{"DialAgain", testDialAgain},
		{"SecondStart", testSecondStart},
		{"Release", testRelease},
		{"PowerDown", testPowerDown},
		{"Murder", testMurder},
		{"Kill", testKill},
	}
	if !s.Open(t).Capabilities().MemorySnapshot {
		together = append([]test{{"NoSnapshot", testNoSnapshot}}, together...)
	}
	if !s.Open(t).Capabilities().Growing {
		together = append([]test{{"NoGrowth", testNoGrowth}}, together...)
	}
	for _, test := range together {
		t.Run(test.name, func(t *testing.T) { test.run(t, shared) })
	}
	tests := []test{
		{"AdoptAfterKill9", testAdoptAfterKill9},
		{"Strays", testStrays},
		{"HalfStarted", testHalfStarted},
		{"Undo", testUndo},
		{"NeverTrustAPID", testNeverTrustAPID},
		{"Three", testThree},
	}
	if s.Open(t).Capabilities().MemorySnapshot {
		tests = append(tests, test{"Snapshot", testSnapshot})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, newLab(t, s, spec)) })
	}
}

// lab is a directory of machines, which end with its test.
type lab struct {
	Subject
	test  *testing.T // the test that owns it
	spec  machine.Spec
	root  string
	start string // name of the test function
	count int

	engine  machine.Engine // of the shared machine
	machine machine.Machine
	where   machine.Spec // its own
}

// shared returns the live machine that tests share: that of the previous test,
// or a new one in the same directory.
func (l *lab) shared(t *testing.T) machine.Machine {
	t.Helper()
	if l.engine == nil {
		l.engine, l.where = l.Open(l.test), l.next(t)
	}
	if l.machine == nil || ended(l.machine) {
		l.machine = l.launch(t, l.engine, l.where)
	}
	l.alive(t, l.machine)
	return l.machine
}

func ended(m machine.Machine) bool {
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

func newLab(t *testing.T, s Subject, spec machine.Spec) *lab {
	top, _, _ := strings.Cut(t.Name(), "/")
	// Longer than a socket address.
	root := filepath.Join(t.TempDir(), strings.Repeat("long-", 24))
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	l := &lab{Subject: s, test: t, spec: spec, root: root, start: top}
	t.Cleanup(func() {
		// No process may be left, even after a failure.
		left, err := machine.FindStrays(root, func(machine.Process) bool { return true }, machine.Process.Kill)
		if err != nil {
			t.Error(err)
		}
		for _, p := range left {
			t.Errorf("left behind: process %d of %s", p.Process.PID, p.Dir)
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// next returns the spec of a new machine.
func (l *lab) next(t *testing.T) machine.Spec {
	t.Helper()
	spec := l.diskless()
	if l.Root == "" {
		return spec
	}
	spec.Disk = spec.Dir + ".disk"
	sizeMB, err := l.rootMB()
	if err == nil {
		err = l.Open(t).CreateDisk(t.Context(), spec.Disk, machine.Base{Path: l.Root}, sizeMB)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// diskless returns the spec of a new machine that gets its disk later, if any.
func (l *lab) diskless() machine.Spec {
	l.count++
	spec := l.spec
	spec.ID = fmt.Sprintf("test,%d", l.count) // a comma, which QEMU's options need escaped
	spec.Dir = filepath.Join(l.root, fmt.Sprint("machine-", l.count))
	return spec
}

// rootMB returns the size of Root, MiB.
func (l *lab) rootMB() (int, error) {
	info, err := os.Stat(l.Root)
	if err != nil {
		return 0, err
	}
	return int((info.Size() + 1<<20 - 1) >> 20), nil
}

// launch starts a machine that ends with the lab.
func (l *lab) launch(t *testing.T, e machine.Engine, spec machine.Spec) machine.Machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := e.Start(ctx, spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	l.own(m)
	return m
}

func (l *lab) adopt(t *testing.T, e machine.Engine, dir string) machine.Machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := e.Adopt(ctx, dir)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	l.own(m)
	return m
}

func (l *lab) own(m machine.Machine) {
	l.test.Cleanup(func() {
		if l.test.Failed() {
			b, _ := os.ReadFile(m.Console())
			l.test.Logf("console of %d:\n%s", m.PID(), b[max(0, len(b)-4096):])
		}
		m.Release()
		if err := m.Kill(); err != nil {
			l.test.Errorf("kill at the end: %v", err)
		}
	})
}

// dial connects to a port and closes the connection at the end of the test.
func dial(t *testing.T, m machine.Machine, port string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := m.Dial(ctx, port)
	if err != nil {
		t.Fatalf("dial %s: %v", port, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echo sends a random line and waits for its echo, ignoring stale bytes.
func echo(conn net.Conn) error {
	var nonce [16]byte
	rand.Read(nonce[:])
	line := fmt.Appendf(nil, "%x\n", nonce)
	conn.SetDeadline(time.Now().Add(patience))
	defer conn.SetDeadline(time.Time{})
	if _, err := conn.Write(line); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(got, line) {
		n, err := conn.Read(buf)
		if err != nil {
			return fmt.Errorf("read after %q: %w", got, err)
		}
		got = append(got, buf[:n]...)
	}
	return nil
}

// alive fails the test unless the ports echo.
func (l *lab) alive(t *testing.T, m machine.Machine) {
	t.Helper()
	for _, port := range l.Ports {
		if err := echo(dial(t, m, port)); err != nil {
			t.Fatalf("echo on %s: %v", port, err)
		}
	}
}

// ends fails the test unless the machine ends.
func ends(t *testing.T, m machine.Machine) {
	t.Helper()
	select {
	case <-m.Done():
	case <-time.After(patience):
		t.Fatal("the machine did not end")
	}
}

// gone fails the test unless nothing runs in dir, for a fresh engine.
func (l *lab) gone(t *testing.T, dir string) {
	t.Helper()
	if _, err := l.Open(t).Adopt(t.Context(), dir); !errors.Is(err, machine.ErrGone) {
		t.Errorf("adopt of a dead machine: %v", err)
	}
}

// waitFor polls until yes returns true, for conditions without a notification.
func waitFor(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !yes(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// startInProcess starts the machine in a second process and returns it.
func (l *lab) startInProcess(t *testing.T, spec machine.Spec) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+l.start+"$", "-test.v")
	cmd.Env = append(os.Environ(), starterEnv+"="+string(b))
	in, err := cmd.StdinPipe() // closed with this process, which ends the other
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); strings.Contains(lines.Text(), startedMark) {
			return cmd
		}
	}
	t.Fatalf("the starter ended:\n%s", strings.Join(said, "\n"))
	return nil
}

const startedMark = "machinetest: started"

// startAndWait is the main function of the second process.
func (s Subject) startAndWait(t *testing.T, encoded string) {
	var spec machine.Spec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		t.Fatal(err)
	}
	m, err := s.Open(t).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := m.Dial(t.Context(), machine.PortControl)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(conn); err != nil {
		t.Fatal(err)
	}
	fmt.Println(startedMark)
	io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent ends
	m.Kill()
}

// checkRoot ends the suite if the engine cannot run.
func (s Subject) checkRoot(t *testing.T) {
	if s.Open(t).Capabilities().Acceleration == machine.AccelNone && os.Geteuid() != 0 {
		t.Fatal("this engine makes namespaces: run this test as root")
	}
}
