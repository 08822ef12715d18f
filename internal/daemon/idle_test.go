package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
)

// TestIdleRace: work that comes while its computer is being paused for being idle waits and wakes it; none is
// lost, whichever instant it comes at. It is 5 rounds for each who works; HOLT_SOAK=1 makes it 60.
func TestIdleRace(t *testing.T) {
	racesRest(t, func(ctx context.Context, d *daemon.Daemon) (bool, error) {
		return d.Computers().Memory().PauseIfIdle(ctx, "einstein", "test")
	})
}

// TestStopRace is that of a computer that is stopped when nothing uses it, as after a schedule's run.
func TestStopRace(t *testing.T) {
	racesRest(t, func(ctx context.Context, d *daemon.Daemon) (bool, error) {
		return d.Computers().StopIfIdle(ctx, "einstein")
	})
}

// racesRest has a computer rest whenever nothing uses it, while others work in it.
func racesRest(t *testing.T, rest func(context.Context, *daemon.Daemon) (bool, error)) {
	rounds := 5
	if os.Getenv("HOLT_SOAK") != "" {
		rounds = 60
	}
	d := up(t, dozes(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein", IdleTimeout: holt.NeverIdle})
	ctx, cancel := context.WithCancel(t.Context())
	var resting, working sync.WaitGroup
	rests := 0
	resting.Go(func() {
		for ctx.Err() == nil {
			done, err := rest(ctx, d)
			if err != nil && ctx.Err() == nil {
				t.Error("rest:", err)
				return
			}
			if done {
				rests++
			}
		}
	})
	works := map[string]func(i int) error{
		"run":      func(i int) error { return runsLine(ctx, d, fmt.Sprint(i)) },
		"file":     func(i int) error { return writesFile(ctx, d, fmt.Sprint("file ", i)) },
		"terminal": func(i int) error { return opensTerminal(ctx, d, fmt.Sprintf("t%d", i)) },
	}
	for name, work := range works {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(len(name)), 5))
			for i := range rounds {
				if err := work(i); err != nil {
					t.Errorf("%s %d: %v", name, i, err)
				}
				select { // or nothing would ever be idle
				case <-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	working.Wait()
	cancel()
	resting.Wait()
	lines := succeeds(t, d, "einstein", "sort -n lines")
	if n := strings.Count(lines, "\n"); n != rounds {
		t.Errorf("%d lines were written by %d runs:\n%s", n, rounds, lines)
	}
	c, err := d.Computers().Get(t.Context(), "einstein")
	if err != nil || rests == 0 || c.WokenBy == "" || c.WakeMS == 0 {
		t.Errorf("it rested %d times, and was woken by %q in %d ms, %v", rests, c.WokenBy, c.WakeMS, err)
	}
	t.Logf("counts: %d rounds each, it rested %d times; the last wake, by %s, took %d ms", rounds, rests, c.WokenBy, c.WakeMS)
}

func runsLine(ctx context.Context, d *daemon.Daemon, line string) error {
	runs := d.Computers().Runs()
	r, err := runs.Start(ctx, "einstein", holt.RunSpec{Command: holt.OSString("echo " + line + " | tee -a lines"), User: "root"}, "")
	if err != nil {
		return err
	}
	var out strings.Builder
	end := holt.Run{}
	err = runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error {
		out.Write(e.Data)
		if e.Run != nil {
			end = *e.Run
		}
		return nil
	})
	if err == nil && (end.State != holt.RunExited || end.ExitCode != 0 || out.String() != line+"\n") {
		err = fmt.Errorf("%+v: %q", end, out.String())
	}
	return err
}

func writesFile(ctx context.Context, d *daemon.Daemon, text string) error {
	files := d.Computers().Files()
	var got bytes.Buffer
	_, err := files.Write(ctx, "einstein", "/home/agent/file", holt.WriteSpec{User: "root"}, strings.NewReader(text))
	if err == nil {
		err = files.Read(ctx, "einstein", "/home/agent/file", 0, -1, &got)
	}
	if err == nil && got.String() != text {
		err = fmt.Errorf("it has %q", got.String())
	}
	return err
}

func opensTerminal(ctx context.Context, d *daemon.Daemon, name string) error {
	terminals := d.Computers().Terminals()
	if _, err := terminals.Open(ctx, "einstein", holt.TerminalSpec{Name: name, Command: "cat", User: "root"}, ""); err != nil {
		return err
	}
	_, err := terminals.Close(ctx, "einstein", name, "")
	return err
}

// TestIdlePause: a computer that nothing uses is paused by itself, a file that is read wakes it, and
// who woke it and how long that took is on record.
func TestIdlePause(t *testing.T) {
	d := up(t, dozes(t, home(t)))
	ctx := t.Context()
	create(t, d, holt.ComputerSpec{Name: "einstein", IdleTimeout: holt.IdleTimeout(time.Second)})
	succeeds(t, d, "einstein", "echo 42 > answer")
	h, err := d.Computers().Hold(ctx, "einstein", holt.HoldSpec{Reason: "thinking"}, "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Computers().Awake(ctx, "einstein")
	if err != nil || len(a.Uses) == 0 || a.Uses[len(a.Uses)-1].ID != string(h.ID) {
		t.Errorf("%+v, %v", a, err)
	}
	if err := d.Computers().Release(ctx, "einstein", h.ID, ""); err != nil {
		t.Fatal(err)
	}
	c := becomes(t, d.Computers().Get, "einstein", holt.ComputerPaused)
	if c.PausedBy != "idle" {
		t.Errorf("paused by %q", c.PausedBy)
	}
	if _, err := d.Computers().Hold(ctx, "einstein", holt.HoldSpec{Reason: "waits"}, ""); err != nil {
		t.Fatal(err)
	}
	if c, _ = d.Computers().Get(ctx, "einstein"); c.State != holt.ComputerPaused {
		t.Error("a hold woke it")
	}
	if got := read(t, d, "einstein", "/home/agent/answer"); got != "42\n" {
		t.Errorf("it reads %q", got)
	}
	c, err = d.Computers().Get(ctx, "einstein")
	if err != nil || c.State != holt.ComputerRunning || c.WokenBy != "files: read /home/agent/answer" || c.WakeMS <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// becomes waits until a computer is in a state.
func becomes(t *testing.T, get func(context.Context, string) (holt.Computer, error), name string, state holt.ComputerState) holt.Computer {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		c, err := get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if c.State == state {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("it is %s (%s), not %s", c.State, c.Reason, state)
		}
	}
}

// TestIdleMachine: a real machine is paused some seconds after its last use, with a program and an idle
// shell in it, not while a background job keeps it awake; a run wakes it and all goes on. It is
// 2 rounds, and 6 s with the job; HOLT_SOAK=1: 10 rounds, and 20 s.
func TestIdleMachine(t *testing.T) {
	rounds, awake := 2, 6*time.Second
	if os.Getenv("HOLT_SOAK") != "" {
		rounds, awake = 10, 20*time.Second
	}
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	c, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 512, IdleTimeout: holt.IdleTimeout(4 * time.Second)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Terminals.Open(ctx, c.Name, holt.TerminalSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	boot := v.says(c.Name, "(sleep 100000 &) >/dev/null 2>&1; cat /proc/sys/kernel/random/boot_id")
	for round := range rounds {
		began := time.Now()
		is := becomes(t, v.Computers.Get, c.Name, holt.ComputerPaused)
		t.Logf("round %d: paused by %s %v after its last use", round, is.PausedBy, time.Since(began).Round(time.Millisecond))
		if is.PausedBy != "idle" {
			t.Errorf("paused by %q", is.PausedBy)
		}
		if got := v.says(c.Name, "pgrep -f 'sleep 100000' >/dev/null && cat /proc/sys/kernel/random/boot_id"); got != boot {
			t.Errorf("another machine woke: %s, not %s", got, boot)
		}
		is, err = v.Computers.Get(ctx, c.Name)
		if err != nil || !strings.HasPrefix(is.WokenBy, "run: pgrep") || is.WakeMS <= 0 {
			t.Errorf("%+v, %v", is, err)
		}
		t.Logf("round %d: woken by %q in %d ms", round, is.WokenBy, is.WakeMS)
	}
	left, err := v.Runs.Start(ctx, c.Name, holt.RunSpec{Command: "(while :; do :; done &) >/dev/null 2>&1", User: "root"}, "")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(awake); time.Now().Before(end); time.Sleep(time.Second) {
		if a, err := v.Computers.Awake(ctx, c.Name); err != nil || a.State != holt.ComputerRunning {
			t.Fatalf("with a job in the background: %+v, %v", a, err)
		}
	}
	a, err := v.Computers.Awake(ctx, c.Name)
	if err != nil || len(a.Uses) == 0 || a.Uses[0].Kind != holt.UseBackground || a.Uses[0].ID != string(left.ID) {
		t.Errorf("with a job in the background it is awake for %+v, %v", a.Uses, err)
	}
	t.Logf("with a job in the background: %+v", a.Uses)
	if err := v.Runs.Signal(ctx, left.ID, "SIGKILL", ""); err != nil {
		t.Fatal(err)
	}
	becomes(t, v.Computers.Get, c.Name, holt.ComputerPaused)
	t.Logf("counts: paused %d times for being idle, and not for %v with a job in the background", rounds+1, awake)
	endAll(t, v.process)
}
