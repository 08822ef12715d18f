package chunk

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"holt"
)

// Memory is a [Store] in memory. The zero value is empty.
type Memory struct {
	mu sync.Mutex
	m  map[string][]byte
}

// Put implements [Store].
func (s *Memory) Put(ctx context.Context, name string, b []byte) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[name]; ok {
		return errObjectExists(name)
	}
	if s.m == nil {
		s.m = map[string][]byte{}
	}
	s.m[name] = bytes.Clone(b)
	return nil
}

// Get implements [Store].
func (s *Memory) Get(ctx context.Context, name string, p []byte, off int64) error {
	b, err := s.object(ctx, name)
	if err == nil {
		err = inRange(name, p, off, int64(len(b)))
	}
	if err == nil {
		copy(p, b[off:])
	}
	return err
}

// Stat implements [Store].
func (s *Memory) Stat(ctx context.Context, name string) (int64, error) {
	b, err := s.object(ctx, name)
	return int64(len(b)), err
}

// object returns an object's bytes, which are immutable.
func (s *Memory) object(ctx context.Context, name string) ([]byte, error) {
	if err := ready(ctx, name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.m[name]
	if !ok {
		return nil, errNoObject(name)
	}
	return b, nil
}

// List implements [Store].
func (s *Memory) List(ctx context.Context, prefix string, fn func(Object) error) error {
	s.mu.Lock()
	m := maps.Clone(s.m)
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if err := ended(ctx); err != nil {
			return err
		}
		if err := fn(Object{name, int64(len(m[name]))}); err != nil {
			return err
		}
	}
	return ended(ctx)
}

// Delete implements [Store].
func (s *Memory) Delete(ctx context.Context, name string) error {
	if err := ready(ctx, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, name)
	return nil
}

// ready does the checks common to all calls of a store.
func ready(ctx context.Context, name string) error {
	if err := ended(ctx); err != nil {
		return err
	}
	return CheckName(name)
}

// ended returns an error if ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return holt.Errorf(holt.Timeout, "cancelled: %w", err)
	}
	return nil
}
