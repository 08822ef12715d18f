package event

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"holt"
)

var errEnough = errors.New("enough")

// take returns the first n events that a follower gets.
func take(t *testing.T, f *Feed, ctx context.Context, q holt.EventQuery, n int) (all []holt.Event) {
	t.Helper()
	err := f.Follow(ctx, q, func(e holt.Event) error {
		if all = append(all, e); len(all) == n {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	return all
}

func add(f *Feed, tenant string, n int) {
	for i := range n {
		f.Add(holt.Event{Kind: holt.EventComputerState, Tenant: tenant, Name: fmt.Sprint(i)})
	}
}

// TestReset: a follower that continues from an event that is not kept, or that never existed, gets a reset.
func TestReset(t *testing.T) {
	f := Feed{Kept: 10}
	add(&f, "default", 25)
	for after, kind := range map[string]holt.EventKind{"0": holt.EventReset, "14": holt.EventReset, "15": holt.EventReady, "25": holt.EventReady, "26": holt.EventReset} {
		if got := take(t, &f, t.Context(), holt.EventQuery{After: after, Follow: true}, 1)[0]; got.Kind != kind {
			t.Errorf("after %s: %+v, want %s", after, got, kind)
		}
	}
	if all := take(t, &f, t.Context(), holt.EventQuery{}, 100); len(all) != 11 || all[1].ID != "16" || all[10].ID != "25" {
		t.Errorf("kept: %+v", all)
	}
}

// TestSlowFollower: a follower that is too slow does not block writers, and gets a reset.
func TestSlowFollower(t *testing.T) {
	f := Feed{Kept: 10}
	add(&f, "default", 5)
	resets := 0
	var last string
	err := f.Follow(t.Context(), holt.EventQuery{After: "0", Follow: true}, func(e holt.Event) error {
		if e.ID == "1" {
			add(&f, "default", 1000) // while the follower is busy
		}
		if e.Kind == holt.EventReset {
			resets++
			add(&f, "default", 1)
		}
		if last = e.ID; e.ID == "1006" {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || resets != 1 || last != "1006" {
		t.Errorf("%v, %d resets, last %s", err, resets, last)
	}
}

// TestTenants: a caller sees the events of its tenant, the daemon those of all.
func TestTenants(t *testing.T) {
	var f Feed
	add(&f, "a", 3)
	add(&f, "b", 2)
	f.Add(holt.Event{Kind: holt.EventSnapshotDeleted}) // its tenant is unknown
	for tenant, want := range map[string]int{"a": 3, "b": 2, "c": 0} {
		ctx := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant})
		if all := take(t, &f, ctx, holt.EventQuery{}, 100); len(all) != want+1 {
			t.Errorf("tenant %q sees %+v", tenant, all)
		}
	}
	if all := take(t, &f, t.Context(), holt.EventQuery{}, 100); len(all) != 7 {
		t.Errorf("the daemon sees %+v", all)
	}
}

// TestManyFollowers: each follower gets each event once and in order.
func TestManyFollowers(t *testing.T) {
	var f Feed
	const each = 300
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			next := 0
			err := f.Follow(t.Context(), holt.EventQuery{After: "0", Follow: true}, func(e holt.Event) error {
				if e.ID != fmt.Sprint(next) {
					t.Errorf("%s after %d", e.ID, next-1)
				}
				if next++; next > each {
					return errEnough
				}
				return nil
			})
			if !errors.Is(err, errEnough) {
				t.Error(err)
			}
		})
	}
	for range 3 {
		wg.Go(func() { add(&f, "default", each/3) })
	}
	wg.Wait()
}
