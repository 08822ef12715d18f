package daemon_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
)

// TestKilledDaemon: a daemon is killed under a working computer. The machine
// and its run go on, the next daemon adopts both, and a follower goes on at
// the offset it had reached.
func TestKilledDaemon(t *testing.T) {
	dir := home(t)
	ctx := t.Context()
	p := spawn(t, dir, "")
	c, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	const script = `for i in 1 2 3; do echo $i | tee -a log; sync log; while ! test -e go$i; do sleep 0.05; done; done; echo end | tee -a log`
	r, err := p.Runs.Start(ctx, "curie", holt.RunSpec{Command: script, User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	first := until(t, p, r.ID, 0, "1\n")
	p.kill()

	p = spawn(t, dir, "")
	got, err := p.Computers.Get(ctx, "curie")
	if err != nil || got.State != holt.ComputerRunning || got.ID != c.ID || !got.StartedAt.Equal(*c.StartedAt) {
		t.Fatalf("after the kill: %+v %v", got, err)
	}
	if r, err := p.Runs.Get(ctx, r.ID); err != nil || r.State != holt.RunRunning {
		t.Fatalf("the run after the kill: %+v %v", r, err)
	}
	touch := func(name string) {
		t.Helper()
		_, err := p.Files.Write(ctx, "curie", "/home/agent/"+name, holt.WriteSpec{User: "root"}, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
	}
	touch("go1")
	second := until(t, p, r.ID, first, "2\n")
	touch("go2")
	p.kill() // nobody serves while the guest goes on to write
	p = spawn(t, dir, "")
	touch("go3")
	var rest strings.Builder
	var end holt.Run
	err = p.Runs.Follow(ctx, r.ID, second, func(e holt.RunEvent) error {
		rest.Write(e.Data)
		if e.Kind == holt.RunExit {
			end = *e.Run
		}
		return nil
	})
	if err != nil || rest.String() != "3\nend\n" || end.State != holt.RunExited || end.ExitCode != 0 {
		t.Fatalf("the rest %q, %+v, %v", rest.String(), end, err)
	}
	var log strings.Builder
	if err := p.Files.Read(ctx, "curie", "/home/agent/log", 0, -1, &log); err != nil || log.String() != "1\n2\n3\nend\n" {
		t.Errorf("the log %q, %v", log.String(), err)
	}
	q, err := p.Workspaces.Query(ctx, "curie", holt.QuerySpec{SQL: `SELECT writer, run FROM files WHERE name = 'log'`})
	if err != nil || len(q.Rows) != 1 || q.Rows[0][0] != "agent" || q.Rows[0][1] != string(r.ID) {
		t.Errorf("the writer after two restarts: %v %v", q.Rows, err)
	}
	endAll(t, p)
}

// TestKilledBeforeARun: a daemon is killed between recording a run and asking
// the guest for it. The client's repeat starts that run, with its environment,
// which was not recorded.
func TestKilledBeforeARun(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "run/start")
	if _, err := p.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		run holt.Run
		err error
	}
	started := make(chan answer, 1)
	go func() {
		run, err := p.Runs.Start(context.Background(), "curie", holt.RunSpec{
			Command: "echo $GREETING", Env: map[holt.OSString]holt.OSString{"GREETING": "hi"}, User: "root",
		}, "the-key")
		started <- answer{run, err}
	}()
	p.wait()
	p = spawn(t, dir, "")
	a := <-started
	if a.err != nil {
		t.Fatal(a.err)
	}
	until(t, p, a.run.ID, 0, "hi\n")
	if list, err := p.Runs.List(t.Context(), "curie", "", 10); err != nil || len(list) != 1 || list[0].ID != a.run.ID {
		t.Errorf("%+v %v", list, err)
	}
	endAll(t, p)
}

// until follows a run until its output from offset on is want, and returns
// the offset behind it.
func until(t *testing.T, p *process, id holt.RunID, offset int64, want string) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := ""
	err := p.Runs.Follow(ctx, id, offset, func(e holt.RunEvent) error {
		got += string(e.Data)
		offset = e.Offset + int64(len(e.Data))
		if len(got) >= len(want) || e.Kind == holt.RunExit {
			cancel()
		}
		return nil
	})
	if got != want {
		t.Fatalf("output %q, not %q; %v", got, want, err)
	}
	return offset
}

// endAll ends a daemon process and all of its computers; its workspaces check clean.
func endAll(t *testing.T, p *process) {
	t.Helper()
	ctx := context.Background()
	all, err := p.Workspaces.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		report, err := p.Workspaces.Check(ctx, w.Name)
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("check of %s: %v %v", w.Name, report.Problems, err)
		}
	}
	if _, err := p.Daemon.Down(ctx, holt.DownSpec{}, ""); err != nil {
		t.Error("down:", err)
	}
	if err := p.wait(); err != nil {
		t.Error("the daemon ended with", err)
	}
}

