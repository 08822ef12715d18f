package cli_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holt/internal/door/httpapi/servertest"
)

// heldDoor is a way to a server on which a connection stands still, both ways, once this
// many bytes have gone one way, until it is let go.
func heldDoor(t *testing.T, d *servertest.Door, bytes int64) (held *servertest.Door, letGo func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "held")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	free := make(chan struct{})
	pass := func(to, from net.Conn) {
		if _, err := io.CopyN(to, from, bytes); err == nil {
			<-free
			io.Copy(to, from)
		}
		to.(*net.UnixConn).CloseWrite()
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", d.Socket)
			if err != nil {
				t.Error(err)
				near.Close()
				return
			}
			go pass(far, near)
			go pass(near, far)
		}
	}()
	return &servertest.Door{Socket: socket}, func() { close(free) }
}

// TestTransferShowsProgress: somebody at a terminal sees how far an import, and an
// export, is while it is going on.
func TestTransferShowsProgress(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	if screen, status := onTerminal(t, d, "", "workspace", "create", "w"); status != 0 {
		t.Fatal(screen)
	}
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	content := strings.Repeat("0123456789abcdef", 1<<16)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"workspace", "import", "w", dir}, {"workspace", "export", "w", to}} {
		held, letGo := heldDoor(t, d, 3<<20)
		p := sit(t, held, args...)
		p.sees("of about")
		if strings.Contains(p.shown(), args[1]+"ed ") {
			t.Errorf("it is over: %q", p.shown())
		}
		letGo()
		p.sees(args[1] + "ed")
		if status := p.leaves(); status != 0 {
			t.Errorf("%s: %d: %q", args[1], status, p.shown())
		}
	}
	if got, err := os.ReadFile(filepath.Join(to, "h")); err != nil || string(got) != content {
		t.Errorf("%d bytes came back: %v", len(got), err)
	}
}

// TestExportRefused: a file too large for the file system here does not keep what comes behind it from being exported.
func TestExportRefused(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	if screen, status := onTerminal(t, d, "", "workspace", "create", "w"); status != 0 {
		t.Fatal(screen)
	}
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "to")
	for name, size := range map[string]int64{"a\nb": 1 << 32, "c": 3} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("new"), 0o644), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
	}
	if screen, status := onTerminal(t, d, "", "workspace", "import", "w", dir); status != 0 {
		t.Fatal(screen)
	}
	var was syscall.Rlimit
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 30, Max: was.Max})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)
	screen, status := onTerminal(t, d, "", "workspace", "export", "w", to)
	for _, want := range []string{"exported ", "left out a␊b: file too large", "does not support: 1; everything else", "hint: "} {
		if !strings.Contains(screen, want) || status != 1 {
			t.Errorf("status %d, without %q: %q", status, want, screen)
		}
	}
	if screen, status = onTerminal(t, d, "", "workspace", "export", "w", to, "--json"); status != 1 || !strings.Contains(screen, `"refused": 1`) {
		t.Errorf("status %d: %q", status, screen)
	}
	left, _ := os.ReadDir(to)
	if got, err := os.ReadFile(filepath.Join(to, "c")); err != nil || string(got) != "new" || len(left) != 1 {
		t.Errorf("%q, %v, %v", got, err, left)
	}
}
