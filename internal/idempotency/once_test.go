package idempotency

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
)

func openKeys(t *testing.T) (*Keys, *db.DB) {
	t.Helper()
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return New(d), d
}

var errPlanned = errors.New("as planned")

// counter is a call that counts how often it acts.
func counter(key string, request any, acts *int) Call[int] {
	return Call[int]{Key: key, Method: "count", Request: request, Act: func(context.Context, *Claim) (int, error) {
		*acts++
		return *acts, nil
	}}
}

func TestOnce(t *testing.T) {
	keys, d := openKeys(t)
	acts := 0
	do := func(k *Keys, key string, request any) (int, error) {
		return Once(t.Context(), k, counter(key, request, &acts))
	}
	for _, k := range []*Keys{keys, keys, New(d)} { // the last: after a restart
		if got, err := do(k, "a", "x"); got != 1 || err != nil {
			t.Fatal(got, err)
		}
	}
	if got, err := do(keys, "b", "x"); got != 2 || err != nil {
		t.Fatal("another key:", got, err)
	}
	if _, err := do(keys, "a", "y"); holt.CodeOf(err) != holt.Conflict {
		t.Fatal("another request:", err)
	}
	if _, err := Once(t.Context(), keys, Call[int]{Key: "a", Method: "other", Request: "x"}); holt.CodeOf(err) != holt.Conflict {
		t.Fatal("another method:", err)
	}
	for range 2 {
		if _, err := do(keys, "", "x"); err != nil {
			t.Fatal(err)
		}
	}
	if acts != 4 {
		t.Fatal("calls without a key:", acts)
	}
	if _, err := do(keys, string(make([]byte, maxKey+1)), "x"); holt.CodeOf(err) != holt.InvalidArgument {
		t.Fatal("a long key:", err)
	}
}

func TestOnceAfterFailure(t *testing.T) {
	keys, _ := openKeys(t)
	fails := errors.New("no")
	call := Call[int]{Key: "k", Method: "m", Request: 1, Act: func(context.Context, *Claim) (int, error) { return 0, fails }}
	if _, err := Once(t.Context(), keys, call); !errors.Is(err, fails) {
		t.Fatal(err)
	}
	call.Act = func(context.Context, *Claim) (int, error) { return 7, nil }
	if got, err := Once(t.Context(), keys, call); got != 7 || err != nil {
		t.Fatal("the repeat of a failed call:", got, err)
	}
}

func TestOnceConcurrent(t *testing.T) {
	keys, _ := openKeys(t)
	acts := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := Once(t.Context(), keys, counter("k", 1, &acts)); got != 1 || err != nil {
				t.Error(got, err)
			}
		})
	}
	wg.Wait()
}

// unanswered leaves a key without an answer, as a daemon that is killed during the call does.
func unanswered(t *testing.T, keys *Keys, key string) {
	t.Helper()
	call := &call{method: "m", done: make(chan struct{})}
	call.hash = hashOf(t, 1)
	if _, err := keys.claim(t.Context(), key, call); err != nil {
		t.Fatal(err)
	}
}

// TestOnceRemoves: a repeat that gets NotFound succeeds if its first call may have removed the thing, and only then.
func TestOnceRemoves(t *testing.T) {
	keys, d := openKeys(t)
	for _, c := range []struct {
		key             string
		cut, removes    bool
		fails, wantCode holt.Code
	}{
		{"gone", true, true, holt.NotFound, ""},
		{"never there", false, true, holt.NotFound, holt.NotFound},
		{"no removal", true, false, holt.NotFound, holt.NotFound},
		{"in use", true, true, holt.Conflict, holt.Conflict},
	} {
		if c.cut {
			unanswered(t, keys, c.key)
		}
		call := Call[string]{Key: c.key, Method: "m", Request: 1, Removes: c.removes, Act: func(context.Context, *Claim) (string, error) {
			return "half", holt.Errorf(c.fails, "as planned")
		}}
		if got, err := Once(t.Context(), New(d), call); holt.CodeOf(err) != c.wantCode || got != "" {
			t.Errorf("%s: %q, %v", c.key, got, err)
		}
		call.Act = func(context.Context, *Claim) (string, error) { return "another", nil } // of the name
		if got, err := Once(t.Context(), New(d), call); err != nil || (got == "") != (c.wantCode == "") {
			t.Errorf("%s, once more: %q, %v", c.key, got, err)
		}
	}
}

