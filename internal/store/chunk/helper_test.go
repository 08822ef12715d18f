package chunk

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// lazy is a context without a deadline.
var lazy = context.Background()

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, want holt.Code) {
	t.Helper()
	if got := holt.CodeOf(err); got != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

// noise returns n incompressible bytes, text n compressible ones.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func text(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 8))
	words := strings.Fields("func return err if nil string for range the workspace package import int64 byte == := { } ( ) // holt")
	b := make([]byte, 0, n+1<<14)
	for len(b) < n {
		if len(b) > 1<<18 { // what is far away may repeat
			at := rng.IntN(len(b) - 1<<13)
			b = append(b, b[at:at+1<<10+rng.IntN(1<<12)]...)
			continue
		}
		b = append(append(b, words[rng.IntN(len(words))]...), ' ')
	}
	return b[:n]
}

func openAt(t testing.TB, dir string, opt Options) *Archive {
	t.Helper()
	if opt.Store == nil {
		opt.Store = &Memory{}
	}
	a, err := Open(lazy, dir, opt)
	ok(t, err)
	t.Cleanup(func() { ok(t, a.Close()) })
	return a
}

// put writes a part of several contents, each a run after a gap.
func put(t testing.TB, a *Archive, space, part string, contents ...[]byte) (Written, error) {
	t.Helper()
	w := a.Create(space, part)
	defer w.Abort()
	off := int64(0)
	for _, c := range contents {
		if err := w.Append(lazy, off, c); err != nil {
			return Written{}, err
		}
		if err := w.EndRun(lazy); err != nil {
			return Written{}, err
		}
		off += int64(len(c)) + 100
	}
	return w.Commit(lazy)
}

// holds checks that a part has the contents that put wrote.
func holds(t testing.TB, a *Archive, space, part string, contents ...[]byte) {
	t.Helper()
	off := int64(0)
	for i, c := range contents {
		p := make([]byte, len(c))
		if err := a.ReadAt(lazy, space, part, p, off); err != nil {
			t.Fatalf("%s/%s, content %d: %v", space, part, i, err)
		}
		if !bytes.Equal(p, c) {
			t.Fatalf("%s/%s, content %d: other bytes", space, part, i)
		}
		off += int64(len(c)) + 100
	}
}

func clean(t testing.TB, a *Archive) {
	t.Helper()
	report, err := a.Check(lazy, "", true)
	ok(t, err)
	if report.Problems != nil {
		t.Fatalf("check: %s", strings.Join(report.Problems, "\n"))
	}
}

func objects(t testing.TB, s Store, prefix string) (names []string) {
	t.Helper()
	ok(t, s.List(lazy, prefix, func(o Object) error { names = append(names, o.Name); return nil }))
	return names
}

// copyDir copies the index as a crash now would leave it.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	ok(t, os.RemoveAll(to))
	ok(t, os.MkdirAll(to, 0o700))
	ok(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "-shm") {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(path)), b, 0o600)
		}
		return err
	}))
}

func partName(i int) string { return fmt.Sprint("p", i) }
