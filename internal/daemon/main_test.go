package daemon_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"holt"
	"holt/internal/daemon"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/guest/mount"
	"holt/internal/network"
)

// asNetwork makes this program the network of a machine.
const asNetwork = "serve-network"

// asKeeper makes this program the keeper of a mount.
const asKeeper = "keep-mount"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == asNetwork {
		if err := network.Serve(context.Background(), os.Args[2]); err != nil {
			slog.Error("serve network", "err", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == asKeeper {
		if err := mount.Keep(os.Args[2]); err != nil {
			slog.Error("keep mount", "err", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(envDaemon); dir != "" {
		os.Exit(serveMain(dir))
	}
	os.Exit(m.Run())
}

// What these tests share with those of the doors.
var (
	home        = servertest.Home
	nothingLeft = servertest.NothingLeft
	machines    = servertest.Machines
	up          = servertest.Open
	down        = servertest.End
)

// config is a daemon on the local engine, whose mounts on the host have a keeper.
func config(t testing.TB, dir string) daemon.Config {
	cfg := servertest.Config(t, dir)
	cfg.Keeper = []string{"/proc/self/exe", asKeeper}
	return cfg
}

// open opens a daemon that the test closes itself.
func open(t testing.TB, cfg daemon.Config) *daemon.Daemon {
	t.Helper()
	d, err := daemon.Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// create makes a computer.
func create(t testing.TB, d *daemon.Daemon, spec holt.ComputerSpec) holt.Computer {
	t.Helper()
	c, err := d.Computers().Create(t.Context(), spec, "")
	if err != nil {
		t.Fatalf("create %+v: %v", spec, err)
	}
	return c
}

// result is what a run left.
type result struct {
	out string // both streams
	holt.Run
}

// run runs a shell command to its end.
func run(t testing.TB, d *daemon.Daemon, computer, command string) result {
	t.Helper()
	r, err := d.Computers().Runs().Start(t.Context(), computer, holt.RunSpec{Command: holt.OSString(command), User: "root"}, "")
	if err != nil {
		t.Fatalf("run %q: %v", command, err)
	}
	return follow(t, d, r.ID, 0)
}

func follow(t testing.TB, d *daemon.Daemon, id holt.RunID, offset int64) result {
	t.Helper()
	var res result
	err := d.Computers().Runs().Follow(t.Context(), id, offset, func(e holt.RunEvent) error {
		res.out += string(e.Data)
		if e.Kind == holt.RunExit {
			res.Run = *e.Run
		}
		return nil
	})
	if err != nil {
		t.Fatalf("follow %s: %v", id, err)
	}
	return res
}

// succeeds fails the test unless the command ends with status 0.
func succeeds(t testing.TB, d *daemon.Daemon, computer, command string) string {
	t.Helper()
	res := run(t, d, computer, command)
	if res.State != holt.RunExited || res.ExitCode != 0 {
		t.Fatalf("run %q: %+v\n%s", command, res.Run, res.out)
	}
	return res.out
}

func wantCode(t testing.TB, err error, code holt.Code) {
	t.Helper()
	if holt.CodeOf(err) != code {
		t.Errorf("error %v has code %q, not %q", err, holt.CodeOf(err), code)
	} else if code != holt.Internal && holt.AsError(err).Message == "" {
		t.Errorf("error without a sentence: %v", err)
	}
}

func read(t testing.TB, d *daemon.Daemon, computer, path string) string {
	t.Helper()
	var b strings.Builder
	if err := d.Computers().Files().Read(t.Context(), computer, path, 0, -1, &b); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return b.String()
}
