package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/channel"
)

// vm is a real machine: QEMU by software emulation, real virtio-serial ports.
type vm struct {
	dir string
	cmd *exec.Cmd
}

// startVM boots HOLT_TEST_KERNEL with HOLT_TEST_INITRD and a throw-away copy
// of HOLT_TEST_ROOT (a raw ext4 image). The initramfs's /init must be this
// tree's holt-guest.
func startVM(t *testing.T) *vm {
	t.Helper()
	kernel, initrd, root := os.Getenv("HOLT_TEST_KERNEL"), os.Getenv("HOLT_TEST_INITRD"), os.Getenv("HOLT_TEST_ROOT")
	if kernel == "" || initrd == "" || root == "" {
		t.Skip("HOLT_TEST_KERNEL, HOLT_TEST_INITRD and HOLT_TEST_ROOT name no machine")
	}
	v := &vm{dir: t.TempDir()}
	args := []string{"-M", "q35,accel=tcg,usb=off,vmport=off,hpet=off", "-nodefaults", "-no-user-config", "-display", "none",
		"-m", "1024", "-smp", "1", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet panic=-1 holt.root=/dev/vda holt.net=10.0.2.15/24,10.0.2.2,10.0.2.3 " + os.Getenv("HOLT_TEST_ARGS"),
		"-serial", "file:console.log",
		"-drive", "if=none,id=d0,format=raw,snapshot=on,file=" + root, "-device", "virtio-blk-pci,drive=d0",
		"-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0", "-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci,id=vs0"}
	for i, name := range []string{ControlPort, FilesPort} {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,path=%s.sock,server=on,wait=off", name, name),
			"-device", fmt.Sprintf("virtserialport,bus=vs0.0,nr=%d,chardev=%s,name=%s", i+1, name, name))
	}
	v.cmd = exec.Command("qemu-system-x86_64", args...)
	v.cmd.Dir = v.dir
	v.cmd.Stderr = os.Stderr
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		v.cmd.Process.Kill()
		v.cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(v.dir, "console.log"))
			t.Logf("console:\n%s", b[max(0, len(b)-20000):])
		}
	})
	return v
}

func (v *vm) dial(t *testing.T, port string) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, err := net.Dial("unix", filepath.Join(v.dir, port+".sock"))
		if err == nil {
			s, err := channel.Dial(ctx, conn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func (v *vm) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(v.dial(t, ControlPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// median runs f n times.
func median(t *testing.T, n int, f func() error) time.Duration {
	t.Helper()
	var all []time.Duration
	for range n {
		start := time.Now()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[n/2]
}

func TestMachine(t *testing.T) {
	start := time.Now()
	v := startVM(t)
	fs := serveFS(t, v.dial(t, FilesPort), newTestFS())
	c := v.client(t)
	ctx := t.Context()
	h, err := c.Hello(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("agent answers after %v, guest's own clock %d ms", time.Since(start), h.UptimeMS)
	<-fs.begun
	t.Logf("echo (hello) median %v", median(t, 50, func() error { _, err := c.Hello(ctx); return err }))
	t.Logf("start + follow of /bin/true median %v", median(t, 20, func() error {
		id := holt.NewRunID()
		if _, err := c.StartRun(ctx, id, holt.RunSpec{Argv: []string{"/bin/true"}, Cwd: "/"}); err != nil {
			return err
		}
		return c.FollowRun(ctx, id, 0, func(holt.RunEvent) error { return nil })
	}))
	for range 3 {
		r, err := c.Measure(ctx, 128<<20, 512<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("control channel: into the guest %.0f MB/s, out of it %.0f MB/s", r.IntoGuest, r.OutOfGuest)
	}
	line := "id; cat /proc/self/cgroup /proc/self/oom_score_adj; ls /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.subtree_control; df; ip a; cat /etc/resolv.conf; ulimit -n"
	t.Log(runToEnd(t, c, holt.RunSpec{Command: line, Cwd: "/"}).stdout)
	for _, line := range []string{
		"time dd if=/dev/zero of=/home/agent/big bs=1M count=256 conv=fsync",
		"echo 3 > /proc/sys/vm/drop_caches; time dd if=/home/agent/big of=/dev/null bs=1M",
	} {
		r := runToEnd(t, c, holt.RunSpec{Command: line, Cwd: "/", User: "root"})
		t.Logf("%s\n%s%s", line, r.stdout, r.stderr)
	}
	t.Logf("requests by opcode: %v", fs.counts())
	c.Close() // QEMU takes one connection at a time
	// Reconnect in the middle of a transfer.
	t.Logf("reconnect median %v", median(t, 10, func() error {
		conn := v.dial(t, ControlPort)
		c, err := NewClient(conn)
		if err != nil {
			return err
		}
		go c.Measure(ctx, 64<<20, 64<<20)
		go c.ReadFile(ctx, "/dev/zero", 0, -1, io.Discard)
		_, err = c.Hello(ctx)
		conn.Close()
		return err
	}))
	c = v.client(t)
	if err := c.Freeze(ctx, time.Second); err != nil {
		t.Error(err)
	}
	if err := c.Thaw(ctx); err != nil {
		t.Error(err)
	}
	now := time.Now().Add(time.Hour)
	if err := c.Configure(ctx, Identity{Hostname: "curie", Now: now, Entropy: make([]byte, 64)}); err != nil {
		t.Error(err)
	}
	if h, err := c.Hello(ctx); err != nil || h.Hostname != "curie" || h.Now.Before(now) {
		t.Errorf("after configure: %+v, %v", h, err)
	}
	if err := c.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := v.cmd.Wait(); err != nil {
		t.Errorf("qemu ended with %v", err)
	}
}

// A machine that cannot come up says why and powers off.
func TestMachineWithoutRoot(t *testing.T) {
	t.Setenv("HOLT_TEST_ARGS", "holt.root=/dev/console")
	v := startVM(t)
	if err := v.cmd.Wait(); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(filepath.Join(v.dir, "console.log"))
	if err != nil || !strings.Contains(string(b), "cannot mount the root file system") {
		t.Errorf("console: %s, %v", b, err)
	}
}

// The agent is killed: another comes, the control channel notices, and the
// workspace stays as it is.
func TestMachineAgentRestart(t *testing.T) {
	v := startVM(t)
	fs := serveFS(t, v.dial(t, FilesPort), newTestFS())
	c := v.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	<-fs.begun
	h, err := c.Hello(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id := holt.NewRunID()
	c.StartRun(ctx, id, holt.RunSpec{Command: "kill -9 $PPID", User: "root", Cwd: "/"}) // its answer may be lost
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the control channel does not notice")
	}
	c = v.client(t)
	if again, err := c.Hello(ctx); err != nil || again.Instance == h.Instance || again.BootID != h.BootID {
		t.Errorf("hello of the second agent: %+v, %v", again, err)
	}
	if r := runToEnd(t, c, holt.RunSpec{Command: "echo back > f; cat f"}); r.stdout != "back\n" {
		t.Errorf("%+v", r)
	}
}
