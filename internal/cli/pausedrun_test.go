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

// asleep is a computer that its budget has paused.
type asleep struct{ nouns.Computers }

func (a asleep) Get(context.Context, string) (holt.Computer, error) {
	return holt.Computer{Name: "curie", State: holt.ComputerPaused, PausedBy: "budget"}, nil
}

// asleepRuns are its: one, which says nothing until it is let go.
type asleepRuns struct {
	nouns.Runs
	free chan struct{}
	run  holt.Run
}

func (a asleepRuns) Get(context.Context, holt.RunID) (holt.Run, error) { return a.run, nil }

func (a asleepRuns) Follow(ctx context.Context, _ holt.RunID, _ int64, emit func(holt.RunEvent) error) error {
	select {
	case <-a.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	end := a.run
	end.State = holt.RunExited
	return emit(holt.RunEvent{Kind: holt.RunExit, Run: &end})
}

// TestFollowOfPaused: whoever follows a run in a computer that is paused is told that, and what goes on with it.
func TestFollowOfPaused(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	free, id := make(chan struct{}), holt.NewRunID()
	nouns.Computers = asleep{nouns.Computers}
	nouns.Runs = asleepRuns{nouns.Runs, free, holt.Run{ID: id, ComputerID: holt.NewComputerID(), State: holt.RunRunning}}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{"holt", "run", "follow", string(id)} // see TestMain
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said)
	for _, want := range []string{
		"holt: curie is paused, by budget; run " + string(id) + " continues when the computer is resumed",
		"hint: holt computer resume curie",
	} {
		if line, _ := lines.ReadString('\n'); strings.TrimSpace(line) != want {
			t.Errorf("said %q, want %q", line, want)
		}
	}
	close(free)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
