package job

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// world fakes computers, runs and workspaces. A test ends the runs.
type world struct {
	mu         sync.Mutex
	computers  map[holt.ComputerID]holt.Computer
	workspaces map[holt.WorkspaceID]bool
	ends       map[holt.RunID]chan int // exit status
	told       map[holt.RunID]bool
	begun      int
	refuse     error  // a create
	tenant     string // of the last create
	refuseOf   string // tenant whose creates are refused; "": every
	made       int    // workspaces, in all
	created    int    // computers, in all
	draining   bool
	looks      int     // at the computers of a job
	followed   int     // times, runs
	resumes    []error // errors of the next resumes; none: they succeed
	mute       []error // errors of the next calls of Follow
	hurried    bool    // a run was followed for less than an hour at most
}

func (w *world) CheckFor(_ context.Context, spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	return computer.CheckComputer(spec)
}

func (w *world) CreateFor(ctx context.Context, id holt.JobID, spec holt.ComputerSpec) (holt.Computer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenant = holt.TenantOf(ctx)
	if w.refuse != nil && (w.refuseOf == "" || w.refuseOf == w.tenant) {
		return holt.Computer{}, w.refuse
	}
	now := time.Now()
	c := holt.Computer{ID: holt.NewComputerID(), Name: spec.Name, State: holt.ComputerRunning, Job: id, StartedAt: &now}
	w.computers[c.ID] = c
	w.created++
	return c, nil
}

func (w *world) OfJob(_ context.Context, id holt.JobID) (list []holt.Computer, _ error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	for _, c := range w.computers {
		if c.Job == id {
			list = append(list, c)
		}
	}
	return list, nil
}

func (w *world) Resume(_ context.Context, ref, _ string) (holt.Computer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.resumes) > 0 {
		err := w.resumes[0]
		w.resumes = w.resumes[1:]
		return holt.Computer{}, err
	}
	now := time.Now()
	c := w.computers[holt.ComputerID(ref)]
	c.State, c.PausedBy, c.StartedAt = holt.ComputerRunning, "", &now
	w.computers[c.ID] = c
	return c, nil
}

// pause pauses all computers at once.
func (w *world) pause(by string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, c := range w.computers {
		c.State, c.PausedBy = holt.ComputerPaused, by
		w.computers[id] = c
	}
}

// pausing starts to pause all computers.
func (w *world) pausing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, c := range w.computers {
		c.State = holt.ComputerPausing
		w.computers[id] = c
	}
}

func (w *world) Delete(_ context.Context, ref, _ string) (out holt.DeletedComputer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.computers, holt.ComputerID(ref))
	return out, nil
}

func (w *world) Draining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

// Room has room for three computers of the default shape.
func (w *world) Room(_ context.Context, memoryMB int, begun map[holt.JobID]int) error {
	for _, mb := range begun {
		memoryMB += mb
	}
	if memoryMB > 3072 {
		return holt.Errorf(holt.TooMany, "the host has no memory for another job")
	}
	return nil
}

func (w *world) Start(context.Context, string, holt.RunSpec, string) (holt.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := holt.NewRunID()
	w.ends[id] = make(chan int, 1)
	w.begun++
	return holt.Run{ID: id}, nil
}

func (w *world) Follow(ctx context.Context, id holt.RunID, _ int64, emit func(holt.RunEvent) error) error {
	w.mu.Lock()
	end := w.ends[id]
	if until, ok := ctx.Deadline(); ok && time.Until(until) < time.Hour {
		w.hurried = true
	}
	w.followed++
	var err error
	if len(w.mute) > 0 {
		err, w.mute = w.mute[0], w.mute[1:]
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case status := <-end:
		return emit(holt.RunEvent{Kind: holt.RunExit, Run: &holt.Run{State: holt.RunExited, ExitCode: status}})
	}
}

func (w *world) Find(_ context.Context, ref string) (holt.WorkspaceID, error) {
	return "", holt.Errorf(holt.NotFound, "there is no workspace %s", ref)
}

