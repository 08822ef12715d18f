package db

import (
	"context"
	"testing"
	"testing/synctest"

	"holt"
)

// asks returns the context of a call by a tenant's token; "": by an admin's.
func asks(ctx context.Context, tenant string) context.Context {
	return holt.WithActor(ctx, holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant, Rights: holt.Rights{Admin: tenant == ""}})
}

// turnsOf returns what takes a turn, and what says that there is none.
func turnsOf(t *testing.T, all *Turns) (take func(tenant string, about ...string) func(), waits func(tenant string, about ...string)) {
	given, cancel := context.WithCancel(t.Context())
	cancel()
	take = func(tenant string, about ...string) func() {
		t.Helper()
		end, err := all.Take(asks(t.Context(), tenant), about...)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	waits = func(tenant string, about ...string) {
		t.Helper()
		if _, err := all.Take(asks(given, tenant), about...); holt.CodeOf(err) != holt.Timeout {
			t.Errorf("%v has a turn, or %v", about, err)
		}
	}
	return take, waits
}

func nothingLeft(t *testing.T, all *Turns) {
	t.Helper()
	if all.n != 0 || len(all.of) != 0 || len(all.about) != 0 || len(all.waiting) != 0 {
		t.Errorf("left: %d, %v, %v, %v", all.n, all.of, all.about, all.waiting)
	}
}

// TestTurns: queries of one object leave turns to others, and a wait ends with
// a turn or with its context.
func TestTurns(t *testing.T) {
	all := Turns{Most: 4, OfTenant: 4, OfOne: 2}
	take, waits := turnsOf(t, &all)
	first, second := take("one", "a"), take("one", "a", "a", "c")
	waits("one", "a")
	waits("one", "b", "a")
	third := take("one", "b", "c")
	waits("one", "c")
	fourth := take("one", "d")
	waits("one", "e")
	later := make(chan func())
	for range 2 {
		go func() {
			end, err := all.Take(asks(t.Context(), "one"), "a")
			if err != nil {
				t.Error(err)
			}
			later <- end
		}()
	}
	first()
	end := <-later
	waits("one", "a")
	second()
	(<-later)()
	for _, end := range []func(){end, third, fourth} {
		end()
	}
	nothingLeft(t, &all)
}

// TestTurnsOfTenants: the queries of one tenant leave turns to other tenants,
// and those of all tenants leave one to an admin.
func TestTurnsOfTenants(t *testing.T) {
	all := Turns{Most: 4, OfTenant: 2, OfOne: 2}
	take, waits := turnsOf(t, &all)
	ends := []func(){take("loud", "a"), take("loud", "b")}
	waits("loud", "c")
	ends = append(ends, take("quiet", "d"), take("third", "e"))
	waits("fourth", "f")
	ends = append(ends, take("", "g"))
	waits("", "h")
	for _, end := range ends {
		end()
	}
	nothingLeft(t, &all)
}

// TestTurnsLimitWaiting: further queries of a tenant with too many waiting are refused; those of other tenants are not.
func TestTurnsLimitWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := Turns{Most: 2, OfTenant: 1}
		take, _ := turnsOf(t, &all)
		first, other := take("loud"), take("quiet")
		wait := func(tenant string) {
			go func() {
				end, err := all.Take(asks(t.Context(), tenant))
				if err != nil {
					t.Error(tenant, err)
					return
				}
				end()
			}()
		}
		for range mostWaiting {
			wait("loud")
		}
		wait("quiet")
		synctest.Wait()
		if _, err := all.Take(asks(t.Context(), "loud")); holt.CodeOf(err) != holt.TooMany || holt.AsError(err).Hint == "" {
			t.Errorf("one more: %v", err)
		}
		other()
		synctest.Wait()
		if all.waiting["quiet"] != 0 || all.waiting["loud"] != mostWaiting {
			t.Errorf("%v wait", all.waiting)
		}
		first()
		synctest.Wait()
		nothingLeft(t, &all)
	})
}
