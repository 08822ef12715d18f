package mount

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// labour does operations in dir that would fail, or leave a trace, if a request
// were executed twice or not at all.
func labour(t *testing.T, dir string, rounds int) {
	at := func(name string, i int) string { return filepath.Join(dir, fmt.Sprintf("%s%d", name, i)) }
	must := func(what string, i int, err error) {
		if err != nil {
			t.Errorf("%s of round %d in %s: %v", what, i, filepath.Base(dir), err)
		}
	}
	must("mkdir", -1, unix.Mkdir(dir, 0o755))
	log, err := unix.Open(filepath.Join(dir, "log"), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o644)
	must("create log", -1, err)
	defer unix.Close(log)
	for i := range rounds {
		must("mkdir", i, unix.Mkdir(at("d", i), 0o755))
		fd, err := unix.Open(at("f", i), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		must("create", i, err)
		_, err = unix.Write(fd, fmt.Appendf(nil, "content of %d\n", i))
		must("write", i, err)
		_, err = unix.Write(log, fmt.Appendf(nil, "%d\n", i))
		must("append", i, err)
		must("setxattr", i, unix.Setxattr(at("f", i), "user.round", fmt.Appendf(nil, "%d", i), unix.XATTR_CREATE))
		must("link", i, unix.Link(at("f", i), at("l", i)))
		must("rename", i, unix.Renameat2(unix.AT_FDCWD, at("f", i), unix.AT_FDCWD, at("r", i), unix.RENAME_NOREPLACE))
		must("symlink", i, unix.Symlink(at("r", i), at("s", i)))
		must("mknod", i, unix.Mknod(at("p", i), unix.S_IFIFO|0o600, 0))
		must("exchange", i, unix.Renameat2(unix.AT_FDCWD, at("p", i), unix.AT_FDCWD, at("s", i), unix.RENAME_EXCHANGE))
		must("unlink", i, unix.Unlink(at("l", i)))
		if i%2 == 0 {
			must("rmdir", i, unix.Rmdir(at("d", i)))
			must("fsync", i, unix.Fsync(fd))
		}
		must("removexattr", i, unix.Removexattr(at("r", i), "user.round"))
		unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
		buf := make([]byte, 64)
		n, err := unix.Pread(fd, buf, 0)
		if must("read", i, err); string(buf[:n]) != fmt.Sprintf("content of %d\n", i) {
			t.Errorf("round %d reads %q", i, buf[:n])
		}
		unix.Close(fd)
	}
}

// inspect checks the result of labour through any mount.
func inspect(t *testing.T, dir string, rounds int) {
	t.Helper()
	var want, log []string
	for i := range rounds {
		log = append(log, fmt.Sprint(i))
		want = append(want, fmt.Sprintf("r%d", i), fmt.Sprintf("s%d", i), fmt.Sprintf("p%d", i))
		if i%2 == 1 {
			want = append(want, fmt.Sprintf("d%d", i))
		}
		name := func(s string) string { return filepath.Join(dir, fmt.Sprintf("%s%d", s, i)) }
		if got := readFile(t, name("r")); got != fmt.Sprintf("content of %d\n", i) {
			t.Errorf("%s reads %q", name("r"), got)
		}
		if st := stat(t, name("r")); st.Nlink != 1 {
			t.Errorf("%s has %d links", name("r"), st.Nlink)
		}
		if stat(t, name("s")).Mode&unix.S_IFMT != unix.S_IFIFO || stat(t, name("p")).Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("%s and %s did not change places once", name("s"), name("p"))
		}
	}
	if got := strings.Fields(readFile(t, filepath.Join(dir, "log"))); !slices.Equal(got, log) {
		t.Errorf("%s has %d lines, want %d, in order", filepath.Join(dir, "log"), len(got), len(log))
	}
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if e.Name() != "log" {
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s holds %d names, want %d", dir, len(got), len(want))
	}
}

