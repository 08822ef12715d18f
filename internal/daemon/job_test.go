package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"holt"
	"holt/client"
	"holt/internal/store/parcel"
)

// yard is a daemon's jobs as a client of a data directory sees them, whichever daemon serves it.
type yard struct {
	*client.Client
	t      *testing.T
	dir    string
	inputs []holt.JobInputsID

	mu    sync.Mutex
	took  []time.Duration // from the call to the outputs
	steps []holt.JobSteps
	again int // attempts after the first
}

// packed is a stream of one file.
func packed(t testing.TB, name, content string) io.Reader {
	t.Helper()
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := parcel.NewWriter(&b, parcel.Totals{})
	if err == nil {
		_, err = parcel.Pack(t.Context(), from, w, parcel.Options{})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

// newYard sends k inputs, of which each holds its number.
func newYard(t *testing.T, dir string, k int) *yard {
	t.Helper()
	y := &yard{Client: connect(t, dir), t: t, dir: dir}
	t.Cleanup(y.Close)
	for i := range k {
		in, err := y.Jobs.Send(t.Context(), packed(t, "number", fmt.Sprintln(i)))
		if err != nil {
			t.Fatal(err)
		}
		y.inputs = append(y.inputs, in.ID)
	}
	return y
}

// one runs job n to its end and compares what it says and leaves.
func (y *yard) one(ctx context.Context, n int) error {
	began := time.Now()
	in := n % len(y.inputs)
	j, err := y.Jobs.Create(ctx, holt.JobSpec{Inputs: y.inputs[in], MemoryMB: 512, Run: holt.RunSpec{
		Command: "cat number; echo $((N * N)) > out/square; cat number >> out/square; exit $((N % 2))",
		Env:     map[holt.OSString]holt.OSString{"N": holt.OSString(fmt.Sprint(n))}, User: "root"}}, "")
	if err != nil {
		return err
	}
	var said strings.Builder
	if err := y.Jobs.Follow(ctx, j.ID, 0, func(e holt.RunEvent) error { said.Write(e.Data); return nil }); err != nil {
		return err
	}
	if j, err = y.Jobs.Get(ctx, j.ID); err != nil {
		return err
	}
	got, err := y.fetch(ctx, j.ID)
	if err != nil {
		return fmt.Errorf("%s: %w: %+v", j.ID, err, j)
	}
	if want := fmt.Sprintf("%d\n%d\n", n*n, in); got != want || !strings.HasSuffix(said.String(), fmt.Sprintf("%d\n", in)) || j.ExitCode != n%2 || j.Error != nil {
		return fmt.Errorf("job %d of input %d: said %q, left %q, %+v", n, in, said.String(), got, j)
	}
	took := time.Since(began)
	if _, err := y.Jobs.Release(ctx, j.ID, ""); err != nil {
		return err
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.took, y.steps, y.again = append(y.took, took), append(y.steps, j.Steps), y.again+j.Attempts-1
	return nil
}

// fetch returns what a job has left, as soon as a daemon answers.
func (y *yard) fetch(ctx context.Context, id holt.JobID) (string, error) {
	for {
		var b bytes.Buffer
		err := y.Jobs.Outputs(ctx, id, &b)
		if holt.CodeOf(err) == holt.Unavailable && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond) // between two daemons
			continue
		}
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp("", "holt-out")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		r, err := parcel.NewReader(&b)
		if err == nil {
			_, err = parcel.Unpack(ctx, r, dir, parcel.Options{})
		}
		if err != nil {
			return "", err
		}
		got, err := os.ReadFile(filepath.Join(dir, "square"))
		return string(got), err
	}
}

// run runs so many jobs, so many at a time.
func (y *yard) run(jobs, parallel int) error {
	work, ctx := errgroup.WithContext(y.t.Context())
	work.SetLimit(parallel)
	for n := range jobs {
		work.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return y.one(ctx, n)
		})
	}
	return work.Wait()
}

