// Package chunktest is the conformance suite for implementations of
// [chunk.Store]. It does not test the formats of packs and manifests.
package chunktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/store/chunk"
)

// TestStore tests a store. open returns an empty store; with again it reopens
// the last one as another process would, or returns nil if the store does not
// outlive its process.
func TestStore(t *testing.T, open func(t *testing.T, again bool) chunk.Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, chunk.Store)
	}{
		{"objects", testObjects}, {"absent", testAbsent}, {"names", testNames}, {"ranges", testRanges}, {"order", testOrder},
		{"race", testRace}, {"given up", testGivenUp}, {"large", testLarge},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t, false)) })
	}
	t.Run("again", func(t *testing.T) {
		s := open(t, false)
		want := content(1, 100_000)
		must(t, s.Put(t.Context(), "pack/aa/1", want))
		if s = open(t, true); s == nil {
			return
		}
		if got := get(t, s, "pack/aa/1", 0, len(want)); !bytes.Equal(got, want) {
			t.Fatal("another process reads other bytes")
		}
		code(t, s.Put(t.Context(), "pack/aa/1", nil), holt.AlreadyExists)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(t *testing.T, err error, want holt.Code) {
	t.Helper()
	if got := holt.CodeOf(err); got != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func content(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

func get(t *testing.T, s chunk.Store, name string, off int64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	must(t, s.Get(t.Context(), name, p, off))
	return p
}

func list(t *testing.T, s chunk.Store, prefix string) (all []chunk.Object) {
	t.Helper()
	must(t, s.List(t.Context(), prefix, func(o chunk.Object) error { all = append(all, o); return nil }))
	return all
}

func testObjects(t *testing.T, s chunk.Store) {
	want := content(2, 5000)
	given := bytes.Clone(want)
	must(t, s.Put(t.Context(), "a/b", given))
	clear(given) // the store must not retain it
	if !bytes.Equal(get(t, s, "a/b", 0, 5000), want) {
		t.Fatal("other bytes")
	}
	code(t, s.Put(t.Context(), "a/b", []byte("other")), holt.AlreadyExists)
	if !bytes.Equal(get(t, s, "a/b", 0, 5000), want) {
		t.Fatal("an object changed")
	}
	if n, err := s.Stat(t.Context(), "a/b"); err != nil || n != 5000 {
		t.Fatal(n, err)
	}
	must(t, s.Put(t.Context(), "empty", nil))
	if n, err := s.Stat(t.Context(), "empty"); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	must(t, s.Delete(t.Context(), "a/b"))
	code(t, s.Get(t.Context(), "a/b", make([]byte, 1), 0), holt.NotFound)
	must(t, s.Put(t.Context(), "a/b", []byte("anew")))
	if string(get(t, s, "a/b", 0, 4)) != "anew" {
		t.Fatal("not put again")
	}
}

func testAbsent(t *testing.T, s chunk.Store) {
	must(t, s.Put(t.Context(), "a/b", nil))
	for _, name := range []string{"nothing", "a", "a/c", "a/b/c"} {
		code(t, s.Get(t.Context(), name, make([]byte, 1), 0), holt.NotFound)
		_, err := s.Stat(t.Context(), name)
		code(t, err, holt.NotFound)
		must(t, s.Delete(t.Context(), name))
	}
	if got := list(t, s, ""); len(got) != 1 {
		t.Fatal("deleting nothing changed something:", got)
	}
}

func testNames(t *testing.T, s chunk.Store) {
	for _, name := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".tmp/x", "a\x00b", "ä", "a/b/c/d/e", "a b"} {
		code(t, s.Put(t.Context(), name, nil), holt.InvalidArgument)
		code(t, s.Get(t.Context(), name, nil, 0), holt.InvalidArgument)
		code(t, s.Delete(t.Context(), name), holt.InvalidArgument)
		_, err := s.Stat(t.Context(), name)
		code(t, err, holt.InvalidArgument)
	}
	if got := list(t, s, ""); got != nil {
		t.Fatal(got)
	}
}

func testRanges(t *testing.T, s chunk.Store) {
	want := content(3, 3<<20+17)
	must(t, s.Put(t.Context(), "p", want))
	rng := rand.New(rand.NewPCG(4, 4))
	for range 50 {
		off := rng.IntN(len(want))
		n := rng.IntN(len(want) - off + 1)
		if !bytes.Equal(get(t, s, "p", int64(off), n), want[off:off+n]) {
			t.Fatal("other bytes at", off, n)
		}
	}
	get(t, s, "p", int64(len(want)), 0)
	for _, off := range []int{len(want) - 9, len(want), len(want) + 1, 2 * len(want)} {
		if err := s.Get(t.Context(), "p", make([]byte, 10), int64(off)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal("past the end:", err)
		}
	}
	code(t, s.Get(t.Context(), "p", make([]byte, 1), -1), holt.InvalidArgument)
}

func testOrder(t *testing.T, s chunk.Store) {
	names := []string{"a", "a-b/x", "a.b", "a/b", "a/b1", "a/c/d", "aa", "b/1", "b/2"}
	for _, i := range rand.New(rand.NewPCG(5, 5)).Perm(len(names)) {
		if names[i] == "a" {
			continue // a file and a directory cannot share a name in every store
		}
		must(t, s.Put(t.Context(), names[i], make([]byte, i)))
	}
	for prefix, want := range map[string][]string{
		"": names[1:], "a": names[1:7], "a/": names[3:6], "a/b": names[3:5], "b/": names[7:], "c": nil, "a/c/d": names[5:6], "a/c/d/": nil,
	} {
		var got []string
		for _, o := range list(t, s, prefix) {
			got = append(got, o.Name)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("objects that begin with %q: %s", prefix, d)
		}
	}
	if got := list(t, s, "b/2"); len(got) != 1 || got[0].Size != 8 {
		t.Fatal(got)
	}
	stop, n := errors.New("stop"), 0
	if err := s.List(t.Context(), "", func(chunk.Object) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Fatal(n, err)
	}
}

// testRace checks that concurrent puts of one name have one winner, whose bytes
// are complete and seen by all readers at once.
func testRace(t *testing.T, s chunk.Store) {
	const callers, names = 8, 20
	var mu sync.Mutex
	winner := map[string][]byte{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range names {
				name, mine := fmt.Sprint("x/", i), content(uint64(c), 20_000)
				err := s.Put(t.Context(), name, mine)
				if err != nil && holt.CodeOf(err) != holt.AlreadyExists {
					t.Error(err)
				}
				p := make([]byte, len(mine))
				if got := s.Get(t.Context(), name, p, 0); got != nil {
					t.Error(got)
				}
				mu.Lock()
				if _, twice := winner[name]; twice && err == nil {
					t.Error("two puts succeeded:", name)
				}
				if err == nil {
					winner[name] = mine
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for name, want := range winner {
		if !bytes.Equal(get(t, s, name, 0, len(want)), want) {
			t.Fatal("not the winner's bytes:", name)
		}
	}
	if len(winner) != names || len(list(t, s, "")) != names {
		t.Fatal(len(winner), list(t, s, ""))
	}
}

func testGivenUp(t *testing.T, s chunk.Store) {
	must(t, s.Put(t.Context(), "a", make([]byte, 10)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Stat(ctx, "a")
	for _, err := range []error{
		err, s.Put(ctx, "b", nil), s.Get(ctx, "a", make([]byte, 1), 0), s.Delete(ctx, "a"),
		s.List(ctx, "", func(chunk.Object) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Fatal("a call did not stop when its context ended:", err)
		}
	}
	if got := list(t, s, ""); len(got) != 1 {
		t.Fatal(got)
	}
}

func testLarge(t *testing.T, s chunk.Store) {
	want := content(6, 17<<20)
	must(t, s.Put(t.Context(), "large", want))
	if !bytes.Equal(get(t, s, "large", 0, len(want)), want) {
		t.Fatal("other bytes")
	}
}
