package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

func TestRun(t *testing.T) {
	c := startGuest(t).client(t)
	h, err := c.Hello(t.Context())
	if err != nil || h.Protocol != Protocol || h.BootID == "" || h.Instance == "" {
		t.Fatalf("hello: %+v, %v", h, err)
	}
	for _, tt := range []struct {
		name string
		spec holt.RunSpec
		want result
	}{
		{"shell", holt.RunSpec{Command: "echo out; echo err >&2; exit 3"},
			result{stdout: "out\n", stderr: "err\n", Run: holt.Run{ExitCode: 3}}},
		{"argv", holt.RunSpec{Argv: []string{"printf", "%s|", "a b", "", "$HOME"}}, result{stdout: "a b||$HOME|"}},
		{"env", holt.RunSpec{Argv: []string{"sh", "-c", `echo "$A $HOME $USER $LOGNAME $SHELL"`}, Env: map[holt.OSString]holt.OSString{"A": "x y"}},
			result{stdout: "x y /home/agent agent agent /bin/sh\n"}},
		{"user", holt.RunSpec{Argv: []string{"sh", "-c", `echo "$HOME $USER $(id -u) $(id -g) $(id -G)"`}, User: "root", Cwd: "/"},
			result{stdout: "/root root 0 0 0\n"}},
		{"default user", holt.RunSpec{Argv: []string{"sh", "-c", "id -u; id -g; pwd"}}, result{stdout: "1000\n1000\n/home/agent\n"}},
		{"number", holt.RunSpec{Argv: []string{"id", "-u"}, User: "4711", Cwd: "/"}, result{stdout: "4711\n"}},
		{"cwd", holt.RunSpec{Argv: []string{"pwd"}, Cwd: "/usr"}, result{stdout: "/usr\n"}},
		{"no stdin", holt.RunSpec{Argv: []string{"cat"}}, result{}},
		{"signal", holt.RunSpec{Command: "kill -TERM $$"}, result{Run: holt.Run{ExitCode: 143, Signal: "SIGTERM"}}},
		{"login shell", holt.RunSpec{Command: "shopt -q login_shell && echo yes"}, result{stdout: "yes\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := runToEnd(t, c, tt.spec)
			if r.stdout != tt.want.stdout || r.stderr != tt.want.stderr || r.ExitCode != tt.want.ExitCode || r.Signal != tt.want.Signal {
				t.Errorf("got %q %q %d %s, want %q %q %d %s", r.stdout, r.stderr, r.ExitCode, r.Signal,
					tt.want.stdout, tt.want.stderr, tt.want.ExitCode, tt.want.Signal)
			}
			if r.State != holt.RunExited || r.EndedAt == nil || r.Background != 0 {
				t.Errorf("ended run: %+v", r.Run)
			}
		})
	}
	sh(t, c, `while ps -eo stat= | grep -q ^Z; do sleep 0.01; done`) // no zombie stays
	runs, err := c.Runs(t.Context())
	if err != nil || len(runs) != 11 {
		t.Errorf("%d runs are remembered, want 11; %v", len(runs), err)
	}
}

func TestRunRefused(t *testing.T) {
	c := startGuest(t).client(t)
	for _, tt := range []struct {
		name string
		spec holt.RunSpec
		code holt.Code
	}{
		{"nothing", holt.RunSpec{}, holt.InvalidArgument},
		{"both", holt.RunSpec{Command: "x", Argv: []string{"x"}}, holt.InvalidArgument},
		{"no such directory", holt.RunSpec{Command: "x", Cwd: "/no/such"}, holt.NotFound},
		{"not a directory", holt.RunSpec{Command: "x", Cwd: "/etc/passwd"}, holt.InvalidArgument},
		{"relative", holt.RunSpec{Command: "x", Cwd: "etc"}, holt.InvalidArgument},
		{"no such program", holt.RunSpec{Argv: []string{"no-such-program"}}, holt.NotFound},
		{"no such file", holt.RunSpec{Argv: []string{"/no/such/program"}}, holt.NotFound},
		{"not executable", holt.RunSpec{Argv: []string{"/etc/passwd"}}, holt.Forbidden},
		{"forbidden directory", holt.RunSpec{Argv: []string{"true"}, Cwd: "/root"}, holt.Forbidden},
		{"no such user", holt.RunSpec{Command: "x", User: "nobody-of-that-name"}, holt.NotFound},
		{"zero byte", holt.RunSpec{Command: "a\x00b"}, holt.InvalidArgument},
		{"too large", holt.RunSpec{Command: holt.OSString(strings.Repeat("x", maxSpec))}, holt.InvalidArgument},
	} {
		id := holt.NewRunID()
		_, err := c.StartRun(t.Context(), id, tt.spec)
		wantCode(t, tt.name, err, tt.code)
		_, err = c.GetRun(t.Context(), id)
		wantCode(t, tt.name+", afterwards", err, holt.NotFound)
	}
	_, err := c.StartRun(t.Context(), "../../x", holt.RunSpec{Command: "true"})
	wantCode(t, "id", err, holt.InvalidArgument)
	wantCode(t, "signal of no run", c.SignalRun(t.Context(), holt.NewRunID(), "TERM"), holt.NotFound)
}

