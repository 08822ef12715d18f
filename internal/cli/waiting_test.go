package cli_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// held is a computer that a snapshot is at work on until it is let go: a pause waits for that.
type held struct {
	nouns.Computers
	free chan struct{}
}

func (h held) Pause(ctx context.Context, ref, _ string) (holt.Computer, error) {
	select {
	case <-h.free:
	case <-ctx.Done():
	}
	return holt.Computer{Name: ref, State: holt.ComputerPaused}, ctx.Err()
}

func (h held) Get(_ context.Context, ref string) (holt.Computer, error) {
	return holt.Computer{Name: ref, State: holt.ComputerRunning, AtWork: &holt.AtWork{Verb: "snapshot", ForMS: 90_000, Waiting: 1}}, nil
}

// TestWaitingFor: a command whose call waits for another's says for which.
func TestWaitingFor(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	free := make(chan struct{})
	nouns.Computers = held{nouns.Computers, free}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{"holt", "computer", "pause", "curie"} // see TestMain
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(said).ReadString('\n')
	if want := "holt: waiting for another call: snapshot of curie, in progress for 1 min"; strings.TrimSpace(line) != want {
		t.Errorf("said %q, want %q", line, want)
	}
	close(free)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
