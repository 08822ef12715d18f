package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"holt"
	"holt/client"
)

// batchFlags are the flags of job run for many jobs.
type batchFlags struct {
	file          string
	parallel      int
	resume, retry bool
}

func (f *batchFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "batch", "", "file with one job as JSON on each line")
	cmd.Flags().IntVar(&f.parallel, "parallel", 0, "number of jobs of the batch at the same time; they are queued if the host has no memory (default: 4)")
	cmd.Flags().BoolVar(&f.resume, "resume", false, "continue a batch: skip jobs that have a result")
	cmd.Flags().BoolVar(&f.retry, "retry-failed", false, "with --resume: run failed jobs again")
}

// defaultParallel is how many jobs of a batch there are at once.
const defaultParallel = 4

// batchLine is one job of a batch.
type batchLine struct {
	ID         string                          `json:"id"`
	Command    holt.OSString                   `json:"command"`
	Argv       holt.OSStrings                  `json:"argv"`
	In         string                          `json:"in"`
	Env        map[holt.OSString]holt.OSString `json:"env"`
	Timeout    string                          `json:"timeout"`
	User       string                          `json:"user"`
	Cwd        holt.OSString                   `json:"cwd"`
	Template   string                          `json:"template"`
	Image      string                          `json:"image"`
	Engine     string                          `json:"engine"`
	CPUs       int                             `json:"cpus"`
	MemoryMB   int                             `json:"memory_mb"`
	DiskSizeMB int                             `json:"disk_size_mb"`
	Collect    holt.OSString                   `json:"collect"`
	Egress     holt.Egress                     `json:"egress"`
	Allow      []string                        `json:"allow"`
	SecretsOf  string                          `json:"secrets_of"`

	hash string       // of the line's text
	spec holt.JobSpec // with the defaults
}

// mostLine bounds a line of a batch, bytes.
const mostLine = 1 << 20

var batchID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// readBatch reads a batch over defaults.
func readBatch(file string, defaults holt.JobSpec, in string) (lines []*batchLine, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, hinted(here(err, file), "--batch needs a local file with one job as JSON on each line")
	}
	defer f.Close()
	text := bufio.NewScanner(f)
	text.Buffer(nil, mostLine)
	seen := map[string]int{}
	n := 1
	for ; text.Scan(); n++ {
		line := bytes.TrimSpace(text.Bytes())
		if len(line) == 0 {
			continue
		}
		l, err := parseLine(line, n, defaults, in, filepath.Dir(file))
		if err != nil {
			e := *holt.AsError(err)
			e.Message = fmt.Sprintf("%s:%d: %s", file, n, e.Message)
			return nil, &e
		}
		if at := seen[l.ID]; at > 0 {
			return nil, holt.Errorf(holt.InvalidArgument, "%s:%d: the job %s is already on line %d", file, n, l.ID, at).WithHint("give each line a unique id")
		}
		seen[l.ID] = n
		lines = append(lines, l)
	}
	if err := text.Err(); err != nil {
		return nil, holt.Errorf(holt.InvalidArgument, "%s:%d: %w", file, n, err).WithHint("a line has at most 1 MiB")
	}
	return lines, nil
}

func parseLine(text []byte, n int, defaults holt.JobSpec, in, dir string) (*batchLine, error) {
	l := &batchLine{spec: defaults}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(l); err != nil || dec.More() {
		return nil, holt.Errorf(holt.InvalidArgument, "not a job: %w", cmp.Or(err, errors.New("more than one job on the line"))).WithHint("holt job run --help lists the fields of a job")
	}
	sum := sha256.Sum256(text)
	l.hash, l.ID = hex.EncodeToString(sum[:16]), cmp.Or(l.ID, fmt.Sprint(n))
	if !batchID.MatchString(l.ID) || strings.HasSuffix(l.ID, ".log") || strings.HasPrefix(l.ID, resultsName) {
		return nil, holt.Errorf(holt.InvalidArgument, "invalid job id %.80q", l.ID).WithHint("use up to 128 letters, digits, _, - and ., not ending in .log: the id names a directory")
	}
	if (l.Command == "") == (len(l.Argv) == 0) {
		return nil, holt.Errorf(holt.InvalidArgument, "a job needs either a command or an argv").WithHint("for example {\"command\": \"make test\"}")
	}
	if l.In = cmp.Or(l.In, in); l.In != "" && l.In != in && !filepath.IsAbs(l.In) {
		l.In = filepath.Join(dir, l.In)
	}
	return l, l.fill(dir)
}

