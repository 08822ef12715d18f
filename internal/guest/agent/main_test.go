package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/channel"
)

// patience is the timeout of waits; tests do not assert durations. Machines run
// in software emulation, concurrently with other tests.
const patience = 10 * time.Minute

// program is the path of the real holt-guest, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "holt-guest")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "holt-guest")
	args := []string{"build", "-trimpath", "-o", program}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "holt/cmd/holt-guest")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build holt-guest: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// script becomes the agent, as PID 1 of its own namespaces. It hides root's
// login profile, because the host's could print something or wait for a lock.
const script = `mount -t proc proc /proc && mount -t tmpfs tmpfs /home && mkdir -m 777 /home/agent && mount -t tmpfs -o mode=700 tmpfs /root && exec "$@"`

// needRoot fails a test that needs root for namespaces, users or mounts.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test makes namespaces, users or mounts: run it as root")
	}
}

// guest is an agent that runs as a process in its own namespaces.
type guest struct {
	dir string
	cmd *exec.Cmd
	log *bytes.Buffer
}

// startGuest starts an agent, which is killed when the test ends. Tests that
// need a workspace pass its flag.
func startGuest(t *testing.T, extra ...string) *guest {
	t.Helper()
	needRoot(t)
	g := &guest{dir: t.TempDir(), log: new(bytes.Buffer)}
	cgroup := "holt-test-" + filepath.Base(filepath.Dir(g.dir))
	args := append([]string{"-c", script, "sh", program, "agent", "--verbose", "--control-socket", "control.sock", "--cgroup", cgroup}, extra...)
	g.cmd = exec.Command("/bin/sh", args...)
	g.cmd.Dir = g.dir
	g.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // as in a machine with one processor
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Unshareflags: unix.CLONE_NEWNS, // and makes mounts private
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		removeCgroups(t, cgroup)
		if strings.Contains(g.log.String(), "panic") || t.Failed() {
			t.Logf("agent's log:\n%s", g.log)
		}
		if strings.Contains(g.log.String(), "DATA RACE") || strings.Contains(g.log.String(), "panic") {
			t.Error("agent misbehaved")
		}
	})
	return g
}

// removeCgroups removes the cgroups of a killed guest once its processes are gone.
func removeCgroups(t *testing.T, name string) {
	mount := cgroupMount()
	if mount == "" {
		return
	}
	dir := filepath.Join(mount, name)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		(&groups{dir: dir}).sweep()
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("left: %v", err)
			return
		}
	}
}

// dial starts a session on one of the guest's sockets.
func (g *guest) dial(t *testing.T, socket string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var conn net.Conn
	for {
		var err error
		if conn, err = net.Dial("unix", filepath.Join(g.dir, socket)); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("agent does not listen: %v", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	s, err := channel.Dial(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (g *guest) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(g.dial(t, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// result is the outcome of following a run to its end.
type result struct {
	holt.Run
	stdout, stderr string
	gaps           int64
}

func follow(t *testing.T, c *Client, id holt.RunID, offset int64) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var r result
	err := c.FollowRun(ctx, id, offset, func(e holt.RunEvent) error {
		if e.Offset != offset {
			t.Errorf("event %s at offset %d, want %d", e.Kind, e.Offset, offset)
		}
		switch e.Kind {
		case holt.RunStdout:
			r.stdout += string(e.Data)
		case holt.RunStderr:
			r.stderr += string(e.Data)
		case holt.RunGap:
			r.gaps += e.Dropped
		case holt.RunExit:
			r.Run = *e.Run
		}
		offset += int64(len(e.Data)) + e.Dropped
		return nil
	})
	if err != nil {
		t.Fatalf("follow: %v", err)
	}
	return r
}

func runToEnd(t *testing.T, c *Client, spec holt.RunSpec) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	id := holt.NewRunID()
	if _, err := c.StartRun(ctx, id, spec); err != nil {
		t.Fatalf("start %v: %v", spec, err)
	}
	return follow(t, c, id, 0)
}

func sh(t *testing.T, c *Client, line string) string {
	t.Helper()
	r := runToEnd(t, c, holt.RunSpec{Command: holt.OSString(line), User: "root", Cwd: "/"})
	if r.ExitCode != 0 {
		t.Errorf("%s: exit code %d\n%s%s", line, r.ExitCode, r.stdout, r.stderr)
	}
	return r.stdout
}

func wantCode(t *testing.T, what string, err error, code holt.Code) {
	t.Helper()
	if holt.CodeOf(err) != code {
		t.Errorf("%s: %v (code %q), want code %q", what, err, holt.CodeOf(err), code)
	}
}
