package job

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Computers is the part of [computer.Store] that jobs need.
type Computers interface {
	// CheckFor returns the spec with its defaults, or an error if this host can never create such a computer.
	CheckFor(ctx context.Context, spec holt.ComputerSpec) (holt.ComputerSpec, error)
	// CreateFor creates and starts a computer for a job. If it fails nothing of the computer is left.
	CreateFor(ctx context.Context, job holt.JobID, spec holt.ComputerSpec) (holt.Computer, error)
	// OfJob returns the computers that were created for a job.
	OfJob(ctx context.Context, job holt.JobID) ([]holt.Computer, error)
	Resume(ctx context.Context, ref, key string) (holt.Computer, error)
	// Delete removes a computer, but not its workspace.
	Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error)
	// Room returns TooMany if the host has no memory for another job. begun are the jobs that have begun, with their memory, MiB.
	Room(ctx context.Context, memoryMB int, begun map[holt.JobID]int) error
	// Draining reports that no computer can be started, since the daemon is about to end.
	Draining() bool
}

// Runs starts and follows commands in computers.
type Runs interface {
	Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error)
	Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error
}

// Workspaces holds the files of jobs.
type Workspaces interface {
	// Find returns the id of a workspace.
	Find(ctx context.Context, ref string) (holt.WorkspaceID, error)
	// Make creates an empty workspace or, with from, a fork of that: of its present, or of the checkpoint at.
	// It is no error if the workspace exists.
	Make(ctx context.Context, id holt.WorkspaceID, name string, from holt.WorkspaceID, at string) error
	// Mkdir makes a directory and its parents. It is no error if it exists.
	Mkdir(ctx context.Context, id holt.WorkspaceID, path string) error
	// Flush has the computer of the workspace write back its cached changes.
	Flush(ctx context.Context, id holt.WorkspaceID) error
	// Measure returns the number and size of the files of a directory, or NotFound.
	Measure(ctx context.Context, id holt.WorkspaceID, path string) (holt.Usage, error)
	// FilesIn returns the paths of the regular files below a directory, as seen from there. TooMany: it has more than most entries.
	FilesIn(ctx context.Context, id holt.WorkspaceID, dir string, most int) ([]holt.OSString, error)
	Import(ctx context.Context, id holt.WorkspaceID, in io.Reader) (holt.TransferReport, error)
	Export(ctx context.Context, id holt.WorkspaceID, path string, out io.Writer) error
	// Remove deletes a workspace. It is no error if it does not exist.
	Remove(ctx context.Context, id holt.WorkspaceID) error
}

// Config is the configuration of a [Store]. All fields without a default must be set.
type Config struct {
	DB         *db.DB // with [Schema], [TenantSchema], [CountSchema] and [BegunSchema]
	Keys       *idempotency.Keys
	Dir        string // has the ends of outputs of jobs
	Computers  Computers
	Runs       Runs
	Workspaces Workspaces
	Artifacts  Artifacts
	Most       int                      // jobs at once; 0: 64
	Log        *slog.Logger             // nil: slog.Default
	Fail       func(point string) error // tests: called at each step; an error fails the step
}

const (
	mostAtOnce   = 64
	mostAttempts = 3
	pollEvery    = 2 * time.Second // between tries to start jobs
	tidyEvery    = time.Minute     // between calls of tidy
)

// Store is the set of jobs of one daemon.
type Store struct {
	cfg    Config
	log    *slog.Logger
	table  table
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // has an element when a job may be able to begin

	mu     sync.Mutex
	active map[holt.JobID]*worker
	// following counts the callers of Follow.
	following map[holt.JobID]int
	until     time.Time           // no job begins before this time
	lacking   string              // why; visible to every tenant
	limited   map[string]*limited // by tenant
	changed   chan struct{}       // closed and replaced when a job changes
}

// Open continues the jobs of the control database.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Most == 0 {
		cfg.Most = mostAtOnce
	}
	s := &Store{cfg: cfg, log: cfg.Log, table: table{cfg.DB}, wake: make(chan struct{}, 1), active: map[holt.JobID]*worker{}, following: map[holt.JobID]int{}, limited: map[string]*limited{}, changed: make(chan struct{})}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, hosterror.Full(err)
	}
	if err := s.tidyFiles(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(s.dispatch)
	s.wg.Go(s.keepTidy)
	return s, nil
}

