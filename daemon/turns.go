package daemon

import (
	"context"
	"slices"
	"sync"

	"holt"
)

// turns are the queries that run: a few at once, and fewer about any one
// workspace, so that nobody's long ones hold up all others. The zero value is
// ready.
type turns struct {
	mu    sync.Mutex
	n     int
	of    map[holt.WorkspaceID]int
	ended chan struct{} // closed when one ends, if somebody waits
}

// take waits until a query about some workspaces may run. end ends it. The
// error is ctx's.
func (t *turns) take(ctx context.Context, ids []holt.WorkspaceID) (end func(), err error) {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids) // of one, several checkpoints may be asked
	for {
		ended := t.try(ids)
		if ended == nil {
			return func() { t.end(ids) }, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try takes a turn and returns nil, or what is closed when it may be tried again.
func (t *turns) try(ids []holt.WorkspaceID) (ended chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= mostQueries || slices.ContainsFunc(ids, func(id holt.WorkspaceID) bool { return t.of[id] >= mostOfOne }) {
		if t.ended == nil {
			t.ended = make(chan struct{})
		}
		return t.ended
	}
	if t.of == nil {
		t.of = map[holt.WorkspaceID]int{}
	}
	t.n++
	for _, id := range ids {
		t.of[id]++
	}
	return nil
}

func (t *turns) end(ids []holt.WorkspaceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	for _, id := range ids {
		if t.of[id]--; t.of[id] == 0 {
			delete(t.of, id)
		}
	}
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}
