package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// endless are computers that are never ready.
type endless struct {
	nouns.Computers
	asked chan<- struct{}
}

func (e endless) Create(ctx context.Context, _ holt.ComputerSpec, _ string) (holt.Computer, error) {
	e.asked <- struct{}{}
	<-ctx.Done()
	return holt.Computer{}, ctx.Err()
}

func (e endless) Fork(ctx context.Context, _ string, _ holt.ComputerForkSpec, _ string) (holt.ForkedComputers, error) {
	_, err := e.Create(ctx, holt.ComputerSpec{}, "")
	return holt.ForkedComputers{}, err
}

func (e endless) Pause(ctx context.Context, _, _ string) (holt.Computer, error) {
	return e.Create(ctx, holt.ComputerSpec{}, "")
}

// endlessRuns are runs whose computer never wakes.
type endlessRuns struct {
	nouns.Runs
	asked chan<- struct{}
}

func (e endlessRuns) Start(ctx context.Context, _ string, _ holt.RunSpec, _ string) (holt.Run, error) {
	e.asked <- struct{}{}
	<-ctx.Done()
	return holt.Run{}, ctx.Err()
}

// TestInterrupted: Ctrl-C ends a call that waits, the daemon hears of it, and
// the exit status is what a shell expects.
func TestInterrupted(t *testing.T) {
	asked := make(chan struct{}, 10)
	nouns := servertest.New(t).Nouns()
	nouns.Computers, nouns.Runs = endless{nouns.Computers, asked}, endlessRuns{nouns.Runs, asked}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	for _, c := range []struct {
		args   string
		signal syscall.Signal
		status int
		goesOn string
	}{
		{"computer create --name curie", syscall.SIGINT, 130, ""},
		{"computer create --name curie", syscall.SIGTERM, 143, ""},
		{"computer run curie true", syscall.SIGINT, 130, ""},
		{"computer fork curie", syscall.SIGINT, 130, "the daemon completes it; see the result with: holt computer list"},
		{"computer pause curie", syscall.SIGINT, 130, "the daemon completes it; see the result with: holt computer list"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{"holt"}, strings.Fields(c.args)...) // see TestMain
		cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the status says it
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%s, %v: status %d, want %d: %s", c.args, c.signal, got, c.status, out.String())
		}
		if says := out.String(); !strings.Contains(says, c.goesOn) || c.goesOn == "" && strings.Contains(says, "the daemon completes it") {
			t.Errorf("%s says %s", c.args, says)
		}
	}
}

// slowRuns are runs whose computer takes a while to wake.
type slowRuns struct {
	nouns.Runs
	asked chan<- struct{}
	up    <-chan struct{}
}

func (s slowRuns) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	s.asked <- struct{}{}
	<-s.up
	return s.Runs.Start(context.WithoutCancel(ctx), computer, spec, key)
}

// TestInterruptedStart: Ctrl-C before a command has begun reaches it, since it begins all the same; the second one leaves it, and says so.
func TestInterruptedStart(t *testing.T) {
	asked, up := make(chan struct{}, 1), make(chan struct{})
	nouns := servertest.New(t).Nouns()
	nouns.Runs = slowRuns{nouns.Runs, asked, up}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	for _, signals := range []int{1, 2} {
		cmd := exec.Command(os.Args[0])
		cmd.Args = []string{"holt", "computer", "run", "curie", "sleep 600"} // see TestMain
		cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-asked
		for range signals {
			_ = cmd.Process.Signal(syscall.SIGINT)
			time.Sleep(200 * time.Millisecond)
		}
		if signals == 1 {
			up <- struct{}{}
		}
		_ = cmd.Wait() // the status says it
		if got := cmd.ProcessState.ExitCode(); got != 130 || strings.Contains(out.String(), "it may be running") != (signals == 2) {
			t.Errorf("%d signals: status %d: %s", signals, got, out.String())
		}
		if signals == 2 {
			up <- struct{}{}
		}
	}
	all, err := nouns.Runs.List(t.Context(), "curie", "", 10)
	for end := time.Now().Add(time.Minute); err == nil && len(all) < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		all, err = nouns.Runs.List(t.Context(), "curie", "", 10)
	}
	if err != nil || len(all) != 2 || all[0].State != holt.RunRunning || all[1].Signal != "SIGINT" {
		t.Errorf("%+v %v", all, err)
	}
}