// fill puts what the line says over the defaults.
func (l *batchLine) fill(dir string) error {
	s := &l.spec
	s.Run.Command, s.Run.Argv = l.Command, l.Argv
	s.Run.User, s.Run.Cwd = cmp.Or(l.User, s.Run.User), cmp.Or(l.Cwd, s.Run.Cwd)
	s.CPUs, s.MemoryMB, s.DiskSizeMB = cmp.Or(l.CPUs, s.CPUs), cmp.Or(l.MemoryMB, s.MemoryMB), cmp.Or(l.DiskSizeMB, s.DiskSizeMB)
	s.Engine = cmp.Or(l.Engine, s.Engine)
	s.Collect, s.SecretsOf = cmp.Or(l.Collect, s.Collect), cmp.Or(l.SecretsOf, s.SecretsOf)
	if l.Egress != "" || l.Allow != nil {
		var before holt.NetworkPolicy
		if s.Network != nil {
			before = *s.Network
		}
		s.Network = policyOver(before, l.Egress, l.Allow)
	}
	s.Run.Env = maps.Clone(s.Run.Env)
	if s.Run.Env == nil {
		s.Run.Env = l.Env
	} else {
		maps.Copy(s.Run.Env, l.Env)
	}
	if l.In != "" && s.Workspace != "" {
		return holt.Errorf(holt.InvalidArgument, "in and --workspace exclude each other").WithHint("use only one of them")
	}
	if l.Timeout != "" {
		d, err := time.ParseDuration(l.Timeout)
		if err != nil || d < time.Millisecond {
			return holt.Errorf(holt.InvalidArgument, "invalid timeout %q", l.Timeout).WithHint("use a duration such as 90s or 10m")
		}
		s.Run.TimeoutMS = d.Milliseconds()
	}
	if l.Template == "" && l.Image == "" {
		return nil
	}
	var err error
	s.Template, err = templateRef(l.Template, l.Image, dir)
	return err
}

// batch is many jobs as this program drives them. Its lock guards what is below it.
type batch struct {
	a       *app
	c       *client.Client
	flags   *jobFlags
	out     string // the directory of its results
	results *results
	bar     *bar
	total   int
	began   time.Time
	crowded sync.Once // said that it waits

	mu     sync.Mutex
	inputs map[string]*batchInputs // by directory
	count  map[holt.JobState]int
	before int // had a result already
}

// batchInputs are those of one directory, for all jobs that begin with them.
type batchInputs struct {
	mu sync.Mutex // held while they are sent
	id holt.JobInputsID
}

// runBatch runs the jobs of a file that have no result yet.
func (a *app) runBatch(ctx context.Context, c *client.Client, spec holt.JobSpec, flags jobFlags) error {
	lines, err := readBatch(flags.file, spec, flags.in)
	if err != nil {
		return err
	}
	dir := cmp.Or(flags.out, strings.TrimSuffix(flags.file, ".jsonl")+".out")
	b := &batch{a: a, c: c, flags: &flags, out: dir, total: len(lines), began: time.Now(), inputs: map[string]*batchInputs{}, count: map[holt.JobState]int{}}
	if b.results, err = openResults(dir, flags.resume, flags.retry); err != nil {
		return err
	}
	defer b.results.close()
	var left []*batchLine
	for _, l := range lines {
		if b.results.done(l) {
			b.before++
		} else {
			left = append(left, l)
		}
	}
	b.bar = a.begin("jobs")
	b.show(nil)
	err = b.run(ctx, left, cmp.Or(flags.parallel, defaultParallel))
	b.bar.end()
	for _, in := range b.inputs {
		dropInputs(c, in.id)
	}
	if ctx.Err() != nil {
		a.say("holt: %d of %d jobs have ended, the others were cancelled; continue with --resume", len(b.results.of), len(lines))
	}
	if err != nil {
		return err
	}
	return b.report(lines)
}

