package daemon_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"holt"
	"holt/internal/daemon"
)

func TestLife(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	c := create(t, d, holt.ComputerSpec{Name: "einstein"})
	if c.State != holt.ComputerRunning || c.Name != "einstein" || c.Workspace != "einstein" || c.Engine != "local" ||
		c.Template != "base" || c.StartedAt == nil {
		t.Fatalf("%+v", c)
	}
	out := succeeds(t, d, "einstein", "pwd; hostname; echo 42 > answer; df --output=fstype /home/agent | tail -1; sync")
	if want := "/home/agent\neinstein\nfuse"; !strings.HasPrefix(out, want) {
		t.Errorf("output %q does not begin with %q", out, want)
	}
	if res := run(t, d, "einstein", "echo out; exit 7"); res.ExitCode != 7 || res.out != "out\n" || res.ComputerID != c.ID {
		t.Errorf("%+v", res)
	}
	q, err := d.Workspaces().Query(t.Context(), "einstein", holt.QuerySpec{SQL: `SELECT path, writer, run FROM files WHERE name = 'answer'`})
	if err != nil || len(q.Rows) != 1 || q.Rows[0][1] != "agent" || !strings.HasPrefix(fmt.Sprint(q.Rows[0][2]), "run_") {
		t.Errorf("%+v %v", q.Rows, err)
	}

	stopped, err := d.Computers().Stop(t.Context(), "einstein", "")
	if err != nil || stopped.State != holt.ComputerStopped || stopped.Reason != "" {
		t.Fatalf("%+v %v", stopped, err)
	}
	if again, err := d.Computers().Stop(t.Context(), "einstein", ""); err != nil || again.State != holt.ComputerStopped {
		t.Fatalf("a second stop: %+v %v", again, err)
	}
	if got := read(t, d, "einstein", "/home/agent/answer"); got != "42\n" {
		t.Errorf("from a stopped computer: %q", got)
	}
	if c, _ := d.Computers().Get(t.Context(), "einstein"); c.State != holt.ComputerStopped {
		t.Error("reading the workspace started the computer")
	}
	if out := succeeds(t, d, "einstein", "cat answer"); out != "42\n" { // wakes it
		t.Errorf("after a restart: %q", out)
	}
	if again, err := d.Computers().Start(t.Context(), "einstein", ""); err != nil || again.State != holt.ComputerRunning {
		t.Fatalf("a second start: %+v %v", again, err)
	}
	if _, err := d.Computers().Delete(t.Context(), "einstein", ""); err != nil {
		t.Fatal(err)
	}
	_, err = d.Computers().Get(t.Context(), "einstein")
	wantCode(t, err, holt.NotFound)
	_, err = d.Workspaces().Get(t.Context(), "einstein")
	wantCode(t, err, holt.NotFound)
	empty(t, dir)
}

// empty fails if a computer or a workspace has left files.
func empty(t testing.TB, dir string) {
	t.Helper()
	for _, sub := range []string{"computers", "workspaces"} {
		for _, name := range namesIn(t, filepath.Join(dir, sub)) {
			t.Errorf("%s/%s is left", sub, name)
		}
	}
}

// namesIn lists what nouns have in a directory of theirs, if that is there: all but
// the reserve that workspaces share.
func namesIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, e := range entries {
		if e.Name() != ".reserve" {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestTenAtOnce(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	before := openFiles(t)
	var names sync.Map
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			c, err := d.Computers().Create(context.Background(), holt.ComputerSpec{}, "")
			if err != nil {
				t.Error(err)
				return
			}
			if _, twice := names.LoadOrStore(c.Name, true); twice {
				t.Errorf("two computers are %s", c.Name)
			}
			say := fmt.Sprintf("I am %d", i)
			if out := succeeds(t, d, c.Name, "echo "+say+" > me; cat me"); !strings.HasSuffix(out, say+"\n") { // the host's login profile may speak first
				t.Errorf("%s: %q", c.Name, out)
			}
		})
	}
	wg.Wait()
	all, err := d.Computers().List(t.Context())
	if err != nil || len(all) != 10 || !slices.IsSortedFunc(all, func(a, b holt.Computer) int { return strings.Compare(a.Name, b.Name) }) {
		t.Fatalf("%+v %v", all, err)
	}
	if h, err := d.Health(t.Context()); err != nil || h.Running != 10 || h.Engine != "local" {
		t.Errorf("%+v %v", h, err)
	}
	for _, c := range all {
		wg.Go(func() {
			if _, err := d.Computers().Delete(context.Background(), c.Name, ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	empty(t, dir)
	nothingLeft(t, dir)
	within(t, fmt.Sprintf("no more files than %d to be open", before), func() bool { return openFiles(t) <= before })
}

// openFiles counts this process's open files, but for the control database's
// connections, which are opened as need be and kept.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(target, "/holt.db") {
			n++
		}
	}
	return n
}