func TestStartIsIdempotent(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	spec := holt.RunSpec{Command: "echo once >> /home/agent/log; cat /home/agent/log"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r, err := c.StartRun(t.Context(), id, spec); err != nil || r.ID != id {
				t.Errorf("start: %+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if r := follow(t, c, id, 0); r.stdout != "once\n" {
		t.Errorf("output %q", r.stdout)
	}
}

func TestConcurrentUse(t *testing.T) {
	c := startGuest(t).client(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			id := holt.NewRunID()
			if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Argv: []string{"echo", fmt.Sprint(i)}}); err != nil {
				t.Error(err)
				return
			}
			if r := follow(t, c, id, 0); r.stdout != fmt.Sprintln(i) {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
}

// A run ends with its process, even if a child holds its output; the child
// keeps running, even if it writes.
func TestBackgroundChild(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	line := `(read x < /home/agent/fifo; echo late; echo later; echo lived > /home/agent/proof) & echo done`
	sh(t, c, "mkfifo -m 666 /home/agent/fifo")
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(line)}); err != nil {
		t.Fatal(err)
	}
	r := follow(t, c, id, 0)
	if r.stdout != "done\n" || r.Background < 1 {
		t.Errorf("output %q, background %d", r.stdout, r.Background)
	}
	sh(t, c, "echo go > /home/agent/fifo; until [ -s /home/agent/proof ]; do sleep 0.01; done")

	r = runToEnd(t, c, holt.RunSpec{Command: "sleep 20 & sleep 20 & exit 7"})
	if r.ExitCode != 7 || r.Background != 2 {
		t.Errorf("exit code %d, background %d, want 7 and 2", r.ExitCode, r.Background)
	}
	now, err := c.GetRun(t.Context(), r.ID)
	if err != nil || now.Background != 2 {
		t.Errorf("%+v, %v", now, err)
	}
	if err = c.SignalRun(t.Context(), r.ID, "SIGKILL"); err != nil {
		t.Fatalf("kill what was left: %v", err)
	}
	if now, err := c.GetRun(t.Context(), r.ID); err != nil || now.Background != 0 {
		t.Errorf("after it was killed: %+v, %v", now, err)
	}
	sh(t, c, "while pgrep -x sleep; do sleep 0.01; done")
	for err == nil { // one that was killed before it had become sleep may take a snapshot
		err = c.SignalRun(t.Context(), r.ID, "SIGKILL")
	}
	wantCode(t, "kill again", err, holt.Conflict)

	id = holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "for i in {1..50}; do sleep 1000 & done; wait"}); err != nil {
		t.Fatal(err)
	}
	sh(t, c, "until [ $(pgrep -cx sleep) = 50 ]; do sleep 0.01; done")
	if err := c.SignalRun(t.Context(), id, "KILL"); err != nil {
		t.Fatal(err)
	}
	if r := follow(t, c, id, 0); r.Signal != "SIGKILL" || r.Background != 0 {
		t.Errorf("a run that was killed: %+v", r.Run)
	}
}

func TestTimeoutAndSignals(t *testing.T) {
	c := startGuest(t).client(t)
	r := runToEnd(t, c, holt.RunSpec{Command: "sleep 1000 | sleep 1000", TimeoutMS: 50})
	if !r.TimedOut || r.Signal != "SIGTERM" || r.ExitCode != 143 {
		t.Errorf("timed out run: %+v", r.Run)
	}
	// A process that ignores SIGTERM is killed. The timeout may expire before its
	// shell prints anything.
	for ms := int64(50); ; ms *= 4 {
		r = runToEnd(t, c, holt.RunSpec{Command: `trap "" TERM; echo deaf; while :; do sleep 1000; done`, TimeoutMS: ms})
		if !r.TimedOut || r.stdout != "" && r.Signal != "SIGKILL" {
			t.Errorf("timed out run that ignores SIGTERM: %+v", r.Run)
		}
		if t.Failed() || r.stdout != "" {
			return
		}
	}
}

