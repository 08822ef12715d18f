package chunk

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"holt"
)

// halfGarbage makes an archive with packs that are mostly garbage. It returns
// its store and content that is garbage in them.
func halfGarbage(t *testing.T) (*Archive, *Fault, []byte) {
	t.Helper()
	s := &Fault{Under: &Memory{}}
	a := openAt(t, t.TempDir(), Options{Store: s, packBytes: 1_000_000})
	dead := noise(1, 300_000)
	_, err := put(t, a, "w", "old", dead, noise(2, 200_000), noise(3, 90_000))
	ok(t, err)
	_, err = put(t, a, "w", "live", noise(3, 90_000))
	ok(t, err)
	ok(t, a.Remove(lazy, "w", "old"))
	return a, s, dead
}

// Changes of spaces continue while a collection waits for any request to the
// store, and the chunks that they need are not removed.
func TestCollectDoesNotBlockChanges(t *testing.T) {
	for _, at := range []string{"list pack/", "list space/", "list manifest/", "get pack/", "put pack/", "delete pack/"} {
		t.Run(strings.ReplaceAll(at, "/", ""), func(t *testing.T) {
			a, s, dead := halfGarbage(t)
			reached, goOn := make(chan struct{}), make(chan struct{})
			waited := false
			s.SetHook(func(call, name string) Failure { // one at a time until it waits
				if !waited && strings.HasPrefix(call+" "+name, at) {
					waited = true
					close(reached)
					<-goOn
				}
				return Failure{}
			})
			collected := make(chan error, 1)
			go func() { _, err := a.Collect(lazy, time.Now().Add(time.Hour)); collected <- err }()
			<-reached
			s.SetHook(nil)
			changed := make(chan error, 1)
			go func() {
				_, err := put(t, a, "w", "again", dead) // what was garbage is needed once more
				if err == nil {
					err = a.Fork(lazy, "w", "fork")
				}
				changed <- errors.Join(err, a.Remove(lazy, "w", "live"))
			}()
			select {
			case err := <-changed:
				ok(t, err)
			case <-time.After(10 * time.Minute):
				t.Error("a change waits for the collection")
			}
			close(goOn)
			ok(t, <-collected)
			holds(t, a, "w", "again", dead)
			holds(t, a, "fork", "again", dead)
			holds(t, a, "fork", "live", noise(3, 90_000))
			_, err := a.Collect(lazy, time.Now().Add(time.Hour))
			ok(t, err)
			clean(t, a)
			ok(t, a.rebuild(lazy))
			holds(t, a, "fork", "again", dead)
			clean(t, a)
			ok(t, a.Close())
		})
	}
}

// A change that fails after the store has it may have taken effect: a
// collection that listed the store before removes nothing that it refers to.
func TestCollectAfterTornChange(t *testing.T) {
	broken := errors.New("planned")
	torn := false
	s := &Fault{Under: &Memory{}}
	dir := t.TempDir()
	a := openAt(t, dir, Options{Store: s, packBytes: 1_000_000, Fail: func(point string) error {
		if torn && point == "index.commit" {
			return broken
		}
		return nil
	}})
	dead := noise(1, 300_000)
	_, err := put(t, a, "w", "old", dead)
	ok(t, err)
	_, err = put(t, a, "w", "live", noise(2, 1000))
	ok(t, err)
	ok(t, a.Remove(lazy, "w", "old"))
	looked := false
	s.SetHook(func(call, name string) Failure {
		if !looked && call == "list" && name == manifestPrefix { // the last thing that reconcile asks for
			looked, torn = true, true
			if _, err := put(t, a, "w", "again", dead); !errors.Is(err, broken) {
				t.Error(err)
			}
			torn = false
		}
		return Failure{}
	})
	_, err = a.Collect(lazy, time.Now().Add(time.Hour))
	ok(t, err)
	ok(t, a.Close())
	ok(t, os.Remove(dir+"/"+indexFile))
	a = openAt(t, dir, Options{Store: s})
	holds(t, a, "w", "again", dead) // the store's newest version names it
	clean(t, a)
	ok(t, a.Close())
}

// A damaged object loses only its own content: the index is rebuilt without it,
// and nothing is collected while it is unreadable.
func TestRebuildWithDamagedObject(t *testing.T) {
	for _, prefix := range []string{manifestPrefix, spacePrefix + "hurt/"} {
		s := &Memory{}
		a := openAt(t, t.TempDir(), Options{Store: s})
		_, err := put(t, a, "hurt", "part", noise(1, 50_000))
		ok(t, err)
		name := objects(t, s, prefix)[0]
		_, err = put(t, a, "well", "part", noise(2, 50_000))
		ok(t, err)
		b := make([]byte, 30)
		ok(t, s.Get(lazy, name, b, 0))
		ok(t, s.Delete(lazy, name))
		ok(t, s.Put(lazy, name, b))
		ok(t, a.Close())
		a = openAt(t, t.TempDir(), Options{Store: s})
		holds(t, a, "well", "part", noise(2, 50_000))
		wantCode(t, a.ReadAt(lazy, "hurt", "part", make([]byte, 10), 0), holt.NotFound)
		before := len(objects(t, s, ""))
		for range 2 {
			_, err = a.Collect(lazy, time.Now().Add(time.Hour))
			wantCode(t, err, holt.Corrupt)
		}
		if after := len(objects(t, s, "")); after != before {
			t.Errorf("%d objects of %d are left", after, before)
		}
		ok(t, a.Close())
	}
}
