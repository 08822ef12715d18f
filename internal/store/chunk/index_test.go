package chunk

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
)

// scribble overwrites the index with noise in another process: closing the file
// in this one would drop SQLite's locks.
func scribble(t *testing.T, dir string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		cmd := exec.Command("dd", "of="+filepath.Join(dir, indexFile+suffix), "conv=notrunc", "bs=64k")
		cmd.Stdin = bytes.NewReader(noise(7, 4<<20))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// An index that is damaged in use is rebuilt: reads wait for it, other calls
// return Unavailable, and no commit is lost.
func TestIndexDamagedInUse(t *testing.T) {
	s := &Fault{Under: &Memory{}}
	dir := t.TempDir()
	a := openAt(t, dir, Options{Store: s, HotBytes: 1})
	want := map[string][]byte{}
	add := func(i int) error {
		b := noise(uint64(i), 20_000)
		_, err := put(t, a, "w", partName(i), b)
		if err == nil {
			want[partName(i)] = b
		}
		return err
	}
	all := func() {
		t.Helper()
		for part, b := range want {
			holds(t, a, "w", part, b)
		}
	}
	for i := range 20 {
		ok(t, add(i))
	}
	ok(t, a.Remove(lazy, "w", partName(0))) // garbage, partly doomed
	delete(want, partName(0))
	for round := range 2 {
		listing, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s.SetHook(func(call, name string) Failure {
			if call == "list" && name == packPrefix {
				once.Do(func() { close(listing); <-goOn })
			}
			return Failure{}
		})
		scribble(t, dir)
		for i := 100 * (round + 1); ; i++ { // until a page is read anew
			if err := add(i); errors.Is(err, errOut) {
				break
			}
			if i > 100*(round+1)+90 {
				t.Fatal("the damage was not noticed")
			}
		}
		<-listing
		_, err := a.Spaces(lazy)
		wantCode(t, err, holt.Unavailable)
		if e := (*holt.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Hint, "try again") {
			t.Errorf("no hint: %v", err)
		}
		wantCode(t, a.Drop(lazy, "w"), holt.Unavailable)
		ctx, cancel := context.WithCancel(lazy)
		cancel()
		wantCode(t, a.ReadAt(ctx, "w", partName(1), make([]byte, 1), 0), holt.Unavailable)
		read := make(chan error, 1)
		go func() { read <- a.ReadAt(lazy, "w", partName(1), make([]byte, 20_000), 0) }()
		select {
		case err := <-read:
			t.Error("a read did not wait:", err)
		case <-time.After(10 * time.Millisecond):
		}
		close(goOn)
		ok(t, <-read)
		all()
		ok(t, add(50+round))
		_, err = a.Collect(lazy, time.Now().Add(time.Hour))
		ok(t, err)
		all()
		clean(t, a)
	}
	ok(t, a.Close())
	a = openAt(t, dir, Options{Store: s})
	all()
	clean(t, a)
}

// An unreachable store delays the rebuild of the index but does not prevent it.
// Close does not wait for it.
func TestIndexDamagedWithoutStore(t *testing.T) {
	s := &Fault{Under: &Memory{}}
	dir := t.TempDir()
	a := openAt(t, dir, Options{Store: s})
	_, err := put(t, a, "w", "p", noise(1, 1000))
	ok(t, err)
	failed := make(chan struct{}, 100)
	s.SetHook(func(call, _ string) Failure {
		if call == "list" {
			failed <- struct{}{}
			return Failure{Err: holt.Errorf(holt.Unavailable, "planned")}
		}
		return Failure{}
	})
	a.index.found(errors.New("planned"))
	<-failed
	<-failed // again
	s.SetHook(nil)
	holds(t, a, "w", "p", noise(1, 1000))
	clean(t, a)
	s.SetHook(func(call, _ string) Failure { return Failure{Hang: call == "list"} })
	a.index.found(errors.New("planned"))
	ok(t, a.Close())
}
