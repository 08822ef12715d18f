package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"holt"
	"holt/server"
	"holt/server/servertest"
)

// endless are computers that are never ready.
type endless struct {
	server.Computers
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
	server.Runs
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
	nouns := memory(t).Nouns()
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
		{"computer fork curie", syscall.SIGINT, 130, "it goes on; holt computer list shows"},
		{"computer pause curie", syscall.SIGINT, 130, "it goes on; holt computer list shows"},
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
		if says := out.String(); !strings.Contains(says, c.goesOn) || c.goesOn == "" && strings.Contains(says, "goes on") {
			t.Errorf("%s says %s", c.args, says)
		}
	}
}
