package cli_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/cli"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestInterruptedJobs: Ctrl-C cancels the jobs that this program has begun, of which nothing is
// left; a batch whose program was killed finds its jobs again.
func TestInterruptedJobs(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	dir := t.TempDir()
	batch := filepath.Join(dir, "b.jsonl")
	if err := os.WriteFile(batch, []byte(`{"id":"one","command":"while ! test -e /tmp/go; do sleep 0.02; done; echo 1 > out/n"}`+"\n"+
		`{"id":"two","command":"while ! test -e /tmp/go; do sleep 0.02; done; echo 2 > out/n"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{"holt", "job", "run"}, args...) // see TestMain
		cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	states := func() (list []holt.JobState) {
		jobs, err := nouns.Jobs.List(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			if list = append(list, j.State); j.State == holt.JobRunning && j.RunID == "" {
				list[len(list)-1] = "being made"
			}
		}
		return list
	}
	until := func(n int, is holt.JobState) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			count := 0
			for _, s := range states() {
				if s == is {
					count++
				}
			}
			if count == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not %d %s: %v", n, is, states())
			}
		}
	}
	for i, args := range [][]string{{"sleep 600"}, {"--batch", batch}} {
		cmd, out := start(args...)
		until(i+1, holt.JobRunning)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the status says it
		if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%q: status %d: %s", args, got, out.String())
		}
		if want := []string{"is cancelled", "0 of 2 jobs have ended, the others were cancelled"}[i]; !strings.Contains(out.String(), want) {
			t.Errorf("%q says %s, want %q", args, out.String(), want)
		}
		until(1+2*i, holt.JobCancelled)
	}
	cmd, _ := start("--batch", batch, "--resume")
	until(2, holt.JobRunning)
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	jobs, err := nouns.Jobs.List(t.Context(), "", 10)
	for _, j := range jobs {
		if err == nil && j.State == holt.JobRunning {
			_, err = nouns.Files.Write(t.Context(), string(j.ComputerID), "/tmp/go", holt.WriteSpec{}, strings.NewReader(""))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	until(2, holt.JobDone)
	cmd, out := start("--batch", batch, "--resume")
	if err := cmd.Wait(); err != nil || len(states()) != 5 {
		t.Errorf("%v, %v: %s", err, states(), out.String())
	}
	if got, err := os.ReadFile(filepath.Join(dir, "b.out", "two", "n")); err != nil || string(got) != "2\n" {
		t.Errorf("%q %v", got, err)
	}
	if all, err := nouns.Computers.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("left: %+v %v", all, err)
	}
}

// leaving is the jobs of a daemon whose caller leaves while it makes one.
type leaving struct {
	nouns.Jobs
	caller context.CancelFunc
}

func (l leaving) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	j, err := l.Jobs.Create(ctx, spec, key)
	l.caller()
	return j, err
}

// TestInterruptedCreateOfJob: Ctrl-C cancels also a job that was being made, of which this program does not know yet.
func TestInterruptedCreateOfJob(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	ctx, cancel := context.WithCancel(t.Context())
	nouns.Jobs = leaving{nouns.Jobs, cancel}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	t.Setenv(holt.EnvSocket, d.Socket)
	var out bytes.Buffer
	cli.Main(ctx, []string{"job", "run", "sleep 600"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, local())
	if all, err := nouns.Jobs.List(t.Context(), "", 10); err != nil || len(all) != 1 || !all[0].State.Ended() && !strings.Contains(out.String(), "is cancelled") {
		t.Errorf("%+v %v: %s", all, err, out.String())
	}
}

// answerless is the jobs of a daemon whose caller does not live to hear which job it has made.
type answerless struct {
	nouns.Jobs
	made chan struct{}
}

func (a answerless) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	j, err := a.Jobs.Create(ctx, spec, key)
	select {
	case a.made <- struct{}{}:
		<-ctx.Done()
	default: // that was the first
	}
	return j, err
}

// crowded refuses the first jobs.
type crowded struct {
	nouns.Jobs
	left *atomic.Int32
}

func (c crowded) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	if c.left.Add(-1) >= 0 {
		return holt.Job{}, holt.Errorf(holt.TooMany, "10000 jobs have not ended")
	}
	return c.Jobs.Create(ctx, spec, key)
}

// TestBatchWaits: a batch whose tenant has as many jobs as it may says so once, and goes on when some have ended.
func TestBatchWaits(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	left := new(atomic.Int32)
	left.Store(2)
	nouns.Jobs = crowded{nouns.Jobs, left}
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	dir := t.TempDir()
	file := filepath.Join(dir, "b.jsonl")
	if err := os.WriteFile(file, []byte(`{"id":"one","command":"true"}`+"\n"+`{"id":"two","command":"true"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Args, cmd.Env = []string{"holt", "job", "run", "--batch", file, "--parallel", "1"}, append(os.Environ(), "HOLT_SOCKET="+d.Socket) // see TestMain
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "the batch waits: 10000 jobs") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestBatchKilledInCreate: a batch whose program was killed between the making of a job and its answer finds that job, with
// inputs and without, and runs no line twice.
func TestBatchKilledInCreate(t *testing.T) {
	for _, in := range []bool{false, true} {
		nouns := servertest.New(t).Nouns()
		made := make(chan struct{})
		nouns.Jobs = answerless{nouns.Jobs, made}
		d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
		dir := t.TempDir()
		batch := filepath.Join(dir, "b.jsonl")
		args := []string{"holt", "job", "run", "--batch", batch, "--resume"}
		if in {
			args = append(args, "--in", t.TempDir())
		}
		if err := os.WriteFile(batch, []byte(`{"id":"one","command":"echo 1 > out/n"}`), 0o644); err != nil {
			t.Fatal(err)
		}
		start := func() (*exec.Cmd, *bytes.Buffer) {
			cmd := exec.Command(os.Args[0])
			cmd.Args, cmd.Env = args, append(os.Environ(), "HOLT_SOCKET="+d.Socket) // see TestMain
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return cmd, &out
		}
		cmd, out := start()
		select {
		case <-made:
		case <-time.After(time.Minute):
			t.Fatal("it makes no job: ", out.String())
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		cmd, out = start()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out.String())
		}
		jobs, err := nouns.Jobs.List(t.Context(), "", 10)
		if err != nil || len(jobs) != 1 || jobs[0].State != holt.JobDone {
			t.Errorf("inputs %v: %d jobs: %+v, %v; %s", in, len(jobs), jobs, err, out.String())
		}
		if got, err := os.ReadFile(filepath.Join(dir, "b.out", "one", "n")); err != nil || string(got) != "1\n" {
			t.Errorf("%q %v", got, err)
		}
	}
}