func (w *world) Make(_ context.Context, id holt.WorkspaceID, _ string, from holt.WorkspaceID, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from != "" && !w.workspaces[from] {
		return holt.Errorf(holt.NotFound, "no %s", from)
	}
	w.workspaces[id] = true
	w.made++
	return nil
}

func (w *world) Mkdir(context.Context, holt.WorkspaceID, string) error { return nil }
func (w *world) Flush(context.Context, holt.WorkspaceID) error         { return nil }
func (w *world) Measure(context.Context, holt.WorkspaceID, string) (holt.Usage, error) {
	return holt.Usage{Dirs: 1, Files: 1, Bytes: 7}, nil
}

func (w *world) FilesIn(context.Context, holt.WorkspaceID, string, int) ([]holt.OSString, error) {
	return nil, nil
}

func (w *world) Import(context.Context, holt.WorkspaceID, io.Reader) (r holt.TransferReport, err error) {
	return r, nil
}

func (w *world) Export(_ context.Context, id holt.WorkspaceID, _ string, out io.Writer) error {
	_, err := io.WriteString(out, string(id))
	return err
}

func (w *world) Remove(_ context.Context, id holt.WorkspaceID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.workspaces, id)
	return nil
}

// end ends all commands that run.
func (w *world) end(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, end := range w.ends {
		if !w.told[id] {
			end <- status
		}
		w.told[id] = true
	}
}

func (w *world) count() (computers, workspaces, begun int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.computers), len(w.workspaces), w.begun
}

// open opens a store with an empty world on a host with 4 GiB.
func open(t *testing.T) (*Store, *world) {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(filepath.Join(dir, "holt.db"), computer.Schema+Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{computers: map[holt.ComputerID]holt.Computer{}, workspaces: map[holt.WorkspaceID]bool{}, ends: map[holt.RunID]chan int{}, told: map[holt.RunID]bool{}}
	s, err := Open(t.Context(), Config{DB: d, Keys: idempotency.New(d), Dir: filepath.Join(dir, "jobs"), Computers: w, Runs: w, Workspaces: w,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); d.Close() })
	return s, w
}

func create(t *testing.T, s *Store, spec holt.JobSpec) holt.Job {
	t.Helper()
	spec.Run.Command = "true"
	j, err := s.Create(t.Context(), spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timeout waiting for: ", what)
		}
	}
}

