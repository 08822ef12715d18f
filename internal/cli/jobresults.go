package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

// result is how a job of a batch ended: a line of results.jsonl.
type result struct {
	ID          string            `json:"id"`
	Hash        string            `json:"hash"` // of the line
	Job         holt.JobID        `json:"job,omitempty"`
	State       holt.JobState     `json:"state"`
	ExitCode    *int              `json:"exit_code"` // null: its command did not come to its end
	TimedOut    bool              `json:"timed_out,omitempty"`
	OutOfMemory *holt.OutOfMemory `json:"out_of_memory,omitempty"`
	DurationMS  int64             `json:"duration_ms"`
	OutputFiles int64             `json:"output_files"`
	OutputBytes int64             `json:"output_bytes"`
	Error       string            `json:"error,omitempty"`
	EndedAt     time.Time         `json:"ended_at"`
}

func resultOf(l *batchLine, j holt.Job) result {
	r := result{ID: l.ID, Hash: l.hash, Job: j.ID, State: j.State, TimedOut: j.TimedOut, OutOfMemory: j.OutOfMemory, DurationMS: jobMS(j), EndedAt: time.Now().UTC()}
	if j.State == holt.JobDone || j.ExitCode != 0 {
		r.ExitCode = &j.ExitCode
	}
	if j.EndedAt != nil {
		r.EndedAt = *j.EndedAt
	}
	if o := j.Outputs; o != nil {
		r.OutputFiles, r.OutputBytes = o.Files, o.Bytes
	}
	if j.Error != nil {
		r.Error = j.Error.Message
	}
	return r
}

// said is how it ended in a word or two.
func (r result) said() string {
	switch {
	case r.State != holt.JobFailed || r.Error != "":
		return string(r.State)
	case r.TimedOut:
		return "timed out"
	case r.ExitCode == nil:
		return string(r.State)
	case r.OutOfMemory != nil:
		return fmt.Sprintf("exit %d, out of memory", *r.ExitCode)
	}
	return fmt.Sprintf("exit %d", *r.ExitCode)
}

// The files of a batch in its directory, besides those of its jobs.
const (
	resultsName = "results.jsonl"
	begunName   = ".begun.jsonl" // which job a line has
)

// results are what a batch has in its directory. A line is there whole or, after a crash, in part, which
// counts as none. The lock guards what is below it.
type results struct {
	dir         string
	retry       bool
	ended, open *os.File

	mu   sync.Mutex
	of   map[string]result // by id
	jobs map[string]begun
}

// begun says which job a line has, or is to have.
type begun struct {
	ID     string           `json:"id"`
	Hash   string           `json:"hash"`
	Key    string           `json:"key"` // idempotency key of the call that makes the job
	Inputs holt.JobInputsID `json:"inputs,omitempty"`
	Job    holt.JobID       `json:"job,omitempty"` // "": it is being made
}

// openResults opens the directory of a batch, which one program at a time has.
func openResults(dir string, resume, retry bool) (*results, error) {
	if retry && !resume {
		return nil, holt.Errorf(holt.InvalidArgument, "--retry-failed needs --resume").WithHint("add --resume")
	}
	r := &results{dir: dir, retry: retry, of: map[string]result{}, jobs: map[string]begun{}}
	err := r.read(resume)
	if err != nil {
		r.close()
	}
	return r, located(err)
}

func (r *results) read(resume bool) (err error) {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	if r.open, err = os.OpenFile(r.path(begunName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if err := unix.Flock(int(r.open.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return holt.Errorf(holt.Conflict, "another batch is writing to %s", r.dir).WithHint("wait for it, or use another --out")
	}
	if r.ended, err = os.OpenFile(r.path(resultsName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return err
	}
	if err := readLines(r.ended, func(one result) { r.of[one.ID] = one }); err != nil {
		return err
	}
	if !resume && len(r.of) > 0 {
		return holt.Errorf(holt.AlreadyExists, "%s already has results", r.dir).WithHint("continue with --resume, or use another --out")
	}
	return readLines(r.open, func(one begun) { r.jobs[one.ID] = one })
}

func (r *results) close() {
	for _, f := range []*os.File{r.ended, r.open} {
		if f != nil {
			f.Close()
		}
	}
}

// path is a file of the batch's directory.
func (r *results) path(name string) string { return filepath.Join(r.dir, name) }

// readLines calls add for each whole line, and ends a last one that is not.
func readLines[T any](f *os.File, add func(T)) error {
	text := bufio.NewReader(f)
	for {
		line, err := text.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 {
				_, err = f.Write([]byte("\n"))
				return err
			}
			return nil
		}
		var one T
		if json.Unmarshal(line, &one) == nil {
			add(one)
		}
	}
}

// appendLine adds a line as one write.
func appendLine(f *os.File, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	if err == nil {
		err = f.Sync()
	}
	return located(err)
}

// done says whether a line has a result that stands.
func (r *results) done(l *batchLine) bool {
	one, ok := r.of[l.ID]
	stands := ok && one.Hash == l.hash && (one.State == holt.JobDone || !r.retry)
	if ok && !stands {
		delete(r.of, l.ID)
		if r.jobs[l.ID].Job == one.Job {
			delete(r.jobs, l.ID) // it has ended
		}
	}
	return stands
}

// begun returns what is known of the job of a line; zero if that is nothing.
func (r *results) begun(l *batchLine) begun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.jobs[l.ID]; one.Hash == l.hash {
		return one
	}
	return begun{}
}

func (r *results) begin(one begun) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return appendLine(r.open, one)
}

func (r *results) add(one result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[one.ID] = one
	return appendLine(r.ended, one)
}

// oddOutputs is why the outputs of one job cannot be here, whatever those of others can.
type oddOutputs struct{ error }

func (e oddOutputs) Unwrap() error { return e.error }

// outputs fetches those of a job, if it has any, in the place of what an earlier one of the line has left. What this
// machine has against them is [oddOutputs], but for that it has no room.
func (r *results) outputs(ctx context.Context, c *client.Client, l *batchLine, j holt.Job) (err error) {
	temp, to := r.path("."+l.ID+".part"), r.path(l.ID)
	var theirs error // the daemon's
	defer func() {
		if err != nil {
			_ = removeAll(temp)
		}
		ours := theirs == nil || !errors.Is(err, theirs)
		full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
		if err = located(err); err != nil && ours && !full && ctx.Err() == nil {
			err = oddOutputs{err}
		}
	}()
	if err := removeAll(temp); err != nil {
		return err
	}
	if j.Outputs == nil || !j.Outputs.Kept {
		return removeAll(to)
	}
	_, err = receiveDir(ctx, &bar{}, temp, transferFlags{}, nil, func(ctx context.Context, w io.Writer) error {
		theirs = c.Jobs.Outputs(ctx, j.ID, w)
		return theirs
	})
	if err == nil {
		err = removeAll(to)
	}
	if err == nil {
		err = os.Rename(temp, to)
	}
	return err
}

// removeAll is os.RemoveAll, also of directories that their mode protects from their owner.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(at, 0o700) // whose is not ours stays, as the next line says
		}
		return nil
	})
	return os.RemoveAll(path)
}
