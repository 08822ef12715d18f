package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"

	"holt"
)

const (
	maxRunning = 512  // concurrent runs
	maxRuns    = 8192 // maximum of remembered runs, whatever their age
	keepRuns   = 100  // minimum of remembered ended runs, whatever their age…
	keepFor    = 10 * time.Minute
	listBatch  = 64 // runs or files in one message
)

// runTable remembers runs.
type runTable struct {
	groups    *groups
	workspace string
	log       *slog.Logger
	reaper    *reaper

	mu    sync.Mutex
	byID  map[holt.RunID]*runEntry
	order []*runEntry // by start
}

// runEntry is an entry of the table. The run is set once started is closed,
// unless it could not be started.
type runEntry struct {
	id      holt.RunID
	started chan struct{}
	run     *run
	err     error
}

func newRunTable(g *groups, r *reaper, workspace string, log *slog.Logger) *runTable {
	return &runTable{groups: g, reaper: r, workspace: workspace, log: log, byID: map[holt.RunID]*runEntry{}}
}

// start starts a run, or returns the run with this id.
func (t *runTable) start(ctx context.Context, id holt.RunID, spec holt.RunSpec) (*run, error) {
	if _, err := holt.ParseRunID(string(id)); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if e := t.byID[id]; e != nil {
		t.mu.Unlock()
		select {
		case <-e.started:
			return e.run, e.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	running := t.forget(time.Now())
	if running >= maxRunning {
		t.mu.Unlock()
		return nil, holt.Errorf(holt.TooMany, "too many runs: %d are running in this computer", running)
	}
	e := &runEntry{id: id, started: make(chan struct{})}
	t.byID[id] = e
	t.order = append(t.order, e)
	t.mu.Unlock()

	t.groups.sweep()
	run, err := t.launch(id, spec, running+1)
	t.mu.Lock()
	e.run, e.err = run, err
	if err != nil {
		t.drop(e)
	}
	t.mu.Unlock()
	close(e.started)
	return run, err
}

func (t *runTable) launch(id holt.RunID, spec holt.RunSpec, running int) (*run, error) {
	c, err := prepare(string(id), spec, t.workspace)
	if err != nil {
		return nil, err
	}
	limit := ringSize
	if running > ringAll/ringSize {
		limit = max(ringMin, ringAll/running)
	}
	t.groups.starting.RLock()
	defer t.groups.starting.RUnlock()
	r, err := launch(t.reaper, t.groups.of(string(id)), c, spec, limit)
	if err != nil {
		return nil, err
	}
	go func() {
		r.supervise(t.log)
		t.trimOutput()
	}()
	return r, nil
}

// drop removes an entry. mu is held.
func (t *runTable) drop(e *runEntry) {
	delete(t.byID, e.id)
	for i := range t.order {
		if t.order[i] == e {
			t.order = append(t.order[:i:i], t.order[i+1:]...)
			return
		}
	}
}

// forget removes old ended runs and returns the number of running ones. mu is held.
func (t *runTable) forget(now time.Time) (running int) {
	ended := 0
	for _, e := range t.order {
		if _, over := e.over(); over {
			ended++
		}
	}
	running = len(t.order) - ended
	kept := t.order[:0]
	for _, e := range t.order {
		at, over := e.over()
		old := over && now.Sub(at) > keepFor && ended > keepRuns
		if over && (old || ended+running > maxRuns) {
			delete(t.byID, e.id)
			ended--
			continue
		}
		kept = append(kept, e)
	}
	clear(t.order[len(kept):])
	t.order = kept
	return running
}

// over returns when an entry's run ended.
func (e *runEntry) over() (time.Time, bool) {
	if e.run == nil {
		return time.Time{}, false
	}
	select {
	case <-e.run.ended:
		return *e.run.snapshot().EndedAt, true
	default:
		return time.Time{}, false
	}
}

// trimOutput drops output of the oldest ended runs until the output of all ended
// runs fits its share of memory.
func (t *runTable) trimOutput() {
	t.mu.Lock()
	defer t.mu.Unlock()
	total := 0
	for i := len(t.order) - 1; i >= 0; i-- { // keep the newest
		e := t.order[i]
		if _, over := e.over(); !over {
			continue
		}
		if total += e.run.output.size(); total > ringAll {
			total -= e.run.output.size()
			e.run.output.shrink(0)
		}
	}
}

func (t *runTable) get(id holt.RunID) (*run, error) {
	t.mu.Lock()
	e := t.byID[id]
	t.mu.Unlock()
	if e != nil {
		<-e.started
		if e.run != nil {
			return e.run, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "no run %q in this computer's agent", clip(string(id))).
		WithHint("ended runs are kept for 10 minutes, and are lost when the computer restarts")
}

func (t *runTable) running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forget(time.Now())
}

// all returns the runs, oldest first.
func (t *runTable) all() []holt.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	var runs []holt.Run
	for _, e := range t.order {
		if e.run != nil {
			runs = append(runs, e.run.snapshot())
		}
	}
	return runs
}

// end kills every run's processes, when the agent ends.
func (t *runTable) end() {
	for _, info := range t.all() {
		if r, err := t.get(info.ID); err == nil {
			r.group.kill()
		}
	}
}

func (s *Server) startRun(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[runArgs](raw)
	if err != nil {
		return nil, err
	}
	if args.Spec == nil {
		return nil, holt.Errorf(holt.InvalidArgument, "a run needs a spec")
	}
	r, err := s.runs.start(ctx, args.ID, *args.Spec)
	if err != nil {
		return nil, err
	}
	return r.snapshot(), nil
}

// namedRun decodes arguments that name a run, and finds it.
func (s *Server) namedRun(raw json.RawMessage) (args runArgs, r *run, err error) {
	if args, err = decode[runArgs](raw); err == nil {
		r, err = s.runs.get(args.ID)
	}
	return args, r, err
}

func (s *Server) getRun(ctx context.Context, raw json.RawMessage) (any, error) {
	_, r, err := s.namedRun(raw)
	if err != nil {
		return nil, err
	}
	return r.now(), nil
}

func (s *Server) signalRun(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[runArgs](raw)
	if err != nil {
		return nil, err
	}
	sig, err := parseSignal(args.Signal)
	if err != nil {
		return nil, err
	}
	r, err := s.runs.get(args.ID)
	if err != nil {
		return nil, err
	}
	if r.signal(sig) == 0 && r.snapshot().State != holt.RunRunning {
		return nil, holt.Errorf(holt.Conflict, "no process of run %s is left", args.ID)
	}
	return nil, nil
}

func (s *Server) listRuns(ctx context.Context, st *serverStream) error {
	if err := st.agree(nil); err != nil {
		return err
	}
	return sendItems(st, s.runs.all())
}

// sendItems sends a complete list; see readItems.
func sendItems[T any](w io.Writer, items []T) error {
	for len(items) > 0 {
		n := min(len(items), listBatch)
		err := writeAnswer(w, items[:n], nil)
		if holt.CodeOf(err) == holt.TooMany && n > 1 { // large items: send one at a time
			n = 1
			err = writeAnswer(w, items[:n], nil)
		}
		if err != nil {
			return err
		}
		items = items[n:]
	}
	return writeAnswer(w, []T{}, nil)
}

// followRun sends a run's output until its exit.
func (s *Server) followRun(ctx context.Context, st *serverStream) error {
	args, r, err := s.namedRun(st.args)
	if err != nil {
		return err
	}
	f, err := r.output.follow(args.Offset)
	if err != nil {
		return err
	}
	defer func() {
		wait := patienceBack
		if st.Session().IsClosed() {
			wait = patienceHost
		}
		r.output.unfollow(f, wait)
	}()
	if err := st.agree(nil); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	buf := make([]byte, 0, eventHeader+pieceMax)
	for {
		kind, offset, data, lost, err := r.output.next(ctx, f)
		if err != nil {
			return err
		}
		step := int64(len(data))
		switch kind {
		case 0:
			return sendExit(ctx, st, r, offset)
		case eventGap:
			data, step = binary.BigEndian.AppendUint64(nil, uint64(lost)), lost
		}
		if _, err := st.Write(appendEvent(buf[:0], kind, offset, data)); err != nil {
			return err
		}
		r.output.advance(f, step)
	}
}

func sendExit(ctx context.Context, st *serverStream, r *run, offset int64) error {
	select {
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return sendLast(st, r.snapshot(), offset)
}

// sendLast sends the final event of a stream.
func sendLast(st *serverStream, info holt.Run, offset int64) error {
	body, err := json.Marshal(info)
	if err == nil && len(body) > maxChunk { // drop a huge spec; the exit matters
		info.Spec = holt.RunSpec{}
		body, err = json.Marshal(info)
	}
	if err != nil {
		return err
	}
	_, err = st.Write(appendEvent(nil, eventExit, offset, body))
	return err
}