// takeover runs workers through k while its host is ended again and again: host
// starts one on a connection and returns a function that ends it.
func takeover(t *testing.T, k *kernel, rounds int, host func() (end func())) {
	const workers = 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	var over atomic.Bool
	hosts := make(chan int)
	go func() {
		n := 0
		for ; !over.Load(); n++ {
			end := host()
			k.waitSent(20+dice.IntN(200), &over)
			end()
		}
		hosts <- n
	}()
	pollOnce(t, k.dir)
	var labourers sync.WaitGroup
	for w := range workers {
		labourers.Go(func() { labour(t, filepath.Join(k.dir, fmt.Sprintf("w%d", w)), rounds) })
	}
	labourers.Wait()
	over.Store(true)
	k.mu.Lock()
	k.moved.Broadcast()
	k.mu.Unlock()
	n := <-hosts
	sent, again := k.counts()
	t.Logf("%d hosts, %d requests, %d of them sent again", n, sent, again)
	if again == 0 {
		t.Error("no request was ever in flight when a host ended; the test shows nothing")
	}
	end := host()
	defer end()
	for w := range workers {
		inspect(t, filepath.Join(k.dir, fmt.Sprintf("w%d", w)), rounds)
	}
}

// guestSession serves k from ws until end is called, during requests.
func guestSession(t *testing.T, ws *workspace.Workspace, k *kernel, n *Notifier) (end func()) {
	host, guest := socketPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() {
		if err := Guest(ctx, ws, host, GuestOptions{Notifier: n, Log: testLog(t)}); err != nil {
			t.Errorf("guest session: %v", err)
		}
	})
	both.Go(func() {
		if err := k.attach(guest); !ended(err) {
			t.Errorf("guest's kernel: %v", err)
		}
	})
	return func() {
		guest.Close() // Guest meets a connection that is gone
		cancel()
		both.Wait()
	}
}

// TestTakeoverBySession ends only the session, as when a daemon reconnects.
func TestTakeoverBySession(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	takeover(t, k, 60, func() func() { return guestSession(t, ws, k, nil) })
	k.unmount()
	endEpochs(t, ws)
}

// TestTakeoverAfterKill kills the daemon with SIGKILL, repeatedly.
func TestTakeoverAfterKill(t *testing.T) {
	at := filepath.Join(t.TempDir(), "ws")
	ws, err := workspace.Create(at, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	steps := 60
	if testing.Short() {
		steps = 20
	}
	k := newKernel(t)
	takeover(t, k, steps, func() func() {
		host, guest, err := socketFiles()
		if err != nil {
			t.Fatal(err)
		}
		cmd := helper(t, "serve", at)
		cmd.ExtraFiles = []*os.File{host}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		host.Close()
		conn := fileConn(t, guest)
		attached := make(chan struct{})
		go func() {
			defer close(attached)
			if err := k.attach(conn); !ended(err) {
				t.Errorf("guest's kernel: %v", err)
			}
		}()
		return func() {
			cmd.Process.Kill()
			if err := cmd.Wait(); err == nil || err.(*exec.ExitError).Exited() {
				t.Errorf("the daemon ended by itself: %v", err)
			}
			<-attached
		}
	})
	k.unmount()
	if ws, err = workspace.Open(at, workspace.Options{Log: testLog(t)}); err != nil {
		t.Fatal(err)
	}
	endEpochs(t, ws)
	check(t, ws)
	dir := t.TempDir()
	m, err := Host(t.Context(), ws, dir, HostOptions{Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	pollOnce(t, dir)
	for w := range 4 {
		inspect(t, filepath.Join(dir, fmt.Sprintf("w%d", w)), steps)
	}
	if err := m.Unmount(); err != nil {
		t.Error(err)
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}

// endEpochs ends the guest's mounts; afterwards nothing may be kept for it.
func endEpochs(t *testing.T, ws *workspace.Workspace) {
	t.Helper()
	if es := ws.Epochs(); len(es) != 1 || es[0].Kind != workspace.GuestMount {
		t.Errorf("epochs: %+v, want the guest's", es)
	}
	for _, e := range ws.Epochs() {
		if err := ws.EndEpoch(e.Epoch); err != nil {
			t.Error(err)
		}
	}
	if n := ws.Stat().Orphans; n != 0 {
		t.Errorf("%d orphans after the last mount ended", n)
	}
}