func TestSignalWholeRun(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	spec := holt.RunSpec{Command: `trap "echo got; exit 5" USR1; setsid sh -c "echo ready; exec sleep 1000" & wait`}
	if _, err := c.StartRun(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	var out string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := c.FollowRun(ctx, id, 0, func(e holt.RunEvent) error {
		out += string(e.Data)
		if out == "ready\n" && e.Kind == holt.RunStdout {
			return c.SignalRun(ctx, id, "usr1")
		}
		if e.Kind == holt.RunExit && e.Run.ExitCode != 5 {
			t.Errorf("exit %+v", *e.Run)
		}
		return nil
	})
	if err != nil || out != "ready\ngot\n" {
		t.Errorf("output %q, %v", out, err)
	}
	sh(t, c, "while pgrep -x sleep; do sleep 0.01; done") // in a session of its own, and yet reached
	wantCode(t, "signal", c.SignalRun(ctx, id, "SIGNONSENSE"), holt.InvalidArgument)
}

func TestInput(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Argv: []string{"sha256sum"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	in, err := c.RunInput(t.Context(), id, -1, false, false)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.RunInput(t.Context(), id, -1, false, false)
	wantCode(t, "second input", err, holt.Conflict)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := in.Write(data); err != nil {
		t.Fatal(err)
	}
	if taken, err := in.End(); err != nil || taken != int64(len(data)) {
		t.Fatal(taken, err)
	}
	if r := follow(t, c, id, 0); r.stdout != fmt.Sprintf("%x  -\n", sha256.Sum256(data)) {
		t.Errorf("output %q", r.stdout)
	}

	r := runToEnd(t, c, holt.RunSpec{Argv: []string{"true"}})
	_, err = c.RunInput(t.Context(), r.ID, -1, false, false)
	wantCode(t, "input of a run without", err, holt.Conflict)

	// A process that ends without reading must not block the writer.
	id = holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Argv: []string{"sh", "-c", "exec <&-; sleep 0.1"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	if in, err = c.RunInput(t.Context(), id, 0, false, false); err == nil {
		_, err = io.Copy(in, io.LimitReader(zeros{}, 64<<20))
	}
	if err == nil { // the agent discards it as fast as it comes, and its answer is not here yet
		_, err = in.End()
	}
	wantCode(t, "input nobody reads", err, holt.Conflict)
}

// Input sent before a connection broke is not delivered twice, even if the
// agent is still writing it because the run does not read.
func TestInputIsNotRepeated(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	gate := "/tmp/" + string(id) // where the guest's user may write
	script := fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; exec sha256sum", gate)
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Argv: []string{"sh", "-c", script}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i >> 10)
	}
	open := func(offset int, keep bool) *RunInput {
		t.Helper()
		in, err := c.RunInput(t.Context(), id, int64(offset), keep, false)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	send := func(in *RunInput, data []byte) int {
		t.Helper()
		if _, err := in.Write(data); err != nil {
			t.Fatal(err)
		}
		taken, err := in.End()
		if err != nil {
			t.Fatal(err)
		}
		return int(taken)
	}
	first := open(0, true)
	stuck := make(chan error)
	go func() {
		first.Write(data) // more than the pipe holds
		_, err := first.End()
		stuck <- err
	}()
	second := open(0, true)
	wantCode(t, "the first input", <-stuck, holt.Conflict)
	sh(t, c, "touch "+gate)
	defer sh(t, c, "rm "+gate)
	if taken := send(second, data[:2<<20]); taken != 2<<20 {
		t.Errorf("%d bytes taken", taken)
	}
	_, err := c.RunInput(t.Context(), id, 2<<20+1, true, false)
	wantCode(t, "input behind a gap", err, holt.InvalidArgument)
	if taken := send(open(1<<20, true), data[1<<20:]); taken != len(data) {
		t.Errorf("%d bytes taken", taken)
	}
	for range 2 { // a repeated end is one
		if taken := send(open(-1, false), nil); taken != len(data) {
			t.Errorf("%d bytes taken", taken)
		}
	}
	if r := follow(t, c, id, 0); r.stdout != fmt.Sprintf("%x  -\n", sha256.Sum256(data)) {
		t.Errorf("output %q", r.stdout)
	}
	late := open(len(data), false)
	late.Write([]byte("more"))
	_, err = late.End()
	wantCode(t, "input behind the end", err, holt.Conflict)
}

// A run survives the death of its host, and the next host continues reading
// where the first stopped.
func TestFollowAgainAfterLostHost(t *testing.T) {
	g := startGuest(t)
	first := g.dial(t, "control.sock")
	c, err := NewClient(first)
	if err != nil {
		t.Fatal(err)
	}
	id := holt.NewRunID()
	const lines = 200000
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(fmt.Sprintf("seq %d", lines))}); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	err = c.FollowRun(t.Context(), id, 0, func(e holt.RunEvent) error {
		got.Write(e.Data)
		if got.Len() > 100000 {
			first.Close() // as a kill would
		}
		return nil
	})
	wantCode(t, "follow over a lost channel", err, holt.Unavailable)
	<-c.Done()
	c = g.client(t)
	r := follow(t, c, id, int64(got.Len()))
	got.WriteString(r.stdout)
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if r.gaps != 0 || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("output of %d bytes with gaps of %d, want %d bytes", got.Len(), r.gaps, want.Len())
	}
	if _, err := c.GetRun(t.Context(), id); err != nil {
		t.Error(err)
	}
	err = c.FollowRun(t.Context(), id, 1<<40, func(holt.RunEvent) error { return nil })
	wantCode(t, "offset past the end", err, holt.InvalidArgument)
}