// run runs jobs side by side, in their order.
func (b *batch) run(ctx context.Context, lines []*batchLine, parallel int) error {
	var work errgroup.Group
	work.SetLimit(parallel)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, l := range lines {
		work.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := b.one(ctx, l)
			if err != nil {
				cancel(err) // the daemon is away, or there is no room here: the others would fail the same way
			}
			return err
		})
	}
	return work.Wait()
}

// one runs one job, or finds it again, and writes its result down.
func (b *batch) one(ctx context.Context, l *batchLine) error {
	j, err := b.begin(ctx, l)
	var refused *holt.Error
	if errors.As(err, &refused) && ctx.Err() == nil && (refused.Code == holt.InvalidArgument || refused.Code == holt.NotFound) {
		return b.end(l, holt.Job{State: holt.JobFailed, Error: refused})
	}
	if err == nil {
		err = b.follow(ctx, l, j.ID)
	}
	var stopped interruption
	if err != nil && j.ID != "" && errors.As(context.Cause(ctx), &stopped) {
		late, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		if _, lost := b.c.Jobs.Cancel(late, j.ID, ""); lost != nil {
			b.a.say("holt: the job %s continues: %s", j.ID, visible(lost.Error()))
		}
	}
	if err != nil {
		return err
	}
	if j, err = b.c.Jobs.Get(ctx, j.ID); err != nil {
		return err
	}
	var odd oddOutputs
	if err = b.results.outputs(ctx, b.c, l, j); errors.As(err, &odd) {
		j = withoutOutputs(j, odd)
	} else if err != nil {
		return err
	}
	return b.end(l, j)
}

// withoutOutputs is a job whose outputs are not here: it has failed, and keeps them.
func withoutOutputs(j holt.Job, why error) holt.Job {
	j.State = holt.JobFailed
	said := holt.AsError(why).Message
	if o := j.Outputs; o != nil && o.Kept {
		j.Outputs = &holt.JobOutputs{Files: o.Files, Bytes: o.Bytes}
		said += " (the daemon keeps them for 24 hours)"
	}
	j.Error = holt.Errorf(holt.Internal, "the outputs cannot be stored here: %s", said).WithHint("fetch them into another directory: holt job outputs")
	return j
}

// begin makes the job of a line, unless an earlier call of this program has, whose job is there still. What makes it is written
// down first: a caller that was killed in between makes the same call again, and gets the same job.
func (b *batch) begin(ctx context.Context, l *batchLine) (holt.Job, error) {
	was := b.results.begun(l)
	if was.Job != "" {
		j, err := b.c.Jobs.Get(ctx, was.Job)
		if err == nil && j.State != holt.JobCancelled {
			return j, nil
		}
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			return j, err
		}
		was = begun{}
	}
	for again := false; ; again = true {
		spec := l.spec
		if spec.Inputs = was.Inputs; l.In != "" && spec.Inputs == "" {
			var err error
			if spec.Inputs, err = b.send(ctx, l.In); err != nil {
				return holt.Job{}, err
			}
		}
		known := was.Key != ""
		if !known {
			was = begun{ID: l.ID, Hash: l.hash, Key: rand.Text(), Inputs: spec.Inputs}
			if err := b.results.begin(was); err != nil {
				return holt.Job{}, err
			}
		}
		j, err := b.create(ctx, spec, was.Key)
		gone := holt.CodeOf(err) == holt.NotFound && spec.Inputs != "" // unused for too long
		other := holt.CodeOf(err) == holt.Conflict && known            // it was to be made with other flags
		if !again && (gone || other) {
			b.forget(l.In, spec.Inputs)
			was = begun{}
			continue
		}
		if err == nil {
			was.Job = j.ID
			err = b.results.begin(was)
		}
		return j, err
	}
}

// create makes a job, when there is room among those of the tenant.
func (b *batch) create(ctx context.Context, spec holt.JobSpec, key string) (holt.Job, error) {
	for {
		j, err := createJob(ctx, b.c, spec, key)
		if holt.CodeOf(err) != holt.TooMany {
			return j, err
		}
		b.crowded.Do(func() { b.a.say("holt: the batch waits: %s", visible(holt.AsError(err).Message)) })
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return j, err
		}
	}
}

