package mount

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/workspace"
)

// serveKept is the helper "serve-host".
func serveKept(at, dir, sockets string) error {
	ctx := context.Background()
	k := &Keeper{Command: []string{"/proc/self/exe", asKeeper}, Dir: sockets}
	opt := workspace.Options{}
	kept, err := k.Find(ctx, dir, mountID(at))
	if err == nil {
		opt.HostMount = kept.ID()
	} else if holt.CodeOf(err) != holt.NotFound {
		return err
	}
	ws, err := workspace.Open(at, opt)
	if err != nil {
		return err
	}
	var m *HostMount
	if kept != nil {
		m, err = Resume(ctx, ws, kept, HostOptions{Keeper: k})
	} else {
		id := NewID()
		if err := os.WriteFile(at+".mount", id[:], 0o600); err != nil {
			return err
		}
		m, err = Host(ctx, ws, dir, HostOptions{Keeper: k, ID: id})
	}
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	io.Copy(io.Discard, os.Stdin)
	return errors.Join(m.Leave(), ws.Close())
}

// mountID returns the id of the mount that "serve-host" made last.
func mountID(at string) (id [16]byte) {
	b, _ := os.ReadFile(at + ".mount")
	copy(id[:], b)
	return id
}

// keptMount is a mount that is served by one process after another.
type keptMount struct{ at, dir, sockets string }

func newKept(t *testing.T) keptMount {
	t.Helper()
	needRoot(t)
	k := keptMount{filepath.Join(t.TempDir(), "ws"), t.TempDir(), t.TempDir()}
	ws, err := workspace.Create(k.at, workspace.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	return k
}

// serve starts a process that serves the mount. end kills it, or asks it to leave.
func (k keptMount) serve(t *testing.T) (end func(kill bool)) {
	t.Helper()
	cmd := helper(t, "serve-host", k.at, k.dir, k.sockets)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "mounted\n" {
		t.Errorf("got %q", line)
	}
	return func(kill bool) {
		if kill {
			cmd.Process.Kill()
			cmd.Wait()
			return
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("leave: %v", err)
		}
	}
}

// over ends the mount, and checks that its keeper ends and the workspace is intact.
func (k keptMount) over(t *testing.T) {
	t.Helper()
	if err := detach(k.dir); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(k.sockets)
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the keeper goes on without a mount: %v %v", left, err)
		}
	}
	ws, err := workspace.Open(k.at, workspace.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if e := ws.Epochs(); len(e) != 0 {
		t.Errorf("epochs %+v", e)
	}
	check(t, ws)
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostMountSurvivesServer: programs in a host mount notice nothing when
// its server is killed, or ended, and restarted: every request is executed
// once.
func TestHostMountSurvivesServer(t *testing.T) {
	k := newKept(t)
	end := k.serve(t)
	const workers, rounds = 4, 60
	var labourers sync.WaitGroup
	for w := range workers {
		labourers.Go(func() { labour(t, filepath.Join(k.dir, fmt.Sprintf("w%d", w)), rounds) })
	}
	done := make(chan struct{})
	go func() { labourers.Wait(); close(done) }()
	servers := 1
	for working := true; working; servers++ {
		select {
		case <-done:
			working = false
		case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond):
		}
		end(servers%4 > 0)
		end = k.serve(t)
	}
	t.Logf("%d servers", servers)
	for w := range workers {
		inspect(t, filepath.Join(k.dir, fmt.Sprintf("w%d", w)), rounds)
	}
	end(false)
	k.over(t)
}

