package daemon_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
	"holt/internal/engine/machine"
)

func TestInputAndSignals(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, runs := t.Context(), d.Computers().Runs()
	start := func(spec holt.RunSpec) holt.Run {
		t.Helper()
		spec.User = "root"
		r, err := runs.Start(ctx, "curie", spec, "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := start(holt.RunSpec{Command: "tr a-z A-Z", Stdin: true})
	at := int64(0)
	for _, part := range []struct {
		text string
		eof  bool
	}{{"one ", false}, {"two ", false}, {"three", true}} {
		n, err := runs.Input(ctx, r.ID, at, strings.NewReader(part.text), part.eof, false)
		if at += int64(len(part.text)); err != nil || n != at {
			t.Fatal(n, err)
		}
	}
	if res := follow(t, d, r.ID, 0); res.out != "ONE TWO THREE" || res.ExitCode != 0 {
		t.Errorf("%q %+v", res.out, res.Run)
	}
	_, err := runs.Input(ctx, r.ID, at, strings.NewReader("late"), true, false)
	wantCode(t, err, holt.Conflict)

	broken := errors.New("the source broke")
	r = start(holt.RunSpec{Command: "cat", Stdin: true})
	if _, err := runs.Input(ctx, r.ID, 0, io.MultiReader(strings.NewReader("a"), &failing{broken}), true, false); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := runs.Input(ctx, r.ID, -1, strings.NewReader("b"), true, false); err != nil {
		t.Error(err)
	}
	if res := follow(t, d, r.ID, 0); res.out != "ab" {
		t.Errorf("after a broken source: %q", res.out)
	}

	r = start(holt.RunSpec{Argv: []string{"sleep", "1000"}})
	wantCode(t, runs.Signal(ctx, r.ID, "SIGNONSENSE", ""), holt.InvalidArgument)
	if err := runs.Signal(ctx, r.ID, "SIGTERM", ""); err != nil {
		t.Fatal(err)
	}
	if res := follow(t, d, r.ID, 0); res.Signal != "SIGTERM" || res.ExitCode != 128+15 {
		t.Errorf("%+v", res.Run)
	}
	if err := runs.Signal(ctx, r.ID, "TERM", ""); err == nil {
		t.Error("a run that has ended was signalled")
	}
	r = start(holt.RunSpec{Argv: []string{"sleep", "1000"}, TimeoutMS: 100})
	if res := follow(t, d, r.ID, 0); !res.TimedOut {
		t.Errorf("%+v", res.Run)
	}
}

// TestRunRecords: a run is on record with its output though nobody followed it, in
// pages, and after its machine is gone.
func TestRunRecords(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, runs := t.Context(), d.Computers().Runs()
	var ids []holt.RunID
	for range 5 {
		r, err := runs.Start(ctx, "curie", holt.RunSpec{Command: "echo out; exit 3", User: "root"}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	for _, id := range ids[:2] {
		follow(t, d, id, 0)
		if res := follow(t, d, id, 2); res.out != "t\n" {
			t.Errorf("from an offset: %q", res.out)
		}
	}
	for _, id := range ids { // nobody follows the last ones
		awaitExit(t, d, id)
	}
	if _, err := d.Computers().Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	page, err := runs.List(ctx, "curie", "", 2)
	if err != nil || len(page) != 2 || page[0].ID != ids[4] || page[1].ID != ids[3] {
		t.Fatalf("%+v %v", page, err)
	}
	page, err = runs.List(ctx, "curie", ids[3], 10)
	if err != nil || len(page) != 3 || page[2].ID != ids[0] {
		t.Fatalf("%+v %v", page, err)
	}
	for _, id := range ids {
		if res := follow(t, d, id, 0); res.out != "out\n" || res.State != holt.RunExited || res.ExitCode != 3 || res.EndedAt == nil {
			t.Errorf("%+v", res)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := runs.Start(ctx, "curie", holt.RunSpec{Command: "echo x; sleep 1000", User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	if err := runs.Follow(ctx, r.ID, 0, func(holt.RunEvent) error { return stop }); err != stop {
		t.Error(err)
	}
	cancel()
	if err := runs.Follow(ctx, r.ID, 2, func(holt.RunEvent) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEnvironmentIsNotKept: what a run's environment holds is for the guest
// only: neither the run as it is shown nor the control database has it.
func TestEnvironmentIsNotKept(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	const secret = "hunter2-correct-horse"
	spec := holt.RunSpec{Command: `echo "${#TOKEN}"; cat`, Env: map[holt.OSString]holt.OSString{"TOKEN": secret}, User: "root", Stdin: true}
	look := func(when string) {
		t.Helper()
		list, err := d.Computers().Runs().List(t.Context(), "curie", "", 10)
		if err != nil || strings.Contains(fmt.Sprint(list), secret) {
			t.Errorf("%s: %+v %v", when, list, err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "holt.db*"))
		if err != nil || len(files) < 2 { // the database and its log
			t.Fatal(files, err)
		}
		for _, file := range files {
			if b, err := os.ReadFile(file); err != nil || bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s: %s holds the environment, or %v", when, file, err)
			}
		}
	}
	var first holt.Run
	for range 2 { // the second is the first's repeat
		r, err := d.Computers().Runs().Start(t.Context(), "curie", spec, "the-key")
		if err != nil || r.Spec.Env != nil || first.ID != "" && r.ID != first.ID {
			t.Fatalf("%+v %v", r, err)
		}
		first = r
	}
	look("while it runs")
	if _, err := d.Computers().Runs().Input(t.Context(), first.ID, 0, strings.NewReader(""), true, false); err != nil {
		t.Fatal(err)
	}
	if res := follow(t, d, first.ID, 0); res.out != fmt.Sprintf("%d\n", len(secret)) || res.Spec.Env != nil {
		t.Errorf("%q %+v", res.out, res.Run)
	}
	look("after its end")
}

// awaitExit waits until the end of a run is on record.
func awaitExit(t *testing.T, d *daemon.Daemon, id holt.RunID) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := d.Computers().Runs().Get(t.Context(), id)
		if err != nil || r.State == holt.RunLost || time.Now().After(deadline) {
			t.Fatalf("%+v %v", r, err)
		}
		if r.State == holt.RunExited {
			return
		}
	}
}

// TestWriters: a guest can claim no run but its own computer's.
func TestWriters(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	succeeds(t, d, "curie", "(setsid sh -c 'sleep 0.2; echo late > late' >/dev/null 2>&1 &) ; echo early > early")
	succeeds(t, d, "curie", "while ! test -s late; do sleep 0.05; done")
	q, err := d.Workspaces().Query(t.Context(), "curie", holt.QuerySpec{
		SQL: `SELECT count(DISTINCT run), group_concat(DISTINCT writer) FROM files WHERE name IN ('early', 'late')`,
	})
	if err != nil || len(q.Rows) != 1 || q.Rows[0][0] != int64(1) || q.Rows[0][1] != "agent" {
		t.Errorf("a child that outlives its run writes as that run: %v %v", q.Rows, err)
	}
}

// console prints text on the console of a computer, as its guest does.
func console(t *testing.T, dir string, id holt.ComputerID, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "computers", string(id), machine.ConsoleFile), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogs: the log is what the guest printed, its end whole lines of that, and who
// follows it sees what comes.
func TestLogs(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	c := create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx := t.Context()
	within(t, "the log's end to be its last line", func() bool { // the agent may write between our lines and a look
		console(t, dir, c.ID, "first\nsecond\nthird\n")
		var all, tail bytes.Buffer
		for query, into := range map[holt.LogQuery]*bytes.Buffer{{}: &all, {TailBytes: 10}: &tail} {
			if err := d.Computers().Logs(ctx, "curie", query, into); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Contains(all.String(), "first\nsecond\nthird\n") && tail.String() == "third\n"
	})
	r, w := io.Pipe()
	defer r.Close()
	followed := make(chan error, 1)
	go func() {
		err := d.Computers().Logs(ctx, "curie", holt.LogQuery{Follow: true}, w)
		w.CloseWithError(cmp.Or(err, io.EOF))
		followed <- err
	}()
	lines := bufio.NewScanner(r)
	shows := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the log ended without %q: %v", want, lines.Err())
	}
	shows("third")
	console(t, dir, c.ID, "\nfourth\n") // the guest may be in the middle of a line
	shows("fourth")
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if _, err := d.Computers().Delete(t.Context(), "curie", ""); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; holt.CodeOf(err) != holt.NotFound {
		t.Error("following the log of a deleted computer:", err)
	}
	wantCode(t, d.Computers().Logs(ctx, "nobody", holt.LogQuery{}, io.Discard), holt.NotFound)
}

// TestUpdate: a computer and its workspace are renamed while it runs; its preview has the new name, and its inside from
// the next start on.
func TestUpdate(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	create(t, d, holt.ComputerSpec{Name: "other"})
	d.Previews().ListensAt(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4647}, false)
	shown, err := d.Previews().Set(t.Context(), "curie", 3000, holt.PreviewSpec{})
	if err != nil || !strings.Contains(shown.URL, "3000-curie.") {
		t.Fatal(shown, err)
	}
	c, err := d.Computers().Update(t.Context(), "curie", holt.ComputerUpdate{Name: "marie"}, "")
	if err != nil || c.Name != "marie" || c.Workspace != "curie" {
		t.Errorf("%+v %v", c, err)
	}
	if now, err := d.Previews().List(t.Context(), "marie"); err != nil || len(now) != 1 || now[0].Computer != "marie" || now[0].URL != strings.Replace(shown.URL, "curie", "marie", 1) {
		t.Errorf("its previews: %+v %v", now, err)
	}
	_, err = d.Computers().Update(t.Context(), "marie", holt.ComputerUpdate{Name: "other"}, "")
	wantCode(t, err, holt.AlreadyExists)
	if w, err := d.Workspaces().Update(t.Context(), "curie", holt.WorkspaceUpdate{Name: "papers"}, ""); err != nil || w.Name != "papers" || w.Computer != "marie" {
		t.Errorf("%+v %v", w, err)
	}
	if c, err = d.Computers().Stop(t.Context(), "marie", ""); err != nil || c.Workspace != "papers" {
		t.Fatalf("%+v %v", c, err)
	}
	if out := succeeds(t, d, "marie", "hostname"); out != "marie\n" {
		t.Errorf("%q", out)
	}
}

// TestRunLeft: what a run has left is counted when somebody asks for it.
func TestRunLeft(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, runs := t.Context(), d.Computers().Runs()
	var ids []holt.RunID
	for range 2 {
		r, err := runs.Start(ctx, "curie", holt.RunSpec{Command: "sleep 1000 & sleep 1000 & exit", User: "root"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if res := follow(t, d, r.ID, 0); res.Background != 2 {
			t.Errorf("%+v", res.Run)
		}
		ids = append(ids, r.ID)
	}
	if err := runs.Signal(ctx, ids[0], "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 2} {
		if r, err := runs.Get(ctx, ids[i]); err != nil || r.Background != want {
			t.Errorf("%+v, %v; want %d left", r, err, want)
		}
	}
	if _, err := d.Computers().Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if r, err := runs.Get(ctx, ids[1]); err != nil || r.Background != 0 {
		t.Errorf("without a machine: %+v, %v", r, err)
	}
}