// counts logs how fast it was.
func (y *yard) counts(parallel int, all time.Duration, more string) {
	slices.Sort(y.took)
	var steps []string
	for _, s := range []struct {
		name string
		of   func(holt.JobSteps) int64
	}{{"create", func(s holt.JobSteps) int64 { return s.CreateMS }}, {"command", func(s holt.JobSteps) int64 { return s.RunMS }},
		{"collect", func(s holt.JobSteps) int64 { return s.CollectMS }}, {"delete", func(s holt.JobSteps) int64 { return s.DeleteMS }}} {
		var ms []int64
		for _, one := range y.steps {
			ms = append(ms, s.of(one))
		}
		slices.Sort(ms)
		steps = append(steps, fmt.Sprintf("%s %d", s.name, ms[len(ms)/2]))
	}
	y.t.Logf("counts: %d jobs over %d inputs at parallel %d: %.2f jobs/s, latency median %d ms, worst %d ms (medians: %s ms)%s", len(y.took), len(y.inputs), parallel,
		float64(len(y.took))/all.Seconds(), y.took[len(y.took)/2].Milliseconds(), y.took[len(y.took)-1].Milliseconds(), strings.Join(steps, ", "), more)
}

// nothing fails the test if anything is left of any job but its record.
func (y *yard) nothing() {
	y.t.Helper()
	ctx := y.t.Context()
	for _, in := range y.inputs {
		if err := y.Jobs.Drop(ctx, in, ""); err != nil {
			y.t.Error(err)
		}
	}
	for _, of := range y.left() {
		y.t.Error("left: ", of)
	}
	computers, err := y.Computers.List(ctx)
	if err != nil || len(computers) > 0 {
		y.t.Errorf("computers are left: %+v, %v", computers, err)
	}
	snapshots, err := y.Snapshots.List(ctx, "")
	if err != nil || len(snapshots) > 0 {
		y.t.Errorf("snapshots are left: %+v, %v", snapshots, err)
	}
	for {
		jobs, err := y.Jobs.List(ctx, "", holt.MostPerPage)
		if err != nil {
			y.t.Fatal(err)
		}
		for _, j := range jobs {
			if !j.State.Ended() {
				y.t.Errorf("goes on: %+v", j)
			}
			if err := y.Jobs.Delete(ctx, j.ID, ""); err != nil {
				y.t.Fatal(err)
			}
		}
		if len(jobs) == 0 {
			break
		}
	}
	if kept, err := os.ReadDir(filepath.Join(y.dir, "jobs")); err != nil || len(kept) > 0 {
		y.t.Errorf("of deleted jobs are left: %v, %v", kept, err)
	}
}

// left lists what the data directory holds of computers and workspaces.
func (y *yard) left() (list []string) {
	for _, of := range []string{"computers", "disks", "snapshots", "workspaces"} {
		entries, err := os.ReadDir(filepath.Join(y.dir, of))
		if err != nil && !os.IsNotExist(err) {
			y.t.Error(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				list = append(list, filepath.Join(of, e.Name()))
			}
		}
	}
	return list
}

// TestJobs: every job of many has its inputs, its outputs and its exit status, and nothing
// is left. HOLT_SOAK=1: 500 of them.
func TestJobs(t *testing.T) {
	jobs, parallel := 20, 4
	if os.Getenv("HOLT_SOAK") != "" {
		jobs = 500
	}
	dir := home(t)
	p := spawn(t, dir, "")
	y := newYard(t, dir, min(20, jobs/2))
	began := time.Now()
	if err := y.run(jobs, parallel); err != nil {
		t.Fatal(err)
	}
	y.counts(parallel, time.Since(began), "")
	y.nothing()
	endAll(t, p)
}

// jobPoints are all steps of a job at which a daemon can die.
var jobPoints = []string{"job/workspace", "job/create", "create/open", "create/settle", "job/start", "job/started", "job/exited", "job/collect", "job/delete", "delete/machine", "job/end"}