// Close leaves all jobs to the next daemon, and waits for the workers.
func (s *Store) Close() {
	s.mu.Lock()
	s.cancel() // no worker begins after this
	s.mu.Unlock()
	s.wg.Wait()
}

// Create queues a job and returns. The job does not depend on its caller.
//
// Errors: InvalidArgument, NotFound (inputs, workspace, or the computer of SecretsOf), Unsupported
// (a network policy on an engine without networks), TooMany (the tenant has 10,000 open jobs), OutOfSpace.
func (s *Store) Create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	spec, err := s.check(ctx, spec)
	if err != nil {
		return holt.Job{}, err
	}
	if spec.Workspace != "" {
		ref, _ := holt.CutCheckpoint(spec.Workspace)
		if _, err := s.cfg.Workspaces.Find(ctx, ref); err != nil {
			return holt.Job{}, err
		}
	}
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Job]{
		Key: key, Method: "job.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Job, error) {
			r := record{Job: holt.Job{ID: holt.NewJobID(), Spec: spec, State: holt.JobQueued, CreatedAt: time.Now().UTC(), Tenant: holt.TenantOf(ctx)}, run: spec.Run, workspace: holt.NewWorkspaceID()}
			r.Spec.Run = spec.Run.OnRecord()
			err := s.table.insert(ctx, r, claim)
			s.wakeDispatch()
			return r.Job, err
		},
		Again: func(ctx context.Context, ref string) (holt.Job, error) { return s.Get(ctx, holt.JobID(ref)) },
	})
}

// check returns the spec with its defaults, or an error if such a job can never run.
func (s *Store) check(ctx context.Context, spec holt.JobSpec) (holt.JobSpec, error) {
	of, err := s.cfg.Computers.CheckFor(ctx, computerOf(spec))
	if err != nil {
		return spec, err
	}
	spec.Template, spec.CPUs, spec.MemoryMB, spec.DiskSizeMB = of.Template, of.CPUs, of.MemoryMB, of.DiskSizeMB
	if spec.Inputs != "" && spec.Workspace != "" {
		return spec, holt.Errorf(holt.InvalidArgument, "a job has inputs or a workspace to start from, not both")
	}
	if spec.Run.Stdin {
		return spec, holt.Errorf(holt.InvalidArgument, "a job has no standard input").WithHint("send the input as a file in the job's inputs")
	}
	if spec.Run.TimeoutMS == 0 {
		spec.Run.TimeoutMS = holt.JobTimeout.Milliseconds()
	}
	if err := computer.CheckRun(spec.Run); err != nil {
		return spec, err
	}
	if _, err = outputsIn(spec.Collect); err != nil {
		return spec, err
	}
	return spec, s.checkPublish(ctx, spec.Publish)
}

// computerOf returns the spec of a job's computer.
func computerOf(spec holt.JobSpec) holt.ComputerSpec {
	return holt.ComputerSpec{Template: spec.Template, Engine: spec.Engine, CPUs: spec.CPUs, MemoryMB: spec.MemoryMB, DiskSizeMB: spec.DiskSizeMB, Network: spec.Network, SecretsOf: spec.SecretsOf}
}

// home is the mount point of the workspace in a computer.
const home = "/home/agent"

// outputsIn returns the path in the workspace of the directory that a job collects.
func outputsIn(collect holt.OSString) (string, error) {
	dir := string(collect)
	if dir == "" {
		dir = holt.JobOut
	}
	if !path.IsAbs(dir) {
		dir = path.Join(home, dir)
	}
	dir = path.Clean(dir)
	in, ok := strings.CutPrefix(dir, home)
	if !ok || in != "" && in[0] != '/' || len(dir) >= 4096 || strings.ContainsRune(dir, 0) {
		return "", holt.Errorf(holt.InvalidArgument, "%.80q is not in the job's workspace", collect).WithHint("give a directory below %s, such as out", home)
	}
	return "/" + strings.TrimPrefix(in, "/"), nil
}

func (s *Store) Get(ctx context.Context, id holt.JobID) (holt.Job, error) {
	r, err := s.table.get(ctx, id)
	return r.Job, err
}

// List returns up to limit jobs, the newest first, starting after the job
// with the given id; "": at the newest.
func (s *Store) List(ctx context.Context, after holt.JobID, limit int) ([]holt.Job, error) {
	all, err := s.table.page(ctx, after, limit)
	list := make([]holt.Job, 0, len(all))
	for _, r := range all {
		list = append(list, r.Job)
	}
	return list, err
}

