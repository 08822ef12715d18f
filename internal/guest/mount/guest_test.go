package mount

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

// serveGuest serves k from ws until the test ends.
func serveGuest(t testing.TB, ws *workspace.Workspace, k *kernel, opt GuestOptions) {
	t.Helper()
	opt.Log = testLog(t)
	host, guest := socketPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() {
		if err := Guest(ctx, ws, host, opt); err != nil {
			t.Errorf("guest session: %v", err)
		}
	})
	both.Go(func() {
		if err := k.attach(guest); !ended(err) {
			t.Errorf("guest's kernel: %v", err)
		}
	})
	t.Cleanup(func() {
		k.unmount()
		cancel()
		both.Wait()
	})
	pollOnce(t, k.dir)
}

// guestWorkspace returns a workspace mounted by a guest.
func guestWorkspace(t testing.TB) (*workspace.Workspace, *kernel) {
	t.Helper()
	ws := newWorkspace(t)
	k := newKernel(t)
	serveGuest(t, ws, k, GuestOptions{})
	return ws, k
}

func TestGuestServesPrograms(t *testing.T) {
	_, k := guestWorkspace(t)
	sh(t, k.dir, `export HOME=$PWD
		git init -q repo; cd repo; git config user.email a@b; git config user.name n
		for i in $(seq 60); do echo $i > f$i; done; git add .; git commit -qm first; git fsck --strict
		dd if=/dev/urandom of=big bs=1M count=8 status=none; cp big copy; cmp big copy
		sync -f .; python3 -c '
import mmap, os
f = os.open("map", os.O_CREAT | os.O_RDWR); os.ftruncate(f, 1 << 20)
m = mmap.mmap(f, 1 << 20); m[5:10] = b"hello"; m.flush(); m.close()
assert os.pread(f, 5, 5) == b"hello"'`)
	if _, err := os.Stat(filepath.Join(k.dir, strings.Repeat("n", 300))); err == nil || !strings.Contains(err.Error(), unix.ENAMETOOLONG.Error()) {
		t.Errorf("a name of 300 bytes: %v", err)
	}
}

