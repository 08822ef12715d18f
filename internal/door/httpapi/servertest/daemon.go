package servertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"holt"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/door/preview"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/engine/machine/machinetest"
)

// New opens a daemon on the local engine, in a data directory of its own. It ends with the test, and everything in it.
func New(t testing.TB) *daemon.Daemon {
	t.Helper()
	return withPreviews(t, Open(t, Config(t, Home(t))))
}

// NewSandboxed is [New] with sandboxes, which can be snapshot, forked and paused, and have networks. Each costs about a
// second of processor time.
func NewSandboxed(t testing.TB) *daemon.Daemon {
	t.Helper()
	cfg := Config(t, Home(t))
	cfg.Engine, cfg.Sandbox, cfg.ImageDir = daemon.EngineGVisor, machinetest.Holt(t), machinetest.Images(t)
	cfg.Network = []string{cfg.Sandbox, cli.NetworkProcess}
	return withPreviews(t, Open(t, cfg))
}

// withPreviews serves previews and links of a daemon at a port of 127.0.0.1, until the test ends.
func withPreviews(t testing.TB, d *daemon.Daemon) *daemon.Daemon {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.Previews().ListensAt(l.Addr(), false)
	d.Previews().ListensAtLoopback(l.Addr())
	door := preview.NewDoor(preview.Options{Store: d.Previews(), Log: Log(LogTo{t})})
	served := make(chan error, 1)
	go func() { served <- door.Serve(l, preview.Serving{}) }()
	t.Cleanup(func() { report(t, errors.Join(door.Close(), <-served)) })
	return d
}

// Home is a data directory; when the test ends nothing may be left of it.
func Home(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the local engine makes namespaces: run this test as root")
	}
	dir, err := os.MkdirTemp("", "holt-home") // shorter than t.TempDir: it has unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		NothingLeft(t, dir)
		os.RemoveAll(dir)
	})
	return dir
}

// NothingLeft fails if a process or a mount of the data directory is left, and ends it.
func NothingLeft(t testing.TB, dir string) {
	t.Helper()
	for _, s := range Machines(t, dir) {
		t.Errorf("a machine is left: %+v", s)
		s.Kill()
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir) {
			t.Errorf("a mount is left: %s", line)
		}
	}
}

// Machines lists the machines of the local engine in a data directory that run.
func Machines(t testing.TB, dir string) []machine.Stray {
	t.Helper()
	list, err := local.New(local.Options{}).Strays(dir)
	if err != nil {
		t.Error(err)
	}
	return list
}

// Config is a daemon on the local engine.
func Config(t testing.TB, dir string) daemon.Config {
	t.Helper()
	guest, err := os.ReadFile(machinetest.Agent(t))
	if err != nil {
		t.Fatal(err)
	}
	return daemon.Config{DataDir: dir, Engine: daemon.EngineLocal, GuestBinary: guest, Version: "test", Log: Log(LogTo{t}), TXT: anybodys}
}

// anybodys is the DNS of names that every tenant of the tests has.
func anybodys(context.Context, string) ([]string, error) {
	return []string{"holt=default", "holt=team-a", "holt=team-b"}, nil
}

// Log has a daemon's warnings and errors, or all that it logs with HOLT_TEST_LOG set. The
// lines of a failing test would drown in it, and CI keeps only the last.
func Log(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("HOLT_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// Logged counts the lines that daemons of this process have logged.
var Logged atomic.Int64

// LogTo puts a daemon's log into the test's.
type LogTo struct{ T testing.TB }

func (l LogTo) Write(p []byte) (int, error) {
	Logged.Add(int64(bytes.Count(p, []byte{'\n'})))
	l.T.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// Open opens a daemon that ends with the test, and everything in it.
func Open(t testing.TB, cfg daemon.Config) *daemon.Daemon {
	t.Helper()
	d, err := daemon.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { End(t, d) })
	return d
}

// End checks all workspaces of a daemon and ends it, and everything in it.
func End(t testing.TB, d *daemon.Daemon) {
	t.Helper()
	ctx := context.Background()
	all, err := d.Workspaces().List(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, w := range all {
		report, err := d.Workspaces().Check(ctx, string(w.ID))
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("check of %s: %v %v", w.Name, report.Problems, err)
		}
	}
	if _, err := d.Down(ctx, holt.DownSpec{}, ""); err != nil {
		t.Error("down:", err)
	}
	if err := d.Close(); err != nil {
		t.Error("close:", err)
	}
}
