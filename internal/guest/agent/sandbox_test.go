package agent

import (
	"context"
	"errors"
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

// TestFillRun: the program is copied, and units that a sandbox cannot have are masked.
func TestFillRun(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(fillRun(root), maskUnits(root)); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(root + GuestPath); err != nil || st.Mode().Perm() != 0o755 || st.Size() == 0 {
		t.Errorf("%v %v", st, err)
	}
	for unit, want := range map[string]string{"halt.target": "/usr/lib/systemd/system/poweroff.target", "systemd-udevd.service": os.DevNull, "systemd-growfs@-.service": os.DevNull} {
		if to, err := os.Readlink(filepath.Join(root, "run/systemd/system", unit)); to != want {
			t.Errorf("%s leads to %q, not %q: %v", unit, to, want, err)
		}
	}
}

// sandboxScript becomes the agent of a sandbox without init, with a copy of the
// host's root and neither cgroups nor systemd, as PID 1 of its own namespaces.
const sandboxScript = `mount -t tmpfs tmpfs /mnt && mkdir /mnt/up /mnt/work /mnt/root &&
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root &&
mount --bind /dev /mnt/root/dev && mount -t proc proc /mnt/root/proc && mount -t sysfs -o ro sysfs /mnt/root/sys && mount -t tmpfs tmpfs /mnt/root/run && mount -t tmpfs tmpfs /mnt/root/home &&
mkdir -p /mnt/root/run/holt /mnt/root/home/agent && cp "$0" /mnt/root/run/holt/holt-guest &&
exec chroot /mnt/root /run/holt/holt-guest machine --sandbox --net 10.0.2.15/24,10.0.2.2,10.0.2.3`

// pipeConn is the host's end of a sandbox's line.
type pipeConn struct{ from, to *os.File }

func (c pipeConn) Read(p []byte) (int, error)  { return c.from.Read(p) }
func (c pipeConn) Write(p []byte) (int, error) { return c.to.Write(p) }
func (c pipeConn) Close() error                { return errors.Join(c.from.Close(), c.to.Close()) }
func (c pipeConn) LocalAddr() net.Addr         { return &net.UnixAddr{} }
func (c pipeConn) RemoteAddr() net.Addr        { return &net.UnixAddr{} }
func (c pipeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.from.SetDeadline(t), c.to.SetDeadline(t))
}
func (c pipeConn) SetReadDeadline(t time.Time) error  { return c.from.SetReadDeadline(t) }
func (c pipeConn) SetWriteDeadline(t time.Time) error { return c.to.SetWriteDeadline(t) }

// TestSandboxAgent: a sandbox's agent answers on named pipes, host after host,
// has the workspace, and leaves to its host what that does.
func TestSandboxAgent(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	open := func(name string) *os.File {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, name := range []string{"in", "out"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log strings.Builder
	cmd := exec.Command("/bin/sh", "-c", sandboxScript, program)
	cmd.Env = []string{"PATH=" + guestPath, "container=holt"}
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.ExtraFiles = []*os.File{open("in"), open("out")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Unshareflags: unix.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("agent's log:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var c *Client
	for i := range 3 {
		line := pipeConn{from: open("out"), to: open("in")}
		conn, err := channel.Dial(ctx, line)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = NewClient(conn); err != nil {
			t.Fatal(err)
		}
		h, err := c.Hello(ctx)
		if err != nil || h.Workspace != Served {
			t.Fatalf("%+v %v", h, err)
		}
		switch i {
		case 0: // this host leaves without a word
			line.Close()
			c.Close()
		case 1: // the agent's second process ends, and the next one ends the session
			c.StartRun(ctx, holt.NewRunID(), holt.RunSpec{Command: "kill -9 $PPID", User: "root", Cwd: "/"})
			<-c.Done()
			c.Close()
		}
	}
	defer c.Close()
	clock := time.Now()
	is, err := c.Configure(ctx, Identity{Hostname: "einstein", Now: clock.Add(2 * time.Second), Entropy: make([]byte, 64), DiskSizeMB: 1 << 20})
	if err != nil || is.Hostname != "einstein" || len(is.Drawn) != drawnBytes {
		t.Errorf("%+v %v", is, err)
	}
	if step := time.Duration(time.Now().UnixNano()-clock.UnixNano()) - time.Since(clock); step.Abs() > time.Second {
		t.Errorf("the clock was set by %v", step)
	}
	if err := c.Trim(ctx, time.Second); err != nil {
		t.Error(err)
	}
	g, err := c.Grow(ctx, holt.GuestShape{CPUs: 1, MemoryMB: 64, DiskSizeMB: 1}, time.Minute)
	if err != nil || g.CPUs < 1 || g.MemoryMB < 1 || g.DiskSizeMB < 1 || g.Fault != "" {
		t.Errorf("%+v %v", g, err)
	}
	if got := sh(t, c, "hostname; cat /etc/resolv.conf; ls /usr/local/bin/holt"); got != "einstein\nnameserver 10.0.2.3\n/usr/local/bin/holt\n" {
		t.Errorf("%q", got)
	}
	if err := c.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
		if failed != nil {
			t.Errorf("it ended with %v", failed)
		}
	case <-ctx.Done():
		t.Error("it does not end")
	}
}
