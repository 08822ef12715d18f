package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holt"
)

const (
	maxTerminals  = 64      // at once
	keepTerminals = 64      // ended ones remembered…
	keepScreens   = 8 << 20 // …and their output, bytes in all
)

// terminalTable remembers terminals.
type terminalTable struct {
	groups    *groups
	reaper    *reaper
	workspace string
	log       *slog.Logger

	opening sync.Mutex // held while a terminal is started, so that names are unique
	mu      sync.Mutex
	order   []*terminal // by start
}

func newTerminalTable(g *groups, r *reaper, workspace string, log *slog.Logger) *terminalTable {
	return &terminalTable{groups: g, reaper: r, workspace: workspace, log: log}
}

// open returns the terminal with this id, or a running one with that name, or starts one.
func (t *terminalTable) open(id holt.TerminalID, spec holt.TerminalSpec) (*terminal, error) {
	if _, err := holt.ParseTerminalID(string(id)); err != nil {
		return nil, err
	}
	var err error
	if spec.Name, err = holt.ParseName(termName(spec)); err != nil {
		return nil, err
	}
	t.opening.Lock()
	defer t.opening.Unlock()
	running := 0
	for _, old := range t.all() {
		_, over := old.over()
		if old.group.id == string(id) || !over && old.snapshot().Name == spec.Name {
			return old, nil
		}
		if !over {
			running++
		}
	}
	if running >= maxTerminals {
		return nil, holt.Errorf(holt.TooMany, "too many terminals: %d are open in this computer", running).
			WithHint("list them with holt terminal list, close one with holt terminal close")
	}
	t.groups.sweep()
	c, err := prepareTerminal(string(id), spec, t.workspace)
	if err != nil {
		return nil, err
	}
	t.groups.starting.RLock()
	started, err := launchTerminal(t.reaper, t.groups.of(string(id)), c, spec)
	t.groups.starting.RUnlock()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.order = append(t.order, started)
	t.mu.Unlock()
	go func() {
		started.supervise(t.log)
		t.forgetEnded()
	}()
	return started, nil
}

// forgetEnded forgets the oldest ended terminals, and frees the output of ended ones.
func (t *terminalTable) forgetEnded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kept []*terminal
	ended, bytes := 0, 0
	for _, one := range slices.Backward(t.order) { // keep the newest
		if at, over := one.over(); over {
			ended++
			if ended > keepTerminals && time.Since(at) > keepFor || ended > 2*keepTerminals {
				continue
			}
			if bytes += one.out.size(); bytes > keepScreens {
				one.out.shrink()
			}
		}
		kept = append(kept, one)
	}
	slices.Reverse(kept)
	t.order = kept
}

// all returns the terminals, oldest first.
func (t *terminalTable) all() []*terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*terminal(nil), t.order...)
}

func (t *terminalTable) get(id holt.TerminalID) (*terminal, error) {
	for _, one := range t.all() {
		if one.group.id == string(id) {
			return one, nil
		}
	}
	return nil, holt.Errorf(holt.NotFound, "no terminal %q in this computer's agent", clip(string(id))).
		WithHint("ended terminals are kept for some time, and are lost when the computer restarts")
}

// end kills the processes of all terminals, when the agent ends.
func (t *terminalTable) end() {
	for _, one := range t.all() {
		one.group.kill()
	}
}

func (s *Server) openTerminal(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[termArgs](raw)
	if err != nil {
		return nil, err
	}
	if args.Spec == nil {
		return nil, holt.Errorf(holt.InvalidArgument, "a terminal needs a spec")
	}
	t, err := s.terms.open(args.ID, *args.Spec)
	if err != nil {
		return nil, err
	}
	return t.snapshot(), nil
}

func (s *Server) listTerminals(ctx context.Context, st *serverStream) error {
	if err := st.agree(nil); err != nil {
		return err
	}
	var list []holt.Terminal
	for _, t := range s.terms.all() {
		list = append(list, t.snapshot())
	}
	return sendItems(st, list)
}

func (s *Server) signalTerminal(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[termArgs](raw)
	if err != nil {
		return nil, err
	}
	sig, err := parseSignal(args.Signal)
	if err != nil {
		return nil, err
	}
	t, err := s.terms.get(args.ID)
	if err != nil {
		return nil, err
	}
	if _, over := t.over(); over || !t.signal(sig) {
		return nil, holt.Errorf(holt.Conflict, "no process is running on terminal %s", t.snapshot().Name)
	}
	return nil, nil
}

func (s *Server) closeTerminal(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[termArgs](raw)
	if err != nil {
		return nil, err
	}
	t, err := s.terms.get(args.ID)
	if err != nil {
		return nil, err
	}
	if err := t.hangUp(ctx); err != nil {
		return nil, err
	}
	return t.snapshot(), nil
}