// Cancel ends a job and discards its outputs. It does not change a job that has ended.
func (s *Store) Cancel(ctx context.Context, id holt.JobID, _ string) (holt.Job, error) {
	r, err := s.table.get(ctx, id)
	if err != nil || r.State.Ended() {
		return r.Job, err
	}
	if err := s.table.mark(ctx, id, "cancelled"); err != nil {
		return r.Job, err
	}
	s.stop(r)
	return s.wait(ctx, id)
}

// Delete cancels a job that has not ended and removes it with its outputs.
func (s *Store) Delete(ctx context.Context, id holt.JobID, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "job.delete", Request: id, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			return none, s.remove(ctx, id)
		},
	})
	return err
}

func (s *Store) remove(ctx context.Context, id holt.JobID) error {
	if _, err := s.Cancel(ctx, id, ""); err != nil {
		return err
	}
	if err := s.table.mark(ctx, id, "deleted"); err != nil {
		return err
	}
	r, err := s.table.list(ctx, `WHERE id = ?`, id)
	if err != nil || len(r) == 0 {
		return err
	}
	return s.forget(context.WithoutCancel(ctx), r[0])
}

// Outputs writes the outputs of a job that has ended, as a parcel.
//
// Errors: NotFound, Conflict (the job has not ended, or its outputs are no longer kept).
func (s *Store) Outputs(ctx context.Context, id holt.JobID, out io.Writer) error {
	r, err := s.table.get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case !r.State.Ended():
		return holt.Errorf(holt.Conflict, "the job %s has not ended", id).WithHint("holt job follow %s waits for its end", id)
	case r.Outputs == nil || !r.Outputs.Kept:
		return holt.Errorf(holt.Conflict, "the job %s has no outputs", id).WithHint("outputs are kept for %s unless released earlier", holt.ShortDuration(holt.JobKept))
	}
	dir, err := outputsIn(r.Spec.Collect)
	if err != nil {
		return err
	}
	return s.cfg.Workspaces.Export(ctx, r.workspace, dir, out)
}

// Release removes the outputs of a job that has ended.
func (s *Store) Release(ctx context.Context, id holt.JobID, _ string) (holt.Job, error) {
	r, err := s.table.get(ctx, id)
	if err != nil || r.workspace == "" {
		return r.Job, err
	}
	if !r.State.Ended() {
		return r.Job, holt.Errorf(holt.Conflict, "the job %s has not ended", id).WithHint("holt job cancel %s ends it", id)
	}
	err = s.release(context.WithoutCancel(ctx), &r)
	return r.Job, err
}

// release removes the workspace of a job that has ended.
func (s *Store) release(ctx context.Context, r *record) error {
	if r.workspace == "" {
		return nil
	}
	if err := s.cfg.Workspaces.Remove(ctx, r.workspace); err != nil {
		return err
	}
	r.workspace = ""
	if r.Outputs != nil {
		r.Outputs.Kept = false
	}
	return s.table.save(ctx, *r)
}

// forget removes a job that has ended, its row last.
func (s *Store) forget(ctx context.Context, r record) error {
	if err := s.release(ctx, &r); err != nil {
		return err
	}
	if err := os.Remove(s.file(r.ID)); err != nil && !os.IsNotExist(err) {
		return hosterror.Full(err)
	}
	return s.table.erase(ctx, r.ID)
}

// file is the path of the end of a job's output.
func (s *Store) file(id holt.JobID) string { return filepath.Join(s.cfg.Dir, string(id)) }

// wait waits until a job has ended.
func (s *Store) wait(ctx context.Context, id holt.JobID) (holt.Job, error) {
	for {
		changed := s.change()
		r, err := s.table.get(ctx, id)
		if err != nil || r.State.Ended() {
			return r.Job, err
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return r.Job, ending()
		case <-ctx.Done():
			return r.Job, context.Cause(ctx)
		}
	}
}

func ending() error {
	return holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("the job continues when it is back")
}

// change returns a channel that is closed when any job changes after this call.
func (s *Store) change() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// notify wakes the callers that wait for a change.
func (s *Store) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// wakeDispatch makes dispatch try to start queued jobs.
func (s *Store) wakeDispatch() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// point is a place where a test can inject a failure or kill the process.
func (s *Store) point(name string) error {
	if s.cfg.Fail == nil {
		return nil
	}
	return s.cfg.Fail("job/" + name)
}