// TestOnceRemovesLate: a repeat of a removal that fails in another way keeps the key for the next try.
func TestOnceRemovesLate(t *testing.T) {
	keys, _ := openKeys(t)
	unanswered(t, keys, "k")
	for _, code := range []holt.Code{holt.Unavailable, holt.NotFound} {
		call := Call[string]{Key: "k", Method: "m", Request: 1, Removes: true, Act: func(context.Context, *Claim) (string, error) {
			return "", holt.Errorf(code, "as planned")
		}}
		if _, err := Once(t.Context(), keys, call); (err == nil) != (code == holt.NotFound) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestOnceCutOff: the daemon ends after a call has made something and before its answer is recorded.
func TestOnceCutOff(t *testing.T) {
	keys, d := openKeys(t)
	cut := func(key string, bind bool) {
		t.Helper()
		unanswered(t, keys, key)
		if !bind {
			return
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error { return ClaimOf(key).Bind(tx, "thing") })
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := holt.Before(t.Context(), func(context.Context) error { return errPlanned }) // their first calls were asked
	call := Call[string]{Method: "m", Request: 1,
		Act: func(ctx context.Context, _ *Claim) (string, error) {
			_, err := Once(ctx, keys, counter("", 1, new(int)))
			return "made", err
		},
		Again: func(ctx context.Context, ref string) (string, error) {
			_, err := Once(ctx, keys, counter("", 1, new(int)))
			return "found " + ref, err
		},
	}
	for key, want := range map[string]string{"bound": "found thing", "free": "made"} {
		cut(key, key == "bound")
		call.Key = key
		for range 2 {
			if got, err := Once(ctx, New(d), call); got != want || err != nil {
				t.Fatal(key, got, err)
			}
		}
	}
}

// TestOnceBefore: Once asks [holt.AskBefore] also for a call that outlives its caller, but not for calls made
// within it, nor for a repeat. A refused call does nothing and frees its key.
func TestOnceBefore(t *testing.T) {
	keys, _ := openKeys(t)
	acts, asked := 0, 0
	do := func(key string, answer error) (int, error) {
		ctx := holt.Before(t.Context(), func(ctx context.Context) error {
			asked++
			_, err := holt.AskBefore(ctx)
			return errors.Join(err, answer)
		})
		call := counter(key, "x", &acts)
		act := call.Act
		call.Act = func(ctx context.Context, claim *Claim) (int, error) {
			if _, err := Once(ctx, keys, counter("", "y", new(int))); err != nil {
				return 0, err
			}
			return act(ctx, claim)
		}
		return Once(holt.ActingFor(t.Context(), ctx), keys, call)
	}
	for _, key := range []string{"", "a"} {
		if got, err := do(key, errPlanned); !errors.Is(err, errPlanned) || acts > 0 {
			t.Errorf("%q, refused: %d, %v", key, got, err)
		}
	}
	for range 2 { // the second is a repeat
		if got, err := do("a", nil); got != 1 || err != nil {
			t.Errorf("allowed: %d, %v", got, err)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

func TestOnceExpires(t *testing.T) {
	keys, d := openKeys(t)
	acts := 0
	if _, err := Once(t.Context(), keys, counter("k", 1, &acts)); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-KeyLife - time.Second).UnixNano()
	err := d.Write(t.Context(), func(tx *db.Tx) error { return tx.Exec(`UPDATE idempotency SET created = ?`, old) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Once(t.Context(), keys, counter("k", 2, &acts)); err != nil || acts != 2 {
		t.Fatal("a key older than a day:", acts, err)
	}
}

func hashOf(t *testing.T, request any) [32]byte {
	t.Helper()
	h, err := requestHash(request)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestKeysOfATenant: a tenant with too many keys, or too long answers, loses its oldest. Those of another tenant stay.
func TestKeysOfATenant(t *testing.T) {
	keys, _ := openKeys(t)
	loud := holt.WithActor(t.Context(), holt.Actor{Tenant: "loud", Token: "tok_aaaaaaaaaaaaaaaa"})
	acts := 0
	for _, one := range []struct {
		name                  string
		mostKeys, mostAnswers int
	}{{"many", 4, keptAnswers}, {"long", keptKeys, 4 * len(`"many 10"`)}} {
		keys.mostKeys, keys.mostAnswers = one.mostKeys, one.mostAnswers
		do := func(ctx context.Context, n int) (answered bool) {
			t.Helper()
			before := acts
			if _, err := Once(ctx, keys, Call[string]{Key: fmt.Sprint(one.name, n), Method: "m", Act: func(context.Context, *Claim) (string, error) {
				acts++
				return fmt.Sprint("many ", n), nil
			}}); err != nil {
				t.Fatal(err)
			}
			return acts == before
		}
		do(t.Context(), 10)
		for n := 10; n < 30; n++ {
			keys.added = trimAfterKeys - 1
			do(loud, n)
		}
		keys.mostKeys, keys.mostAnswers = keptKeys, keptAnswers // no further trim
		for n, stays := range map[int]bool{29: true, 26: true, 25: false, 10: false} {
			if do(loud, n) != stays {
				t.Errorf("%s: key %d was kept: %v", one.name, n, !stays)
			}
		}
		if !do(t.Context(), 10) {
			t.Errorf("%s: the key of another tenant was deleted", one.name)
		}
	}
}