// TestJobsOfKilledDaemons: daemons are killed at each step of a job, and then at any time
// under many. All jobs come to their end, and nothing is left. HOLT_SOAK=1: 60 of them.
func TestJobsOfKilledDaemons(t *testing.T) {
	jobs, parallel, pause := 12, 4, 400*time.Millisecond
	if os.Getenv("HOLT_SOAK") != "" {
		jobs, pause = 60, 2*time.Second
	}
	dir := home(t)
	p := spawn(t, dir, "")
	y := newYard(t, dir, 3)
	for _, point := range jobPoints {
		p.kill()
		p = spawn(t, dir, point)
		ended := make(chan error, 1)
		go func() { ended <- y.one(t.Context(), 1) }()
		select {
		case err := <-p.done:
			p.done <- err
		case err := <-ended:
			t.Fatalf("the daemon did not come to %s: %v", point, err)
		}
		p = spawn(t, dir, "")
		if err := <-ended; err != nil {
			t.Fatalf("killed at %s: %v", point, err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	began, done, kills := time.Now(), make(chan error, 1), 0
	go func() { done <- y.run(jobs, parallel) }()
	for over := false; !over; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		case <-time.After(pause/2 + time.Duration(random.Int64N(int64(pause)))):
			p.kill()
			kills++
			p = spawn(t, dir, "")
		}
	}
	y.counts(parallel, time.Since(began), fmt.Sprintf("; under %d daemons that were killed, %d of them at a step; %d attempts were begun again; seed %d", kills+len(jobPoints), len(jobPoints), y.again, seed))
	y.nothing()
	endAll(t, p)
}

// TestJobsEnd: a job that is cancelled, whose time is over, whose machine dies under it, or
// that a daemon leaves when all ends is thrown away or begun again.
func TestJobsEnd(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	y := newYard(t, dir, 1)
	ctx := t.Context()
	begin := func(run holt.RunSpec) holt.Job {
		t.Helper()
		run.User = "root"
		j, err := y.Jobs.Create(ctx, holt.JobSpec{Inputs: y.inputs[0], Run: run}, "")
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	runs := func(id holt.JobID) holt.Job { // waits until its command does
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			j, err := y.Jobs.Get(ctx, id)
			if err != nil || j.State.Ended() || time.Now().After(end) {
				t.Fatalf("it does not run: %+v %v", j, err)
			}
			if j.RunID != "" {
				return j
			}
		}
	}
	ended := func(id holt.JobID) (j holt.Job, said string) {
		t.Helper()
		err := y.Jobs.Follow(ctx, id, 0, func(e holt.RunEvent) error { said += string(e.Data); return nil })
		if err == nil {
			j, err = y.Jobs.Get(ctx, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		return j, said
	}
	cancelled := begin(holt.RunSpec{Command: "sleep 600"})
	runs(cancelled.ID)
	if got, err := y.Jobs.Cancel(ctx, cancelled.ID, ""); err != nil || got.State != holt.JobCancelled {
		t.Errorf("cancelled: %+v %v", got, err)
	}
	late := begin(holt.RunSpec{Command: "echo begun; touch out/some; sleep 600", TimeoutMS: 2000})
	if j, said := ended(late.ID); j.State != holt.JobFailed || !j.TimedOut || j.Error != nil || said != "begun\n" || j.Outputs.Files != 1 {
		t.Errorf("late: %+v, %q", j, said)
	}
	if _, err := y.Jobs.Release(ctx, late.ID, ""); err != nil {
		t.Error(err)
	}
	// What a first attempt wrote and changed is not in the second: it begins with the inputs.
	const waits = "touch dirt; while test -e /proc/self && ! test -e go; do sleep 0.05; done"
	again := func(id holt.JobID) { // lets the second attempt end, once it is there
		t.Helper()
		within(t, "it to be begun again", func() bool {
			two, err := y.Jobs.Get(ctx, id)
			if err != nil || two.State.Ended() {
				t.Fatalf("not begun again: %+v %v", two, err)
			}
			if two.Attempts != 2 || two.RunID == "" {
				return false
			}
			_, err = y.Files.Stat(ctx, string(two.ComputerID), "/home/agent/dirt")
			if err == nil {
				_, err = y.Files.Write(ctx, string(two.ComputerID), "/home/agent/go", holt.WriteSpec{User: "root"}, strings.NewReader(""))
			}
			return err == nil
		})
	}
	lost := begin(holt.RunSpec{Command: "echo attempt; ls; " + waits})
	one := runs(lost.ID)
	if _, err := y.Computers.Stop(ctx, string(one.ComputerID), ""); err != nil {
		t.Fatal(err)
	}
	again(lost.ID)
	if j, said := ended(lost.ID); j.State != holt.JobDone || j.Attempts != 2 || !strings.HasSuffix(said, "attempt\nnumber\nout\n") {
		t.Errorf("begun again: %+v, %q", j, said)
	}
	down := begin(holt.RunSpec{Command: "cat number; " + waits})
	runs(down.ID)
	endAll(t, p)
	p = spawn(t, dir, "")
	again(down.ID)
	if j, said := ended(down.ID); j.State != holt.JobDone || j.Attempts != 2 || !strings.HasSuffix(said, "0\n") {
		t.Errorf("after the next daemon's start: %+v, %q", j, said)
	}
	y.nothing()
	endAll(t, p)
}

// TestJobsOnMachines: the same on real machines. HOLT_SOAK=1: 200 jobs over 20 inputs; HOLT_JOBS=N: so many.
func TestJobsOnMachines(t *testing.T) {
	jobs, inputs, parallel := 6, 3, 2
	if os.Getenv("HOLT_SOAK") != "" {
		jobs, inputs, parallel = 200, 20, 4
	}
	if n, _ := strconv.Atoi(os.Getenv("HOLT_JOBS")); n > 0 {
		jobs, inputs, parallel = n, min(20, n), 4
	}
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	y := newYard(t, v.dir, inputs)
	if err := y.one(t.Context(), 0); err != nil { // has the template booted
		t.Fatal(err)
	}
	y.took, y.steps = nil, nil
	began := time.Now()
	if err := y.run(jobs, parallel); err != nil {
		t.Fatal(err)
	}
	y.counts(parallel, time.Since(began), "")
	v.holdsUp(y)
	y.nothing()
	endAll(t, v.process)
}

// holdsUp: the command of a job goes on where it was, whoever pauses its machine: somebody, or who ends the daemon.
func (v *vm) holdsUp(y *yard) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	j, err := y.Jobs.Create(ctx, holt.JobSpec{Inputs: y.inputs[0], MemoryMB: 512, Run: holt.RunSpec{
		Command: "echo begun > out/square; until [ -e go ]; do sleep 0.1; done; echo ended >> out/square", User: "root"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	runs := func(what string) {
		t.Helper()
		within(t, what, func() bool {
			if j, err = y.Jobs.Get(ctx, j.ID); err != nil || j.State.Ended() || j.Attempts > 1 {
				t.Fatalf("waiting for %s: %+v, %v", what, j, err)
			}
			if j.RunID == "" {
				return false
			}
			c, err := y.Computers.Get(ctx, string(j.ComputerID))
			return err == nil && c.State == holt.ComputerRunning
		})
	}
	runs("its command")
	before := j.RunID
	if _, err := y.Computers.Pause(ctx, string(j.ComputerID), ""); err != nil {
		t.Fatal(err)
	}
	runs("its machine, which was paused")
	report, err := y.Daemon.Down(ctx, holt.DownSpec{Computers: holt.DownPause}, "")
	if err != nil || len(report.Paused) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := v.wait(); err != nil {
		t.Error("the daemon ended with", err)
	}
	v.again("")
	runs("its machine, with the next daemon")
	if _, err := y.Files.Write(ctx, string(j.ComputerID), "/home/agent/go", holt.WriteSpec{User: "root"}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if err := y.Jobs.Follow(ctx, j.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
		t.Fatal(err)
	}
	got, err := y.fetch(ctx, j.ID)
	if err != nil || got != "begun\nended\n" {
		t.Errorf("left %q, %v", got, err)
	}
	if j, err = y.Jobs.Get(ctx, j.ID); err != nil || j.State != holt.JobDone || j.Attempts != 1 || j.RunID != before {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := y.Jobs.Release(ctx, j.ID, ""); err != nil {
		t.Error(err)
	}
}
