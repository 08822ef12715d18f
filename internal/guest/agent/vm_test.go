package agent

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/engine/qemu"
	"holt/internal/guest/channel"
)

// vm is a real machine: the image base under QEMU, with virtio-serial ports and this tree's agent.
type vm struct{ machine.Machine }

func startVM(t *testing.T, args ...string) vm {
	t.Helper()
	im := machinetest.Base(t, machinetest.Agent(t))
	engine, err := qemu.Open(t.Context(), qemu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	disk := filepath.Join(dir, "root.qcow2")
	if err := engine.CreateDisk(t.Context(), disk, machine.Base{Path: im.Root}, im.RootMB); err != nil {
		t.Fatal(err)
	}
	m, err := engine.Start(t.Context(), machine.Spec{
		ID: "agent-test", Dir: dir, Kernel: im.Kernel, Initrd: im.Initrd, Args: slices.Concat(im.Args, args),
		Disk: disk, CPUs: 1, MemoryMB: 1024, Network: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	v := vm{m}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s", v.console(t))
		}
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func (v vm) console(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(v.Console())
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// ends fails the test unless the machine ends by itself.
func (v vm) ends(t *testing.T) {
	t.Helper()
	select {
	case <-v.Done():
	case <-time.After(patience):
		t.Fatal("the machine does not end")
	}
}

// dial reconnects when no answer comes: QEMU can detect the end of a connection
// in a write and then throttle the port until the next one ends.
func (v vm) dial(t *testing.T, port string) net.Conn {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		s, err := v.try(t.Context(), port)
		if err == nil {
			t.Cleanup(func() { s.Close() })
			return s
		}
		if holt.CodeOf(err) != holt.Timeout || time.Now().After(end) {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

func (v vm) try(ctx context.Context, port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := v.Dial(ctx, port)
	if err != nil {
		return nil, err
	}
	return channel.Dial(ctx, conn)
}

func (v vm) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(v.dial(t, machine.PortControl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func hello(t *testing.T, c *Client) Hello {
	t.Helper()
	h, err := c.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestMachine runs in a machine what other tests run in namespaces, and tests
// clock, root disk and a restart of the agent.
func TestMachine(t *testing.T) {
	v := startVM(t)
	fs := serveFS(t, v.dial(t, machine.PortFiles), newTestFS())
	c := v.client(t)
	first := hello(t, c)
	early := openTerm(t, c, holt.TerminalSpec{Command: "tty", Cwd: "/"}) // before systemd has mounted anything
	watch(t, c, early.ID, holt.AttachSpec{Offset: -1}).shows(t, "/dev/pts/0")
	<-fs.begun
	t.Log(sh(t, c, "id; cat /proc/self/cgroup /proc/self/oom_score_adj; ls /sys/fs/cgroup; df; ip a; cat /etc/resolv.conf; ulimit -n"))
	sums := strings.Fields(sh(t, c, `cd /home/agent; head -c 4000000 /dev/urandom | tee big | sha256sum; sync big
		dd if=big bs=64k iflag=direct status=none | sha256sum # past the guest's cache`))
	if len(sums) != 4 || sums[0] != sums[2] {
		t.Errorf("read back %q", sums)
	}
	t.Logf("requests by opcode: %v", fs.counts())
	shellInMachine(t, c)
	if _, err := c.Measure(t.Context(), 8<<20, 32<<20); err != nil {
		t.Error(err)
	}

	// A host that ends during transfers.
	for range 3 {
		conn := v.dial(t, machine.PortControl) // which ends the former
		c, err := NewClient(conn)
		if err != nil {
			t.Fatal(err)
		}
		go c.Measure(t.Context(), 64<<20, 64<<20)
		go c.ReadFile(t.Context(), "/dev/zero", 0, -1, io.Discard)
		hello(t, c)
		conn.Close()
	}
	identity(t, v.client(t))
	rootDisk(t, v.client(t))

	// The agent is killed: it is restarted, and the workspace stays mounted.
	c = v.client(t)
	c.StartRun(t.Context(), holt.NewRunID(), holt.RunSpec{Command: "kill -9 $PPID", User: "root", Cwd: "/"}) // its answer may be lost
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the control channel does not notice that the agent is gone")
	}
	c = v.client(t)
	if again := hello(t, c); again.Instance == first.Instance || again.BootID != first.BootID {
		t.Errorf("the second agent says %+v, the first said %+v", again, first)
	}
	if r := runToEnd(t, c, holt.RunSpec{Command: "echo back > f; cat f"}); r.stdout != "back\n" {
		t.Errorf("%+v", r)
	}
}

// shellInMachine uses a login shell of the machine.
func shellInMachine(t *testing.T, c *Client) {
	t.Helper()
	info := openTerm(t, c, holt.TerminalSpec{Size: holt.TerminalSize{Rows: 33, Cols: 99}})
	s := watch(t, c, info.ID, holt.AttachSpec{Offset: -1})
	s.typeIn(t, "stty size; tty; cat /proc/self/cgroup; shopt login_shell; exit 7\n")
	for _, want := range []string{"33 99\r\n", "/dev/pts/", "/holt/" + string(info.ID), "login_shell    \ton"} {
		s.shows(t, want)
	}
	if end := s.ends(t); end.ExitCode != 7 {
		t.Errorf("the shell ended as %+v: %q", end, s.text)
	}
}

// inventoried returns an inventory with every directory read: on a busy host
// the time limit may expire before.
func inventoried(t *testing.T, c *Client) (all holt.Inventory, err error) {
	t.Helper()
	for range 5 {
		if all, err = c.Inventory(t.Context()); err != nil || all.Unread == nil {
			return all, err
		}
	}
	return all, err
}

// rootDisk lists the files of the machine's root disk, before and after some are created.
func rootDisk(t *testing.T, c *Client) {
	t.Helper()
	began := time.Now()
	before, err := inventoried(t, c)
	t.Logf("inventory of %d packages, %d processes and %d files: %v", len(before.Packages), len(before.Processes), len(before.RootFiles), time.Since(began))
	if err != nil || len(before.RootFiles) < 100 || before.NoFiles != "" || before.Unread != nil || before.Omitted > 0 {
		t.Errorf("%d files, unread %q, %q, %v", len(before.RootFiles), before.Unread, before.NoFiles, err)
	}
	sh(t, c, "echo x > /etc/new; mkdir -p /opt/heap/; echo y > /home/agent/not; mount -t tmpfs x /mnt; echo z > /mnt/not")
	after, err := inventoried(t, c)
	if err != nil {
		t.Error(err)
	}
	had := map[holt.OSString]bool{}
	for _, f := range before.RootFiles {
		had[f.Path] = true
	}
	var came []string
	for _, f := range after.RootFiles {
		if !had[f.Path] {
			came = append(came, string(f.Path))
		}
	}
	slices.Sort(came)
	if !slices.Equal(came, []string{"/etc/new", "/opt/heap"}) || !had["/etc/passwd"] || had["/etc/hostname"] || had["/usr/bin/env"] {
		t.Errorf("came: %q", came)
	}
	sh(t, c, "umount /mnt; mkdir /opt/heap/{1..150}; for d in /opt/heap/*; do (cd $d && touch {1..200}); done; sync")
	began = time.Now()
	full, err := c.Inventory(t.Context())
	t.Logf("with 30,000 more: %d files, %d unread, %v", len(full.RootFiles), len(full.Unread), time.Since(began))
	if err != nil || full.NoFiles != "" || len(full.Unread) == 0 || full.Omitted > 0 {
		t.Errorf("%d files, %q, %v", len(full.RootFiles), full.NoFiles, err)
	}
	sh(t, c, "rm -r /opt/heap /etc/new")
}

// identity gives the machine another name and time.
func identity(t *testing.T, c *Client) {
	t.Helper()
	now := time.Now().Add(time.Hour)
	machine := strings.Repeat("5eed", 8)
	done, err := c.Configure(t.Context(), Identity{Hostname: "curie", Now: now, Entropy: make([]byte, 64), MachineID: machine, Restored: true})
	if err != nil || done.Hostname != "curie" || done.Now.Before(now) || done.MachineID != machine || done.HostKeys != nil || len(done.Drawn) != drawnBytes {
		t.Errorf("%+v, %v", done, err)
	}
	again, err := c.Configure(t.Context(), Identity{Entropy: make([]byte, 64)})
	if err != nil || len(again.Drawn) != drawnBytes || bytes.Equal(again.Drawn, done.Drawn) {
		t.Errorf("%+v, %v: it had drawn %x", again, err, done.Drawn)
	}
	if h := hello(t, c); h.Hostname != "curie" || h.Now.Before(now) {
		t.Errorf("after configure: %+v", h)
	}
}

// A machine that is asked to end before its init listens still ends.
func TestMachineEndsEarly(t *testing.T) {
	v := startVM(t)
	c := v.client(t)
	hello(t, c)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	v.ends(t)
}

// A machine that cannot boot prints the reason and powers off.
func TestMachineWithoutRoot(t *testing.T) {
	v := startVM(t, "holt.root=/dev/console")
	v.ends(t)
	if said := v.console(t); !strings.Contains(said, "cannot mount the root file system") {
		t.Errorf("console: %s", said)
	}
}
