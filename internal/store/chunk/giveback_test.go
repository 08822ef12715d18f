package chunk

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holt"
)

// filling makes a store full once it holds some packs, or for objects of a prefix.
func filling(s *Fault, most int, prefix string) {
	packs := 0
	s.SetHook(func(call, name string) Failure {
		if call == "put" && strings.HasPrefix(name, packPrefix) {
			packs++
		}
		full := holt.Errorf(holt.OutOfSpace, "planned")
		switch {
		case call == "put" && packs > most:
			return Failure{Err: full, Late: packs%2 == 0} // it may have happened all the same
		case call == "put" && prefix != "" && strings.HasPrefix(name, prefix):
			return Failure{Err: full}
		}
		return Failure{}
	})
}

// When the far store fills up, Abort removes the packs that were written, and
// the error is ErrFarFull.
func TestAbortFreesFullStore(t *testing.T) {
	for _, prefix := range []string{"", manifestPrefix} {
		under := &Memory{}
		far := &Fault{Under: under}
		c := openCache(t, t.TempDir(), CacheOptions{Far: far})
		a := openAt(t, t.TempDir(), Options{Store: c, packBytes: 100_000})
		before := len(objects(t, under, ""))
		if filling(far, 3, prefix); prefix != "" {
			filling(far, 30, prefix)
		}
		_, err := put(t, a, "w", "p", noise(1, 600_000))
		wantCode(t, err, holt.OutOfSpace)
		if !errors.Is(err, ErrFarFull) {
			t.Error("not told from a full local disk:", err)
		}
		if left := objects(t, under, ""); len(left) != before {
			t.Errorf("left in the store: %v", left)
		}
		far.SetHook(nil)
		_, err = put(t, a, "w", "p", noise(1, 600_000))
		ok(t, err)
		holds(t, a, "w", "p", noise(1, 600_000))
		clean(t, a)
	}
}

// If the store refuses to delete, the packs stay until a collection, which
// removes and does not adopt them. If the store has a version of the space, the
// packs that it needs stay.
func TestCollectFinishesAbort(t *testing.T) {
	s := &Fault{Under: &Memory{}}
	broken := errors.New("planned")
	s.SetHook(func(call, name string) Failure {
		if call == "delete" || strings.HasPrefix(name, manifestPrefix) && call == "put" {
			return Failure{Err: broken}
		}
		return Failure{}
	})
	a := openAt(t, t.TempDir(), Options{Store: s})
	_, err := put(t, a, "w", "p", noise(1, 90_000))
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if len(objects(t, s, packPrefix)) == 0 {
		t.Fatal("nothing was put")
	}
	s.SetHook(nil)
	_, err = a.Collect(lazy, time.Unix(0, 0)) // garbage is not of before
	ok(t, err)
	if left := objects(t, s, ""); left != nil {
		t.Fatal("left:", left)
	}
	s.SetHook(func(call, name string) Failure {
		if call == "put" && strings.HasPrefix(name, spacePrefix) {
			return Failure{Err: broken, Late: true}
		}
		return Failure{}
	})
	if _, err = put(t, a, "w", "p", noise(1, 90_000)); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	s.SetHook(nil)
	_, err = a.Collect(lazy, time.Now())
	ok(t, err)
	holds(t, a, "w", "p", noise(1, 90_000))
	clean(t, a)
}
