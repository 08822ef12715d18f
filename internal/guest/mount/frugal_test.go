package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// census counts requests by opcode.
type census struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *census) tag(m message) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m.opcode() {
	case opForget, opBatchForget, opInterrupt: // come when they like
	default:
		c.counts[opName(m.opcode())]++
	}
	return ""
}

func (c *census) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = map[string]int{}
	return counts
}

// TestKernelRequestCount: the number of requests, the main cost in an emulated
// machine, is as negotiated.
func TestKernelRequestCount(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	c := &census{counts: map[string]int{}}
	k.tag = c.tag
	serveGuest(t, ws, k, GuestOptions{})
	const files = 20
	name := func(i int) string { return filepath.Join(k.dir, fmt.Sprintf("f%d", i)) }
	write := func(path, content string, flags int) {
		t.Helper()
		fd, err := unix.Open(path, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) {
		t.Helper()
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(fd, make([]byte, 8192)); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	// The first request of each unsupported kind is answered ENOSYS.
	write(filepath.Join(k.dir, "warm"), "x", unix.O_CREAT)
	read(filepath.Join(k.dir, "warm"))
	if _, err := os.ReadDir(k.dir); err != nil {
		t.Fatal(err)
	}
	c.take()
	expect := func(what string, want map[string]int, do func()) {
		t.Helper()
		do()
		got := c.take()
		for op, n := range got {
			if n > want[op] {
				t.Errorf("%s: %d × %s, want at most %d; all: %v", what, n, op, want[op], got)
			}
		}
	}
	each := func(do func(path string)) func() {
		return func() {
			for i := range files {
				do(name(i))
			}
		}
	}
	content := strings.Repeat("c", 4096)
	// GETATTR is for the directory: the kernel drops its attributes when an entry
	// is added or removed, and asks again for its mode at the next access. GETXATTR
	// is security.capability, once for each inode that was created or read.
	expect("create, write and close", map[string]int{"GETATTR": files, "LOOKUP": files, "CREATE": files, "GETXATTR": files, "WRITE": files},
		each(func(p string) { write(p, content, unix.O_CREAT) }))
	expect("write again", map[string]int{"GETATTR": 1, "WRITE": files}, each(func(p string) { write(p, "more", 0) }))
	expect("stat after a write", map[string]int{"GETATTR": files}, each(func(p string) { stat(t, p) }))
	expect("stat again", nil, each(func(p string) { stat(t, p) }))
	expect("read what was written", nil, each(read))
	expect("look for what is not there", map[string]int{"LOOKUP": 1}, func() {
		for range files {
			os.Lstat(filepath.Join(k.dir, "absent"))
		}
	})
	expect("list twice", map[string]int{"READDIR": 3, "READDIRPLUS": 3}, func() {
		for range 2 {
			if _, err := os.ReadDir(k.dir); err != nil {
				t.Fatal(err)
			}
		}
	})
	expect("truncate and write", map[string]int{"SETATTR": files, "GETXATTR": 2 * files, "WRITE": files}, each(func(p string) { write(p, "less", unix.O_TRUNC) }))
	expect("write 4 MiB", map[string]int{"LOOKUP": 1, "CREATE": 1, "GETXATTR": 1, "WRITE": 4}, func() {
		write(filepath.Join(k.dir, "large"), strings.Repeat("l", 4<<20), unix.O_CREAT)
	})
	sh(t, k.dir, "mkdir sub; ln -s f1 link; cat link > /dev/null")
	c.take()
	expect("follow a link again", nil, func() { read(filepath.Join(k.dir, "link")) })
	expect("rename", map[string]int{"RENAME": 1, "RENAME2": 1, "LOOKUP": 2}, func() {
		if err := os.Rename(name(0), filepath.Join(k.dir, "sub", "moved")); err != nil {
			t.Fatal(err)
		}
	})
	expect("unlink", map[string]int{"GETATTR": files, "UNLINK": files - 1}, func() {
		for i := 1; i < files; i++ {
			if err := unix.Unlink(name(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