func TestBadInput(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "noether"})
	ctx, computers := t.Context(), d.Computers()
	for name, c := range map[string]struct {
		code holt.Code
		hint string
		do   func() error
	}{
		"template": {holt.NotFound, "base, browser, coding-agent", func() error {
			_, err := computers.Create(ctx, holt.ComputerSpec{Template: "no-such"}, "")
			return err
		}},
		"name in use": {holt.AlreadyExists, "another name", func() error {
			_, err := computers.Create(ctx, holt.ComputerSpec{Name: "noether"}, "")
			return err
		}},
		"bad name": {holt.InvalidArgument, "use 1 to 63 characters", func() error {
			_, err := computers.Create(ctx, holt.ComputerSpec{Name: strings.Repeat("a", 300)}, "")
			return err
		}},
		"workspace in use": {holt.Conflict, "delete noether", func() error {
			_, err := computers.Create(ctx, holt.ComputerSpec{Name: "other", Workspace: "noether"}, "")
			return err
		}},
		"no workspace": {holt.NotFound, "workspace list", func() error {
			_, err := computers.Create(ctx, holt.ComputerSpec{Workspace: "nowhere"}, "")
			return err
		}},
		"no computer": {holt.NotFound, "computer list", func() error { _, err := computers.Get(ctx, "nobody"); return err }},
		"no run":      {holt.NotFound, "history", func() error { _, err := computers.Runs().Get(ctx, holt.NewRunID()); return err }},
		"relative path": {holt.InvalidArgument, "start it with /", func() error {
			_, err := computers.Files().Stat(ctx, "noether", "relative")
			return err
		}},
		"path outside": {holt.InvalidArgument, "remove some ..", func() error {
			_, err := computers.Files().Stat(ctx, "noether", "/../etc/passwd")
			return err
		}},
		"nothing to run": {holt.InvalidArgument, "exactly one", func() error {
			_, err := computers.Runs().Start(ctx, "noether", holt.RunSpec{}, "")
			return err
		}},
		"home removed": {holt.InvalidArgument, "delete the computer", func() error {
			return computers.Files().Remove(ctx, "noether", "/home/agent/", true, "")
		}},
		"workspace deleted under a computer": {holt.Conflict, "holt computer delete noether", func() error {
			return d.Workspaces().Delete(ctx, "noether", "")
		}},
		"workspace name": {holt.InvalidArgument, "use 1 to 63 characters", func() error {
			_, err := d.Workspaces().Create(ctx, holt.WorkspaceSpec{Name: "a/b"}, "")
			return err
		}},
		"workspace name in use": {holt.AlreadyExists, "another name", func() error {
			_, err := d.Workspaces().Create(ctx, holt.WorkspaceSpec{Name: "noether"}, "")
			return err
		}},
		"pause": {holt.Unsupported, "--stop", func() error {
			_, err := d.Down(ctx, holt.DownSpec{Computers: holt.DownPause}, "")
			return err
		}},
	} {
		err := c.do()
		wantCode(t, err, c.code)
		if err != nil && !strings.Contains(holt.AsError(err).Hint, c.hint) {
			t.Errorf("%s: the hint %q does not say %q", name, holt.AsError(err).Hint, c.hint)
		}
	}
	// The guest refuses what only it can judge, and no record of a run is left.
	for name, spec := range map[string]holt.RunSpec{
		"user": {Command: "true", User: "nosuchuser"}, "program": {Argv: []string{"/no/such/program"}}, "cwd": {Command: "true", Cwd: "/no/such/dir"},
	} {
		if _, err := computers.Runs().Start(ctx, "noether", spec, ""); err == nil || holt.CodeOf(err) == holt.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := computers.Runs().List(ctx, "noether", "", 0); err != nil || len(list) != 0 {
		t.Errorf("runs that never were: %+v %v", list, err)
	}
	if all, _ := computers.List(ctx); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	if all, _ := d.Workspaces().List(ctx); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestOneDaemonADirectory(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	_, err := daemon.Open(t.Context(), config(t, dir))
	wantCode(t, err, holt.Conflict)
	if e := holt.AsError(err); !strings.Contains(e.Message, fmt.Sprint(os.Getpid())) || !strings.Contains(e.Hint, "--data-dir") {
		t.Errorf("%+v", e)
	}
	if _, err := d.Health(t.Context()); err != nil {
		t.Error(err)
	}
	cfg := config(t, home(t))
	cfg.Engine = "steam"
	_, err = daemon.Open(t.Context(), cfg)
	wantCode(t, err, holt.InvalidArgument)
}
