package servertest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"holt"
	"holt/internal/daemon"
)

// Open opens a daemon whose computers are processes of this host. The end of the test ends them and closes it.
func Open(t testing.TB) *daemon.Daemon {
	t.Helper()
	return OpenWith(t, Config(t, t.TempDir()))
}

// OpenWith is Open with a configuration, whose data directory may hold what an earlier daemon left.
func OpenWith(t testing.TB, cfg daemon.Config) *daemon.Daemon {
	t.Helper()
	d, err := daemon.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.Down(context.Background(), holt.DownSpec{}, ""); err != nil {
			t.Error("down:", err)
		}
		if err := d.Close(); err != nil {
			t.Error("close:", err)
		}
	})
	return d
}

// Config is that of the daemons of Open.
func Config(t testing.TB, dir string) daemon.Config {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the local engine makes namespaces: run this test as root")
	}
	guest, err := Guest()
	if err != nil {
		t.Fatal(err)
	}
	return daemon.Config{DataDir: dir, Engine: daemon.EngineLocal, GuestBinary: guest, Version: "test", Log: logOf(t)}
}

// OpenKeeping is Open with an engine that keeps memory: computers can be paused, restored and have snapshots.
// They cannot be forked.
func OpenKeeping(t testing.TB) *daemon.Daemon {
	t.Helper()
	cfg := Config(t, t.TempDir())
	cfg.Wrap = keepingUntilEnd(t)
	return OpenWith(t, cfg)
}

// Guest returns the guest agent that make builds.
func Guest() ([]byte, error) {
	_, file, _, _ := runtime.Caller(0)
	guest, err := os.ReadFile(filepath.Join(filepath.Dir(file), "../../../../cmd/holt/guest/holt-guest"))
	if err != nil {
		return nil, holt.Errorf(holt.NotFound, "read guest agent: %w", err).WithHint("run make guest")
	}
	return guest, nil
}

// logOf is a log in the test's: warnings and errors, with HOLT_TEST_LOG set everything.
func logOf(t testing.TB) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("HOLT_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: level}))
}