func ended(t *testing.T, s *Store, id holt.JobID) holt.Job {
	t.Helper()
	j, err := s.wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestRoom: jobs begin in order while there is memory, and the reason of the next says why it waits.
func TestRoom(t *testing.T) {
	s, w := open(t)
	var jobs []holt.Job
	for range 4 {
		jobs = append(jobs, create(t, s, holt.JobSpec{MemoryMB: 1024}))
	}
	eventually(t, "three run", func() bool { _, _, begun := w.count(); return begun == 3 })
	eventually(t, "the fourth waits", func() bool {
		j, err := s.Get(t.Context(), jobs[3].ID)
		return err == nil && j.State == holt.JobQueued && strings.Contains(j.Reason, "no memory for another job")
	})
	w.end(0)
	for _, j := range jobs[:3] {
		if j = ended(t, s, j.ID); j.State != holt.JobDone || j.Reason != "" {
			t.Errorf("%+v", j)
		}
	}
	eventually(t, "the fourth runs", func() bool { _, _, begun := w.count(); return begun == 4 })
	w.end(1)
	if j := ended(t, s, jobs[3].ID); j.State != holt.JobFailed || j.ExitCode != 1 || j.Reason != "" {
		t.Errorf("%+v", j)
	}
}

// TestCancelQueued: a job that waits behind many others is cancelled or deleted at once.
func TestCancelQueued(t *testing.T) {
	s, w := open(t)
	create(t, s, holt.JobSpec{MemoryMB: 3072})
	eventually(t, "it runs", func() bool { _, _, begun := w.count(); return begun == 1 })
	var last [2]holt.Job
	for range 3 * mostAtOnce {
		last[0], last[1] = last[1], create(t, s, holt.JobSpec{MemoryMB: 1024})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if j, err := s.Cancel(ctx, last[0].ID, ""); err != nil || j.State != holt.JobCancelled {
		t.Errorf("%+v %v", j, err)
	}
	if err := s.Delete(ctx, last[1].ID, ""); err != nil {
		t.Error(err)
	}
	if _, _, begun := w.count(); begun != 1 {
		t.Errorf("%d were begun", begun)
	}
}

// TestRefused: a job that runs alone and whose computer never gets room fails after three attempts; a job whose computer
// can never be created fails at once. Both remove their computer and workspace.
func TestRefused(t *testing.T) {
	s, w := open(t)
	for _, c := range []struct {
		err      *holt.Error
		attempts int
	}{{holt.Errorf(holt.NotFound, "no such template"), 1}, {holt.Errorf(holt.OutOfSpace, "the disk is full"), mostAttempts}} {
		w.mu.Lock()
		w.refuse = c.err
		w.mu.Unlock()
		if j := ended(t, s, create(t, s, holt.JobSpec{}).ID); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != c.err.Code || j.Attempts != c.attempts {
			t.Errorf("%v: %+v", c.err, j)
		}
	}
	if computers, workspaces, _ := w.count(); computers+workspaces > 0 {
		t.Errorf("%d computers and %d workspaces are left", computers, workspaces)
	}
}

// TestKept: inputs, outputs and records are removed when they expire or are released.
func TestKept(t *testing.T) {
	s, w := open(t)
	ctx := t.Context()
	in, err := s.Send(ctx, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	j := create(t, s, holt.JobSpec{Inputs: in.ID})
	eventually(t, "it runs", func() bool { _, _, begun := w.count(); return begun == 1 })
	if err := s.tidy(ctx, time.Now().Add(48*time.Hour)); err != nil { // an open job needs them
		t.Fatal(err)
	}
	w.end(0)
	ended(t, s, j.ID)
	if _, n, _ := w.count(); n != 2 {
		t.Errorf("%d workspaces, want those of inputs and outputs", n)
	}
	if err := s.tidy(ctx, time.Now().Add(holt.JobInputsKept+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, n, _ := w.count(); n != 1 {
		t.Errorf("%d workspaces, want that of outputs only", n)
	}
	if err := s.tidy(ctx, time.Now().Add(holt.JobKept+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, j.ID); err != nil || got.Outputs.Kept {
		t.Errorf("%+v %v", got, err)
	}
	if _, n, _ := w.count(); n != 0 {
		t.Errorf("%d workspaces are left", n)
	}
	unfetched := create(t, s, holt.JobSpec{})
	eventually(t, "the next runs", func() bool { _, _, begun := w.count(); return begun == 2 })
	w.end(0)
	ended(t, s, unfetched.ID)
	err = s.cfg.DB.Write(ctx, func(tx *db.Tx) error {
		for i := range holt.JobsKept {
			id := fmt.Sprintf("job_%016d", i)
			if err := tx.Exec(`INSERT INTO job (id, record, ended, workspace, inputs) VALUES (?, ?, 1, '', '')`, id, `{"id":"`+id+`","state":"done"}`); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.tidy(ctx, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, j.ID); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the oldest of %d jobs is kept: %v", holt.JobsKept+1, err)
	}
	if got, err := s.Get(ctx, unfetched.ID); err != nil || !got.Outputs.Kept {
		t.Errorf("outputs are removed before they expire, after %d later jobs: %v", holt.JobsKept, err)
	}
	if err := s.tidy(ctx, time.Now().Add(holt.JobKept+time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, unfetched.ID); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("the job is kept without its outputs: %v", err)
	}
	if list, err := s.List(ctx, "", holt.MostPerPage); err != nil || len(list) != holt.JobsKept {
		t.Errorf("%d, %v", len(list), err)
	}
	if files, err := os.ReadDir(s.cfg.Dir); err != nil || len(files) != 0 {
		t.Errorf("output of removed jobs is left: %v %v", files, err)
	}
}

// TestEnvironment: a job's environment is stored until the job ends, and never shown.
func TestEnvironment(t *testing.T) {
	s, w := open(t)
	j := create(t, s, holt.JobSpec{Run: holt.RunSpec{Env: map[holt.OSString]holt.OSString{"A": "hidden-value"}, Secrets: holt.Secrets{"B": "hidden-too"}}})
	kept := func() (text string) {
		err := s.cfg.DB.Read(t.Context(), func(tx *db.Tx) error {
			return tx.Query(`SELECT record || secret FROM job WHERE id = ?`, []any{j.ID}, func(r *db.Row) error { text = r.Text(0); return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if !strings.Contains(kept(), "hidden-value") || j.Spec.Run.Env != nil || j.Spec.Run.Secrets != nil {
		t.Errorf("%+v, %s", j, kept())
	}
	eventually(t, "it runs", func() bool { _, _, begun := w.count(); return begun == 1 })
	w.end(0)
	ended(t, s, j.ID)
	if strings.Contains(kept(), "hidden") {
		t.Errorf("the environment is still stored: %s", kept())
	}
}

// TestTail: a tail is bounded in bytes and in events, and has offsets.
func TestTail(t *testing.T) {
	var out tail
	for i := range 3 * mostPieces {
		kind := holt.RunStdout
		if i%2 == 1 {
			kind = holt.RunStderr
		}
		out.add(holt.RunEvent{Kind: kind, Offset: int64(i), Data: []byte{byte(i)}})
	}
	if list := out.from(100); len(list) != mostPieces || list[0].Offset != 100+2*mostPieces || endOf(list[len(list)-1]) != 100+3*mostPieces {
		t.Errorf("%d pieces, from %d", len(list), list[0].Offset)
	}
	at := out.end
	for range 100 {
		out.add(holt.RunEvent{Kind: holt.RunStdout, Offset: at, Data: bytes.Repeat([]byte{1}, 5000)})
		at += 5000
	}
	out.add(holt.RunEvent{Kind: holt.RunGap, Offset: at, Dropped: 10})
	list, bytes := out.from(0), 0
	for _, e := range list {
		bytes += len(e.Data)
	}
	if last := list[len(list)-1]; bytes != holt.JobTail || last.Kind != holt.RunGap || endOf(last) != at+10 {
		t.Errorf("%d bytes, at last %v of %d", bytes, last.Kind, last.Dropped)
	}
	big := tail{}
	big.add(holt.RunEvent{Kind: holt.RunStdout, Data: make([]byte, 2*holt.JobTail)})
	if list := big.from(0); len(list) != 1 || len(list[0].Data) != holt.JobTail || list[0].Offset != holt.JobTail {
		t.Errorf("one large event: %d bytes at %d", len(list[0].Data), list[0].Offset)
	}
}

// TestAwaitIsBounded: a follower that does not read delays the end of a job for a bounded time.
func TestAwaitIsBounded(t *testing.T) {
	for detached, want := range map[bool]time.Duration{false: 10 * time.Minute, true: 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := &worker{s: &Store{changed: make(chan struct{})}, ctx: t.Context()}
			w.r.Spec.Run.Detached = detached
			w.followers.Store(1)
			began := time.Now()
			if w.awaitFollowers(); time.Since(began) != want {
				t.Errorf("detached %t: it waited for %s", detached, time.Since(began))
			}
		})
	}
}

// TestOutputsIn: outputs are collected only from directories of the workspace.
func TestOutputsIn(t *testing.T) {
	for collect, want := range map[holt.OSString]string{"": "/out", "a/b": "/a/b", "/home/agent/x": "/x", ".": "/", "a/../b": "/b",
		"..": "", "/etc": "", "/home/agentx": "", "/home/agent/../other": "", "a/../../b": "", "a\x00": ""} {
		if got, err := outputsIn(collect); got != want || (want == "") != (holt.CodeOf(err) == holt.InvalidArgument) {
			t.Errorf("%q: %q, %v", collect, got, err)
		}
	}
}