// TestKilledAtEachStep kills a daemon at every step of creating and deleting:
// the next one finds either nothing or the whole computer.
func TestKilledAtEachStep(t *testing.T) {
	for _, point := range []string{
		"create/row", "create/workspace", "create/disk", "create/open", "create/machine", "create/agent", "create/settle",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := home(t)
			p := spawn(t, dir, point)
			// The client comes again, with the same key, and the next daemon creates.
			created := make(chan error, 1)
			go func() {
				_, err := p.Computers.Create(context.Background(), holt.ComputerSpec{Name: "curie"}, "the-key")
				created <- err
			}()
			p.wait()
			p = spawn(t, dir, "")
			if err := <-created; err != nil {
				t.Fatal(err)
			}
			all, err := p.Computers.List(t.Context())
			if err != nil || len(all) != 1 || all[0].State != holt.ComputerRunning {
				t.Fatalf("%+v %v", all, err)
			}
			if spaces, err := p.Workspaces.List(t.Context()); err != nil || len(spaces) != 1 {
				t.Fatalf("%+v %v", spaces, err)
			}
			entries(t, dir, "computers", 1)
			entries(t, dir, "workspaces", 1)
			endAll(t, p)
		})
	}
	for _, point := range []string{
		"delete/agent", "delete/machine", "delete/open", "delete/disk", "delete/workspace", "delete/row",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := home(t)
			p := spawn(t, dir, point)
			if _, err := p.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
				t.Fatal(err)
			}
			deleted := make(chan error, 1)
			caller := connect(t, dir)
			go func() {
				_, err := caller.Computers.Delete(context.Background(), "curie", "")
				deleted <- err
			}()
			p.wait()
			p = spawn(t, dir, "")
			if err := <-deleted; err != nil {
				t.Error("the repeated delete:", err)
			}
			if all, err := p.Computers.List(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%+v %v", all, err)
			}
			empty(t, dir)
			nothingLeft(t, dir)
			endAll(t, p)
		})
	}
}

func entries(t *testing.T, dir, sub string, want int) {
	t.Helper()
	if names := namesIn(t, filepath.Join(dir, sub)); len(names) != want {
		t.Errorf("%s holds %v; want %d", sub, names, want)
	}
}

// TestKilledWhileStartingAndStopping: what was begun is finished.
func TestKilledWhileStartingAndStopping(t *testing.T) {
	for point, want := range map[string]holt.ComputerState{
		"start/open": holt.ComputerStopped, "start/machine": holt.ComputerStopped, "start/agent": holt.ComputerRunning,
		"start/settle": holt.ComputerRunning, "stop/halt": holt.ComputerStopped, "stop/machine": holt.ComputerStopped,
		"stop/open": holt.ComputerStopped,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := home(t)
			p := spawn(t, dir, point)
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""); err != nil {
				t.Fatal(err)
			}
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				p.Computers.Stop(ctx, "curie", "")
				p.Computers.Start(ctx, "curie", "")
			}()
			p.wait()
			cancel() // the client does not come again
			<-asked
			p = spawn(t, dir, "")
			c := settle(t, p, "curie")
			if c.State != want {
				t.Errorf("%s (%s), not %s", c.State, c.Reason, want)
			}
			if _, err := p.Files.Write(t.Context(), "curie", "/home/agent/f", holt.WriteSpec{User: "root"}, strings.NewReader("works")); err != nil {
				t.Error(err)
			}
			endAll(t, p)
		})
	}
}

// settle waits until nothing is being done with a computer.
func settle(t *testing.T, p *process, name string) holt.Computer {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := p.Computers.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		switch c.State {
		case holt.ComputerRunning, holt.ComputerStopped, holt.ComputerFailed:
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s", c.State)
		}
	}
}

// TestMachineKilled: the machine ends by itself; its run is lost, its files
// are not, and it starts again.
func TestMachineKilled(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	ctx := t.Context()
	c, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Runs.Start(ctx, "curie", holt.RunSpec{Command: "echo kept > kept; sync kept; echo ready; sleep 1000", User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, p, r.ID, 0, "ready\n")
	killMachine(t, dir, c.ID)
	var end holt.Run
	err = p.Runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error {
		if e.Run != nil {
			end = *e.Run
		}
		return nil
	})
	if err != nil || end.State != holt.RunLost || end.EndedAt == nil {
		t.Fatalf("%+v %v", end, err)
	}
	within(t, "the computer to stop", func() bool { // its runs are told first
		c = settle(t, p, "curie")
		return c.State == holt.ComputerStopped
	})
	if !strings.Contains(c.Reason, "ended") {
		t.Errorf("%+v", c)
	}
	var b strings.Builder
	if err := p.Files.Read(ctx, "curie", "/home/agent/kept", 0, -1, &b); err != nil || b.String() != "kept\n" {
		t.Errorf("%q %v", b.String(), err)
	}
	if c, err = p.Computers.Start(ctx, "curie", ""); err != nil || c.Reason != "" {
		t.Fatalf("%+v %v", c, err)
	}
	// The same while no daemon watches.
	p.kill()
	killMachine(t, dir, c.ID)
	p = spawn(t, dir, "")
	if c, err = p.Computers.Get(ctx, "curie"); err != nil || c.State != holt.ComputerStopped || !strings.Contains(c.Reason, "while the daemon was not running") {
		t.Errorf("%+v %v", c, err)
	}
	endAll(t, p)
}

// killMachine kills the process that is a computer's machine.
func killMachine(t *testing.T, dir string, id holt.ComputerID) {
	t.Helper()
	for _, s := range machines(t, dir) {
		if strings.Contains(s.Dir, string(id)) {
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no machine of %s", id)
}