// send sends a directory once for all jobs.
func (b *batch) send(ctx context.Context, dir string) (id holt.JobInputsID, err error) {
	b.mu.Lock()
	in := b.inputs[dir]
	if in == nil {
		in = &batchInputs{}
		b.inputs[dir] = in
	}
	b.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.id == "" {
		var not notSent
		in.id, not, err = b.flags.sendInputs(ctx, b.c, &bar{a: b.a}, dir, b.out)
		not.say(b.a)
	}
	return in.id, err
}

// forget has a directory sent again: what was sent is gone.
func (b *batch) forget(dir string, id holt.JobInputsID) {
	b.mu.Lock()
	in := b.inputs[dir]
	b.mu.Unlock()
	if in == nil { // an earlier call of this program sent them
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.id == id {
		in.id = ""
	}
}

// follow waits for a job's end, and keeps what it writes.
func (b *batch) follow(ctx context.Context, l *batchLine, id holt.JobID) error {
	f, err := os.Create(b.results.path(l.ID + ".log"))
	if err != nil {
		return here(err, b.results.path(l.ID+".log"))
	}
	defer f.Close()
	return b.c.Jobs.Follow(ctx, id, 0, func(e holt.RunEvent) error {
		if e.Kind == holt.RunGap {
			fmt.Fprintf(f, "[holt: %s of output is missing]\n", size(e.Dropped))
		}
		_, err := f.Write(e.Data)
		return err
	})
}

// end writes a result down, and lets the daemon forget what is here now.
func (b *batch) end(l *batchLine, j holt.Job) error {
	r := resultOf(l, j)
	if err := b.results.add(r); err != nil {
		return err
	}
	if j.Outputs != nil && j.Outputs.Kept {
		late, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		_, _ = b.c.Jobs.Release(late, j.ID, "") // else they go by themselves
	}
	b.show(&r)
	return nil
}

// show says how far the batch is.
func (b *batch) show(r *result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r != nil {
		b.count[r.State]++
	}
	ended := b.before
	for _, n := range b.count {
		ended += n
	}
	stage := fmt.Sprintf("%d of %d", ended, b.total)
	if n := b.count[holt.JobFailed] + b.count[holt.JobCancelled]; n > 0 {
		stage += fmt.Sprintf(", %d failed", n)
	}
	detail := ""
	if r != nil {
		detail = r.ID + " " + r.said()
	} else if b.before > 0 {
		detail = fmt.Sprintf("%d already had a result", b.before)
	}
	if b.bar.bar == nil && r != nil { // a line for each
		stage += ": " + detail
	}
	b.bar.show(Progress{Stage: stage, Detail: detail, Fraction: float64(ended) / float64(max(1, b.total))})
}

// report prints the results of all lines, and fails if one has failed.
func (b *batch) report(lines []*batchLine) error {
	all, failed := make([]result, 0, len(lines)), 0
	for _, l := range lines {
		r := b.results.of[l.ID]
		all = append(all, r)
		if r.State != holt.JobDone {
			failed++
		}
	}
	if b.a.wantsJSON() {
		if err := printJSON(b.a.Out, all); err != nil {
			return err
		}
	} else {
		rows := make([][]string, len(all))
		for i, r := range all {
			rows[i] = []string{r.ID, r.said(), took(float64(r.DurationMS)), fmt.Sprint(r.OutputFiles), size(r.OutputBytes), clipLine(visible(r.Error), 60)}
		}
		if err := printTable(b.a.Out, []string{"ID", "STATE", "TOOK", "FILES", "SIZE", "ERROR"}, rows); err != nil {
			return err
		}
	}
	within := ""
	if b.before < len(all) {
		within = ", in " + span(time.Since(b.began))
	}
	b.a.say("holt: %d done, %d failed%s; results are in %s", len(all)-failed, failed, within, b.results.dir)
	if failed > 0 {
		if failed < len(all) || b.before == 0 {
			b.a.say("hint: run failed jobs again with --resume --retry-failed")
		}
		return exitStatus(exitFailure)
	}
	return nil
}
