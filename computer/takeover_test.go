package computer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holt"
	"holt/db"
	"holt/machine"
)

// stuckEngine is an engine whose machines do not answer: none is given up
// before most wait side by side.
type stuckEngine struct {
	machine.Engine
	most int

	mu       sync.Mutex
	now, top int
	once     sync.Once
	full     chan struct{}
}

func (e *stuckEngine) Capabilities() machine.Capabilities { return machine.Capabilities{} }

func (e *stuckEngine) Adopt(context.Context, string) (machine.Machine, error) {
	e.mu.Lock()
	if e.now++; e.now > e.top {
		e.top = e.now
	}
	if e.now == e.most {
		e.once.Do(func() { close(e.full) })
	}
	e.mu.Unlock()
	<-e.full
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now--
	return nil, errors.New("it does not answer")
}

func nothingWith(*db.Tx) error { return nil }

// Machines are taken over side by side, so many at once and no more.
func TestTakeOverSideBySide(t *testing.T) {
	keys, d := openKeys(t)
	all := table{d}
	for i := range 2*atOnce - 1 {
		r := record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: fmt.Sprintf("c%d", i), State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID()}
		if err := all.insert(t.Context(), &r, nil, func(string) bool { return false }, nothingWith); err != nil {
			t.Fatal(err)
		}
	}
	e := &stuckEngine{most: atOnce, full: make(chan struct{})}
	s, err := Open(t.Context(), Config{DB: d, Keys: keys, Dir: filepath.Join(t.TempDir(), "computers"), Disks: t.TempDir(), Moments: t.TempDir(), Templates: t.TempDir(), Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if e.top != atOnce {
		t.Errorf("%d at once, want %d", e.top, atOnce)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2*atOnce-1 {
		t.Fatalf("%d computers, %v", len(list), err)
	}
	for _, c := range list {
		if !strings.Contains(c.Reason, "does not answer") {
			t.Errorf("%+v", c)
		}
	}
}
