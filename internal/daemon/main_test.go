package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/daemon"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/guest/mount"
	"holt/internal/network"
)

// asNetwork makes this program the network of a machine.
const asNetwork = "serve-network"

// asKeeper makes this program the keeper of a mount.
const asKeeper = "keep-mount"

// guestFile is the real guest agent, built once.
var guestFile string

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
	tmp, err := os.MkdirTemp("", "holt-daemon-test")
	if err == nil {
		guestFile = filepath.Join(tmp, "holt-guest")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", guestFile, "holt/cmd/holt-guest") // as holt's own, to share its templates' snapshots
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "build guest agent:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(tmp)
	os.Exit(code)
}

func guest(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(guestFile)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// root ends a test that needs root: the local engine makes namespaces.
func root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the local engine makes namespaces: run this test as root")
	}
}

// testLog has a daemon's warnings and errors; all that it logs with HOLT_TEST_LOG
// set. A failing test's own lines would drown in it, and CI keeps only the last.
func testLog(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("HOLT_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// logWriter puts a daemon's log into the test's.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	logged.Add(int64(bytes.Count(p, []byte{'\n'})))
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// home is a data directory; when the test ends nothing may be left of it.
func home(t testing.TB) string {
	t.Helper()
	root(t)
	dir, err := os.MkdirTemp("", "holt-home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nothingLeft(t, dir)
		os.RemoveAll(dir)
	})
	return dir
}

// nothingLeft fails if a process or a mount of the data directory is left, and
// ends it.
func nothingLeft(t testing.TB, dir string) {
	t.Helper()
	for _, s := range machines(t, dir) {
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

// machines lists the machines of a data directory that run.
func machines(t testing.TB, dir string) []machine.Stray {
	t.Helper()
	list, err := local.New(local.Options{}).Strays(dir)
	if err != nil {
		t.Error(err)
	}
	return list
}

// anybodys is the DNS of names that every tenant of these tests has.
func anybodys(context.Context, string) ([]string, error) {
	return []string{"holt=default", "holt=team-a", "holt=team-b"}, nil
}

// config is a daemon on the local engine.
func config(t testing.TB, dir string) daemon.Config {
	return daemon.Config{DataDir: dir, Engine: daemon.EngineLocal, GuestBinary: guest(t), Log: testLog(logWriter{t}), TXT: anybodys, Keeper: []string{"/proc/self/exe", asKeeper}}
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

// up opens a daemon that ends with the test, and everything in it: first all
// workspaces are checked.
func up(t testing.TB, cfg daemon.Config) *daemon.Daemon {
	t.Helper()
	d := open(t, cfg)
	t.Cleanup(func() { down(t, d) })
	return d
}

func down(t testing.TB, d *daemon.Daemon) {
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
