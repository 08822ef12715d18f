package computer

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/agent"
)

// guested is a live computer whose agent runs as a process of this test, with its runs on record.
func guested(t *testing.T) (*live, kept) {
	k := newKept(t)
	k.most = 64 * diskBlock
	l, _ := stubborn(t)
	l.id = k.id
	l.limits.Flush = time.Minute
	l.runTracker = &runTracker{l: l, table: k.table, outputs: k.outputs}
	guestOf(t, l)
	return l, k
}

// goesOn ends with the program of this test: nobody ends the runs of an agent that is no machine's.
var goesOn = fmt.Sprintf("exec tail --pid=%d -f /dev/null", os.Getpid())

// begins starts a run that is on record: in no login shell, in which this host's root may have files that say something.
func (k kept) begins(l *live, command string) holt.Run {
	k.t.Helper()
	run := holt.Run{ID: holt.NewRunID(), ComputerID: k.id, State: holt.RunRunning, StartedAt: time.Now()}
	c, _, _ := l.state()
	err := k.table.insert(k.t.Context(), run, nil)
	if err == nil {
		_, err = c.StartRun(k.t.Context(), run.ID, holt.RunSpec{Argv: holt.OSStrings{"/bin/bash", "-c", command}, User: "root", Cwd: "/", Stdin: true})
	}
	if err != nil {
		k.t.Fatal(err)
	}
	l.runs.opened(run.ID)
	return run
}

// TestRunningShare: of many runs that go on when their computer is paused each has a share kept, and
// none takes the place of one that has ended.
func TestRunningShare(t *testing.T) {
	l, k := guested(t)
	now := time.Now()
	var ran, going []holt.Run
	for range 32 {
		ran = append(ran, k.ran("ended", holt.RunExited, now))
	}
	c, _, _ := l.state()
	for range 8 {
		going = append(going, k.begins(l, "head -c 50000 /dev/zero | tr '\\0' x; "+goesOn))
	}
	for _, run := range going {
		for end := int64(0); end < 50000; time.Sleep(time.Millisecond) {
			out, err := c.RunOutput(t.Context(), run.ID, 0)
			if end = out.End; err != nil {
				t.Fatal(err)
			}
		}
	}
	l.runTracker.takeAll(t.Context(), c, time.Minute)
	files, err := k.table.files(t.Context(), k.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range ran {
		k.has(run, "ended")
	}
	for _, run := range going {
		if n := files[run.ID]; n != 4*diskBlock { // their half, by eight
			t.Errorf("%d bytes are kept of one that goes on", n)
		}
		if events := k.get(k.id, run.ID); len(events) < 2 || eventEnd(events[len(events)-1]) != 50000 {
			t.Errorf("kept of one that goes on: %d events", len(events))
		}
	}
}

// TestFullHost: output that the host had no room for is taken once there is some.
func TestFullHost(t *testing.T) {
	l, k := guested(t)
	full := true
	l.runTracker.outputs.failpoint = func(point string) error {
		if point == "run/output" && full {
			return &os.PathError{Op: "write", Err: syscall.ENOSPC}
		}
		return nil
	}
	run := k.begins(l, "echo out")
	c, _, _ := l.state()
	for ended := (holt.Run{}); ended.State != holt.RunExited; time.Sleep(time.Millisecond) {
		var err error
		if ended, err = c.GetRun(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	l.runs.owe(run.ID)
	if l.runTracker.keep(t.Context(), c) || !slices.Equal(l.runs.untaken(), []holt.RunID{run.ID}) {
		t.Errorf("with a full disk: left are %v", l.runs.untaken())
	}
	full = false
	if !l.runTracker.keep(t.Context(), c) || len(l.runs.untaken()) > 0 {
		t.Errorf("with room: left are %v", l.runs.untaken())
	}
	k.has(run, "out\n")
}

// TestRunningKept: what a run has written is kept while it goes on, and again once there is more.
func TestRunningKept(t *testing.T) {
	l, k := guested(t)
	l.limits.Beat = time.Millisecond
	run := k.begins(l, "echo begun; read go; echo on; "+goesOn)
	c, _, _ := l.state()
	done := make(chan struct{})
	go func() { defer close(done); l.runTracker.attend(c) }()
	keeps := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			events := k.get(k.id, run.ID)
			if len(events) > 0 && string(events[len(events)-1].Data) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("kept are %+v", events)
			}
		}
	}
	keeps("begun\n")
	in, err := c.RunInput(t.Context(), run.ID, 0, true, false)
	if err == nil {
		_, err = in.Write([]byte("\n"))
	}
	if err == nil {
		_, err = in.End()
	}
	if err != nil {
		t.Fatal(err)
	}
	keeps("begun\non\n")
	if taken, err := k.table.taken(t.Context(), run.ID); err != nil || taken {
		t.Errorf("all of it is taken for there: %v", err)
	}
	c.Close()
	<-done
}

// TestRunningKeptOnce: what has not changed is not taken again.
func TestRunningKeptOnce(t *testing.T) {
	l, k := guested(t)
	run, taken := k.begins(l, "echo begun; "+goesOn), map[holt.RunID]int64{}
	c, _, _ := l.state()
	for taken[run.ID] < 6 {
		l.runTracker.takeRunning(t.Context(), c, taken)
		time.Sleep(time.Millisecond)
	}
	k.outputs.remove(k.id, []holt.RunID{run.ID})
	if l.runTracker.takeRunning(t.Context(), c, taken); k.get(k.id, run.ID) != nil {
		t.Error("it was taken again")
	}
}

// TestHandOverOfHanging: a guest that hangs is waited for once, for all that it is to give.
func TestHandOverOfHanging(t *testing.T) {
	k := newKept(t)
	l, _ := stubborn(t)
	l.limits.Flush = 2 * time.Second
	l.runTracker = &runTracker{l: l, table: k.table, outputs: k.outputs}
	near, far := net.Pipe()
	defer far.Close()
	go io.Copy(io.Discard, far)
	client, err := agent.NewClient(near)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l.set(client, nil)
	l.runs.opened(k.ran("said", holt.RunRunning, time.Now()).ID)
	began := time.Now()
	l.handOver(t.Context())
	if took := time.Since(began); took >= 2*l.limits.Flush {
		t.Errorf("it took %v", took)
	}
}