func TestGuestWritersAreNamed(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	k.tag = func(m message) string {
		if m.opcode() == opCreate {
			return "run/run_one"
		}
		return "term/\x00hostile\xff"
	}
	var mu sync.Mutex
	tags := map[string]int{}
	serveGuest(t, ws, k, GuestOptions{Writer: func(tag string) workspace.Writer {
		mu.Lock()
		defer mu.Unlock()
		tags[tag]++
		if run, ok := strings.CutPrefix(tag, "run/"); ok {
			return workspace.Writer{Kind: "run", Name: "agent", Run: run}
		}
		return workspace.Writer{}
	}})
	for i := range 5 {
		fd := openFile(t, filepath.Join(k.dir, fmt.Sprint(i)), unix.O_CREAT|unix.O_WRONLY)
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if tags["run/run_one"] < 5 || tags["term/\x00hostile\xff"] == 0 {
		t.Errorf("tags asked for: %v", tags)
	}
	res, err := ws.Query(t.Context(), "SELECT count(*) FROM files WHERE writer = 'agent' AND run = 'run_one'", workspace.Limits{})
	if err != nil || len(res.Rows) != 1 || fmt.Sprint(res.Rows[0][0]) != "5" {
		t.Errorf("files by the run: %v, %v", res.Rows, err)
	}
}

// TestGuestKnowsItsMount checks which mounts are accepted.
func TestGuestKnowsItsMount(t *testing.T) {
	ws := newWorkspace(t)
	say := func(t *testing.T, hello channel.Hello) (welcome [16]byte, result chan error, conn io.ReadWriteCloser) {
		t.Helper()
		host, guest := socketPair(t)
		result = make(chan error, 1)
		go func() { result <- Guest(t.Context(), ws, host, GuestOptions{Log: testLog(t)}) }()
		if err := channel.NewFrameWriter(guest).Write(channel.FrameHello, hello.Append(nil)); err != nil {
			t.Fatal(err)
		}
		_, payload, err := channel.NewFrameReader(guest).Next(nil)
		if err != nil {
			return welcome, result, guest
		}
		welcome, err = channel.ParseWelcome(payload)
		if err != nil {
			t.Fatal(err)
		}
		return welcome, result, guest
	}
	one, two := [16]byte{1}, [16]byte{2}
	t.Run("unknown", func(t *testing.T) {
		welcome, result, conn := say(t, channel.Hello{Mount: one, Version: channel.FrameVersion})
		if welcome != [16]byte{} {
			t.Errorf("welcomed %x", welcome)
		}
		// The same session accepts a new mount.
		if err := channel.NewFrameWriter(conn).Write(channel.FrameHello, channel.Hello{Mount: two, Version: channel.FrameVersion, Fresh: true}.Append(nil)); err != nil {
			t.Fatal(err)
		}
		_, payload, err := channel.NewFrameReader(conn).Next(nil)
		if got, _ := channel.ParseWelcome(payload); err != nil || got != two {
			t.Errorf("welcomed %x, %v", got, err)
		}
		conn.Close()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("fresh ends the one before", func(t *testing.T) {
		welcome, result, conn := say(t, channel.Hello{Mount: one, Version: channel.FrameVersion, Fresh: true})
		if welcome != one {
			t.Errorf("welcomed %x", welcome)
		}
		conn.Close()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if es := ws.Epochs(); len(es) != 1 || es[0].ID != one {
			t.Errorf("epochs: %+v", es)
		}
	})
	t.Run("cannot be told", func(t *testing.T) {
		// The workspace changes after a state that no checkpoint has.
		if _, err := ws.Tree().Create(workspace.Caller{}, workspace.Root, "beside", 0o644); err != nil {
			t.Fatal(err)
		}
		welcome, result, conn := say(t, channel.Hello{Mount: one, Version: channel.FrameVersion})
		if welcome != [16]byte{} {
			t.Errorf("welcomed %x", welcome)
		}
		conn.Close()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("version", func(t *testing.T) {
		_, result, conn := say(t, channel.Hello{Mount: one, Version: 99, Fresh: true})
		defer conn.Close()
		if err := <-result; holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("got %v", err)
		}
	})
	t.Run("host has it", func(t *testing.T) {
		for _, e := range ws.Epochs() {
			if err := ws.EndEpoch(e.Epoch); err != nil {
				t.Fatal(err)
			}
		}
		hostMount(t, ws, HostOptions{})
		welcome, result, conn := say(t, channel.Hello{Mount: two, Version: channel.FrameVersion, Fresh: true})
		defer conn.Close()
		if err := <-result; holt.CodeOf(err) != holt.Conflict || welcome != [16]byte{} {
			t.Errorf("got %x, %v", welcome, err)
		}
	})
}

// TestGuestRemounts ends the mount during the session: the guest sends hello again.
func TestGuestRemounts(t *testing.T) {
	ws := newWorkspace(t)
	host, guest := socketPair(t)
	result := make(chan error, 1)
	go func() { result <- Guest(t.Context(), ws, host, GuestOptions{Log: testLog(t)}) }()
	out, in := channel.NewFrameWriter(guest), channel.NewFrameReader(guest)
	for n := range byte(3) {
		hello := channel.Hello{Mount: [16]byte{1 + n}, Version: channel.FrameVersion, Fresh: true}
		if err := out.Write(channel.FrameHello, hello.Append(nil)); err != nil {
			t.Fatal(err)
		}
		kind, payload, err := in.Next(nil)
		if id, _ := channel.ParseWelcome(payload); err != nil || kind != channel.FrameWelcome || id != hello.Mount {
			t.Fatalf("hello %d: %d %x, %v", n, kind, payload, err)
		}
		// INIT, and INIT once more, as if its answer had been lost.
		var first []byte
		for range 2 {
			if err := out.Write(channel.FrameRequest, make([]byte, 9), askInit(31)); err != nil {
				t.Fatal(err)
			}
			kind, payload, err = in.Next(nil)
			if err != nil || kind != channel.FrameReply || len(payload) != initReplySize {
				t.Fatalf("INIT: %d %x, %v", kind, payload, err)
			}
			if first == nil {
				first = payload
			}
			if string(payload) != string(first) {
				t.Errorf("the second answer to INIT is another: %x, %x", payload, first)
			}
		}
	}
	guest.Close()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestGuestProtocolErrors: an invalid message ends the session and nothing else.
func TestGuestProtocolErrors(t *testing.T) {
	ws := newWorkspace(t)
	for name, frame := range map[string][]byte{
		"kind":          {1, 0, 0, 0, 99},
		"length":        {255, 255, 255, 255, 2},
		"tag":           {11, 0, 0, 0, byte(channel.FrameRequest), 0, 0, 0, 0, 0, 0, 0, 0, 200, 1},
		"empty request": {10, 0, 0, 0, byte(channel.FrameRequest), 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"no time":       {2, 0, 0, 0, byte(channel.FrameRequest), 0},
		"ack":           {3, 0, 0, 0, byte(channel.FrameAck), 1, 2},
		"none taken":    {5, 0, 0, 0, byte(channel.FrameTaken), 0, 0, 0, 0},
		"taken unsent":  {5, 0, 0, 0, byte(channel.FrameTaken), 1, 0, 0, 0},
		"reply":         {3, 0, 0, 0, byte(channel.FrameReply), 1, 2},
		"before INIT":   append([]byte{66, 0, 0, 0, byte(channel.FrameRequest), 0, 0, 0, 0, 0, 0, 0, 0, 0}, ask(opGetattr, 1, 16)...),
	} {
		t.Run(name, func(t *testing.T) {
			host, guest := socketPair(t)
			defer guest.Close()
			result := make(chan error, 1)
			go func() { result <- Guest(t.Context(), ws, host, GuestOptions{}) }()
			hello := channel.Hello{Mount: [16]byte{7}, Version: channel.FrameVersion, Fresh: true}
			if err := channel.NewFrameWriter(guest).Write(channel.FrameHello, hello.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := guest.Write(frame); err != nil {
				t.Fatal(err)
			}
			if err := <-result; holt.CodeOf(err) != holt.InvalidArgument && holt.CodeOf(err) != holt.Corrupt {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestGuestCacheIsInvalidated changes files without the guest's kernel.
func TestGuestCacheIsInvalidated(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	n := &Notifier{}
	serveGuest(t, ws, k, GuestOptions{Notifier: n})
	cacheIsTold(t, ws, k.dir, n)
}

func TestHostCacheIsInvalidated(t *testing.T) {
	ws := newWorkspace(t)
	n := &Notifier{}
	cacheIsTold(t, ws, hostMount(t, ws, HostOptions{Notifier: n}), n)
}

func cacheIsTold(t *testing.T, ws *workspace.Workspace, dir string, n *Notifier) {
	t.Helper()
	path := filepath.Join(dir, "f")
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the file is there already")
	}
	a, err := ws.Tree().Create(workspace.Caller{}, workspace.Root, "f", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the kernel did not remember that there is no such file")
	}
	tell := func(changes ...Change) {
		t.Helper()
		if err := n.Notify(changes...); err != nil {
			t.Fatal(err)
		}
		if err := n.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Another goroutine of the session notifies the guest's kernel; a later answer
		// comes after that.
		if err := unix.Statfs(dir, &unix.Statfs_t{}); err != nil {
			t.Fatal(err)
		}
	}
	tell(Change{Ino: workspace.Root, Name: "f"}, Change{Ino: workspace.Root})
	if got := readFile(t, path); got != "" {
		t.Errorf("read %q", got)
	}
	for _, content := range []string{"first", "again"} {
		if _, err := ws.Tree().Write(workspace.Caller{}, a.Ino, 0, []byte(content)); err != nil {
			t.Fatal(err)
		}
		tell(Change{Ino: a.Ino})
		if got := readFile(t, path); got != content {
			t.Errorf("read %q, want %q", got, content)
		}
	}
	if names := strings.TrimSpace(sh(t, dir, "ls")); names != "f" {
		t.Errorf("ls: %q", names)
	}
	if err := ws.Tree().Unlink(workspace.Caller{}, workspace.Root, "f"); err != nil {
		t.Fatal(err)
	}
	tell(Change{Ino: workspace.Root, Name: "f"}, Change{Ino: workspace.Root})
	if names := strings.TrimSpace(sh(t, dir, "ls")); names != "" {
		t.Errorf("ls: %q", names)
	}
}
