package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func bareOn(t *testing.T, dir string) *HostMount {
	t.Helper()
	needRoot(t)
	m, err := Bare(t.Context(), dir, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Unmount() })
	return m
}

func TestUnmountBusy(t *testing.T) {
	dir := t.TempDir()
	m := bareOn(t, dir)
	fd, err := unix.Open(filepath.Join(dir, "held"), unix.O_CREAT|unix.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// A process in its own mount namespace also keeps the mount busy.
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", "echo in; read x")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "in\n" {
		t.Fatalf("got %q", line)
	}
	if err := m.Unmount(); err != nil {
		t.Error(err)
	}
	<-m.Done()
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err != unix.ENOTCONN && err != unix.ECONNABORTED {
		t.Errorf("write into the ended mount: %v, want ENOTCONN", err)
	}
	if _, ok, err := findMount(dir); ok || err != nil {
		t.Errorf("still mounted: %v, %v", ok, err)
	}
	if err := m.Unmount(); err != nil {
		t.Errorf("second time: %v", err)
	}
}

func TestUnmountByAnotherProgram(t *testing.T) {
	dir := t.TempDir()
	m := bareOn(t, dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	<-m.Done()
}

func TestUnmountWritesBackMaps(t *testing.T) {
	dir := t.TempDir()
	m := bareOn(t, dir)
	cmd := helper(t, "map", filepath.Join(dir, "mapped"))
	in, _ := cmd.StdinPipe()
	pipe, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	out := bufio.NewReader(pipe)
	said := func(line string) string {
		io.WriteString(in, line+"\n")
		answer, _ := out.ReadString('\n')
		return answer
	}
	line := ""
	for range 100 { // a sync of another test's may come between
		if line = said("write"); line == "4 KiB dirty\n" {
			break
		}
	}
	if line != "4 KiB dirty\n" {
		t.Fatalf("after the write: %q", line)
	}
	if err := m.WriteBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if line = said("look"); line != "0 KiB dirty\n" {
		t.Errorf("after the write back: %q", line)
	}
}

// mapFile is the helper "map". It runs in another process, since a page fault
// on a mount that a Go process serves itself blocks one of its processors.
func mapFile(name string) error {
	fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := unix.Ftruncate(fd, 4096); err != nil {
		return err
	}
	p, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "write" {
			copy(p, "written through the map")
		}
		b, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(b), name)
		_, after, _ = strings.Cut(after, "Shared_Dirty:")
		_, private, _ := strings.Cut(after, "Private_Dirty:")
		var shared, own int
		fmt.Sscan(after, &shared)
		fmt.Sscan(private, &own)
		fmt.Printf("%d KiB dirty\n", shared+own)
	}
	return nil
}

func TestClear(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "with space")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Clear(dir); err != nil {
		t.Errorf("nothing mounted: %v", err)
	}
	cmd := helper(t, "bare", dir)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("got %q", line)
	}
	if err := Clear(dir); err != nil {
		t.Errorf("a mount that is alive: %v", err)
	}
	if _, ok, _ := findMount(dir); !ok {
		t.Error("a mount that is alive was cleared")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := os.ReadDir(dir); !errors.Is(err, syscall.ENOTCONN) {
		t.Errorf("read the dead mount: %v", err)
	}
	if err := Clear(dir); err != nil {
		t.Error(err)
	}
	if _, ok, _ := findMount(dir); ok {
		t.Error("still mounted")
	}
	bareOn(t, dir)
}

func TestScanMounts(t *testing.T) {
	const info = `22 1 8:1 / / rw - ext4 /dev/root rw
90 22 0:41 / /mnt/a\040b rw,nosuid shared:5 - fuse.holt holt rw
91 90 0:300 / /mnt/a\040b rw,nosuid - fuse.other holt rw
short line
`
	m, ok, err := scanMounts(strings.NewReader(info), "/mnt/a b")
	if err != nil || !ok || m.minor != 300 || m.kind != "fuse.other" {
		t.Errorf("got %+v, %v, %v", m, ok, err)
	}
	if _, ok, _ := scanMounts(strings.NewReader(info), "/mnt"); ok {
		t.Error("found a mount where there is none")
	}
}

// TestOrdinaryUser mounts with fuse3's helper.
func TestOrdinaryUser(t *testing.T) {
	needRoot(t)
	need(t, "fusermount3")
	st, err := os.Stat("/dev/fuse")
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != 0o666 { // as udev makes it where there is udev
		if err := os.Chmod("/dev/fuse", 0o666); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod("/dev/fuse", st.Mode().Perm()) })
	}
	const uid = 65534
	dir := filepath.Join(t.TempDir(), "mnt")
	for d := filepath.Dir(dir); d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(filepath.Dir(dir), "mount.test")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sh(t, "/", "cp "+self+" "+exe)
	user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd := exec.Command(exe, dir)
	cmd.Env = append(os.Environ(), "MOUNT_TEST_HELPER=bare-once")
	cmd.SysProcAttr, cmd.Stderr = user, t.Output()
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Fatalf("got %q", line)
	}
	t.Cleanup(func() { detach(dir) })
	if out := as(t, uid, dir, "echo hello > f; cat f; mkdir d; mv f d/g; ls d"); out != "hello\ng\n" {
		t.Errorf("got %q", out)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("unmount: %v", err)
	}
	if _, ok, _ := findMount(dir); ok {
		t.Error("still mounted")
	}
}