// Output is complete for a follower, however slow it reads.
func TestSlowFollower(t *testing.T) {
	c := startGuest(t).client(t)
	const size = 24 << 20
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(fmt.Sprintf("head -c %d /dev/zero", size))}); err != nil {
		t.Fatal(err)
	}
	if r := follow(t, c, id, 0); len(r.stdout) != size || r.gaps != 0 {
		t.Errorf("%d bytes and gaps of %d, want %d and none", len(r.stdout), r.gaps, size)
	}
}

func TestStopFollowing(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "echo a; sleep 1000"}); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("enough")
	if err := c.FollowRun(t.Context(), id, 0, func(holt.RunEvent) error { return mine }); err != mine {
		t.Errorf("follow ended with %v, want the callback's error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.FollowRun(ctx, id, 0, func(holt.RunEvent) error { cancel(); return nil })
	wantCode(t, "follow with an ended context", err, holt.Timeout)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not say why", err)
	}
	if err := c.SignalRun(t.Context(), id, "KILL"); err != nil {
		t.Error(err)
	}
}

// Without cgroup2 a run's processes are found by their environment.
func TestGroupByEnvironment(t *testing.T) {
	g := group{id: string(holt.NewRunID())}
	var r reaper
	attr := command{path: "/bin/sh", argv: []string{"sh", "-c", "sleep 1000 & sleep 1000 & wait"}}
	attr.attr.Env = []string{"PATH=" + guestPath, runEnv + "=" + string(g.id)}
	_, end, err := r.start(attr.path, attr.argv, &attr.attr)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); len(g.pids()) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("found %d processes, want 3", len(g.pids()))
		}
	}
	g.kill()
	if code, sig := ending(<-end); code != 137 || sig != "SIGKILL" {
		t.Errorf("ended with %d %s", code, sig)
	}
	for deadline := time.Now().Add(patience); len(g.pids()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", g.pids())
		}
	}
}

func TestOutputRing(t *testing.T) {
	o := newOutput(8*pieceCost, true, time.Now().Add(-time.Hour)) // nobody is waited for
	for i := range 100 {
		o.write(eventStdout+byte(i%2), []byte(fmt.Sprintf("%03d,", i)))
	}
	f, err := o.follow(0)
	if err != nil {
		t.Fatal(err)
	}
	kind, offset, _, lost, err := o.next(t.Context(), f)
	if kind != eventGap || offset != 0 || lost != o.start || lost == 0 || err != nil {
		t.Fatalf("first event: kind %d at %d, lost %d, %v", kind, offset, lost, err)
	}
	o.advance(f, lost)
	o.close()
	var tail string
	for {
		kind, _, data, _, _ := o.next(t.Context(), f)
		if kind == 0 {
			break
		}
		tail += string(data)
		o.advance(f, int64(len(data)))
	}
	if !strings.HasSuffix(tail, "098,099,") || int64(len(tail))+lost != 400 {
		t.Errorf("tail %q after a gap of %d", tail, lost)
	}
	o.shrink(0)
	if o.size() != 0 {
		t.Errorf("%d bytes after shrinking to none", o.size())
	}
}