// TestHostMountWaits: a program waits while the mount is not served, can be
// killed, and continues with an open file that was removed.
func TestHostMountWaits(t *testing.T) {
	k := newKept(t)
	end := k.serve(t)
	fd, err := unix.Open(filepath.Join(k.dir, "f"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unlink(filepath.Join(k.dir, "f")); err != nil {
		t.Fatal(err)
	}
	end(true)
	waits := exec.Command("touch", filepath.Join(k.dir, "killed"))
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error)
	go func() {
		_, err := unix.Write(fd, []byte("written while nobody served"))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		t.Fatalf("a write did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	waits.Process.Kill()
	waits.Wait() // for ever, if it could not be killed
	end = k.serve(t)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Pread(fd, buf, 0); err != nil || string(buf[:n]) != "written while nobody served" {
		t.Errorf("%q %v", buf[:n], err)
	}
	unix.Close(fd)
	if names, err := os.ReadDir(k.dir); err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == "f" }) {
		t.Errorf("%v %v", names, err)
	}
	end(false)
	k.over(t)
}

// TestUnservableHostMount: programs in a mount that its server cannot
// serve, or of an unknown version, get an error, and the mount and its keeper
// end.
func TestUnservableHostMount(t *testing.T) {
	k := newKept(t)
	t.Cleanup(func() { End(k.dir) })
	k.serve(t)(true)
	waits := exec.Command("stat", "-f", k.dir)
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	keeper := &Keeper{Command: []string{"/proc/self/exe", asKeeper}, Dir: k.sockets}
	kept, err := keeper.Find(t.Context(), k.dir, mountID(k.at))
	if err != nil {
		t.Fatal(err)
	}
	for asks := false; !asks; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", waits.Process.Pid))
		if asks = strings.HasPrefix(string(b), fmt.Sprint(unix.SYS_STATFS, " ")); err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	kept.mem.word(0).Store(0)
	kept.close()
	if _, err := keeper.Find(t.Context(), k.dir, mountID(k.at)); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("the memory of another version: %v", err)
	}
	if err := End(k.dir); err != nil {
		t.Error(err)
	}
	if err := waits.Wait(); err == nil {
		t.Error("a request was answered")
	}
	k.over(t)

	ws, err := workspace.Open(k.at, workspace.Options{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Host(t.Context(), ws, k.dir, HostOptions{Keeper: keeper, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	m.kept.dev.Close() // no request can be read
	<-m.Done()
	if _, ok, err := findMount(k.dir); ok || err != nil {
		t.Errorf("still mounted, %v", err)
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
	k.over(t)
}

// TestSilentKeeper: a mount whose keeper does not answer ends,
// and programs that wait for it get an error.
func TestSilentKeeper(t *testing.T) {
	needRoot(t)
	ws, dir, file := newWorkspace(t), t.TempDir(), filepath.Join(t.TempDir(), "f")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	k := &Keeper{Command: []string{"/bin/sh", "-c", `stat -f "$1"; echo gone >` + file}, Dir: t.TempDir()}
	if _, err := Host(ctx, ws, dir, HostOptions{Keeper: k, Log: testLog(t)}); err == nil {
		t.Error("mounted")
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a process waits for the mount")
		}
	}
	if _, ok, err := findMount(dir); ok || err != nil {
		t.Errorf("still mounted, %v", err)
	}
}

// TestSlotStaysInMemory: the memory of a slot cannot be swapped out.
func TestSlotStaysInMemory(t *testing.T) {
	needRoot(t)
	mem, err := newMemory([16]byte{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.close()
	mem.slots()
	locked := func() (kB int) {
		b, _ := os.ReadFile("/proc/self/status")
		_, after, _ := strings.Cut(string(b), "VmLck:")
		fmt.Sscan(after, &kB)
		return kB
	}
	before := locked()
	if h := mem.take(); !h.ready || locked()-before < memoryBuffer/1024 {
		t.Errorf("ready %v, %d kB are locked, before %d", h.ready, locked(), before)
	}
}

// TestKeeperEndsWithTheMount: if a mount is unmounted while it is not served, its keeper ends.
func TestKeeperEndsWithTheMount(t *testing.T) {
	k := newKept(t)
	k.serve(t)(true)
	k.over(t)
	k.serve(t)(false)
	keeper := &Keeper{Dir: k.sockets}
	kept, err := keeper.Find(t.Context(), k.dir, mountID(k.at))
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.End(); err != nil {
		t.Error(err)
	}
	k.over(t)
}

// TestLateKeeper: a keeper that ends late does not affect the next mount on its
// directory, nor that mount's keeper.
func TestLateKeeper(t *testing.T) {
	needRoot(t)
	ws, dir := newWorkspace(t), t.TempDir()
	keeper := &Keeper{Command: []string{"/proc/self/exe", asKeeper}, Dir: t.TempDir()}
	first, err := Host(t.Context(), ws, dir, HostOptions{Keeper: keeper, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	late := keeperOf(t, keeper)
	if err := unix.Kill(late, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(late, unix.SIGCONT)
	if err := first.Unmount(); err != nil {
		t.Fatal(err)
	}
	id := NewID()
	second, err := Host(t.Context(), ws, dir, HostOptions{Keeper: keeper, ID: id, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(late, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); unix.Kill(late, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first keeper does not end")
		}
	}
	if err := second.Leave(); err != nil {
		t.Fatal(err)
	}
	kept, err := keeper.Find(t.Context(), dir, id)
	if err != nil {
		t.Fatal("the second keeper:", err)
	}
	if err := kept.End(); err != nil {
		t.Error(err)
	}
}

// keeperOf returns the process of the only keeper.
func keeperOf(t *testing.T, k *Keeper) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if b, _ := os.ReadFile(file); strings.Contains(string(b), "\x00"+k.Dir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			return pid
		}
	}
	t.Fatal("no keeper runs")
	return 0
}