// TestOutputWaits: a run is blocked while a follower does not read, and not
// after it has left. A detached run is not blocked.
func TestOutputWaits(t *testing.T) {
	for _, detached := range []bool{false, true} {
		o := newOutput(8*pieceCost, detached, time.Now().Add(-time.Hour))
		f, err := o.follow(0)
		if err != nil {
			t.Fatal(err)
		}
		o.mu.Lock()
		o.dropFrom = time.Now().Add(-time.Hour) // it has rested for long
		o.mu.Unlock()
		written := make(chan struct{})
		go func() {
			defer close(written)
			for i := range 100 {
				o.write(eventStdout+byte(i%2), []byte("1234"))
			}
		}()
		if detached {
			<-written
		} else {
			select {
			case <-written:
				t.Error("a run was not held back for its follower")
			case <-time.After(20 * time.Millisecond):
			}
		}
		kind, _, data, lost, err := o.next(t.Context(), f)
		if gap := kind == eventGap; gap != detached || err != nil {
			t.Errorf("detached %t: %q after %d lost, %v", detached, data, lost, err)
		}
		o.unfollow(f, 0)
		<-written
	}
}

// TestOutputOfKilledRun: a run whose process has ended waits for an idle
// follower, but not after it is killed or its timeout expires, before or after
// that end.
func TestOutputOfKilledRun(t *testing.T) {
	for name, end := range map[string]func(*run){
		"killed":             func(r *run) { r.signal(unix.SIGKILL); r.note(false, true) },
		"terminated":         func(r *run) { r.signal(unix.SIGTERM); r.note(false, true) },
		"killed afterwards":  func(r *run) { r.note(false, true); r.signal(unix.SIGKILL) },
		"timeout afterwards": func(r *run) { r.note(false, true); r.expire() },
		"ended":              func(r *run) { r.signal(unix.SIGUSR1); r.note(false, true) },
		"asked":              func(r *run) { r.signal(unix.SIGINT) },
	} {
		o := newOutput(8*pieceCost, false, time.Now())
		r := &run{output: o, group: group{dir: t.TempDir()}}
		f, err := o.follow(0)
		if err != nil {
			t.Fatal(err)
		}
		end(r)
		o.mu.Lock()
		early := o.detached && time.Until(o.dropFrom) < patienceSlow/2
		o.dropFrom = time.Now() // patienceSlow later
		o.mu.Unlock()
		written := make(chan struct{})
		go func() {
			defer close(written)
			for i := range 100 {
				o.write(eventStdout+byte(i%2), []byte("1234"))
			}
		}()
		waits := name == "ended" || name == "asked"
		if waits {
			select {
			case <-written:
				t.Errorf("%s: output was not held back for its follower", name)
			case <-time.After(20 * time.Millisecond):
			}
		} else {
			select {
			case <-written:
			case <-time.After(patience):
				t.Errorf("%s: the run waits for its follower", name)
			}
		}
		if early || r.info.TimedOut {
			t.Errorf("%s: hurried at once (%t), or timed out", name, early)
		}
		o.unfollow(f, 0)
		<-written
	}
}

func TestForgetRuns(t *testing.T) {
	table := newRunTable(&groups{}, new(reaper), "/", nil)
	now := time.Now()
	for i := range keepRuns + 50 {
		old := now.Add(-keepFor - time.Hour + time.Duration(i)*time.Second)
		r := &run{ended: make(chan struct{}), output: newOutput(ringSize, true, old)}
		r.info.EndedAt = &old
		r.output.write(eventStdout, make([]byte, 1<<20))
		close(r.ended)
		r.output.close()
		e := &runEntry{id: holt.NewRunID(), run: r}
		table.byID[e.id], table.order = e, append(table.order, e)
	}
	table.trimOutput()
	total := 0
	for _, e := range table.order {
		total += e.run.output.size()
	}
	if total > ringAll || table.order[len(table.order)-1].run.output.size() == 0 {
		t.Errorf("ended runs keep %d bytes", total)
	}
	if n := table.forget(now); n != 0 || len(table.order) != keepRuns || len(table.byID) != keepRuns {
		t.Errorf("%d running, %d remembered", n, len(table.order))
	}
}

func TestAccounts(t *testing.T) {
	a, err := findAccount("root")
	if err != nil || a.UID != 0 || a.Home != "/root" {
		t.Errorf("root: %+v, %v", a, err)
	}
	if b, err := findAccount("0"); err != nil || b.Name != "root" {
		t.Errorf("0: %+v, %v", b, err)
	}
}
