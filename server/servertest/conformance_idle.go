package servertest

import (
	"strings"
	"testing"
	"time"

	"holt"
	"holt/server"
)

// testIdle: how a computer is kept awake, and what is said of that.
func testIdle(t *testing.T, n server.Nouns) {
	ctx, c := t.Context(), newComputer(t, n, "einstein")
	if c.IdleTimeout != holt.DefaultIdleTimeout {
		t.Errorf("idle timeout of a computer that was given none: %v", c.IdleTimeout)
	}
	for _, timeout := range []holt.IdleTimeout{holt.IdleTimeout(90 * time.Minute), holt.NeverIdle} {
		set, err := n.Computers.SetIdle(ctx, c.Name, holt.ComputerUpdate{IdleTimeout: timeout}, "")
		if err != nil || set.IdleTimeout != timeout {
			t.Fatal(set.IdleTimeout, err)
		}
		if got, err := n.Computers.Get(ctx, c.Name); err != nil || got.IdleTimeout != timeout {
			t.Fatal(got.IdleTimeout, err)
		}
	}
	if _, err := n.Computers.SetIdle(ctx, c.Name, holt.ComputerUpdate{}, ""); holt.CodeOf(err) != holt.InvalidArgument {
		t.Error("nothing is changed:", err)
	}
	if _, err := n.Computers.SetIdle(ctx, "nobody", holt.ComputerUpdate{IdleTimeout: holt.NeverIdle}, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
	testHolds(t, n, c)
}

func testHolds(t *testing.T, n server.Nouns, c holt.Computer) {
	ctx := t.Context()
	first, err := n.Computers.Hold(ctx, c.Name, holt.HoldSpec{Reason: "thinking"}, "hold-once")
	if err != nil || first.ExpiresAt.Sub(first.CreatedAt) != 30*time.Minute || first.ComputerID != c.ID {
		t.Fatal(first, err)
	}
	again, err := n.Computers.Hold(ctx, c.Name, holt.HoldSpec{Reason: "thinking"}, "hold-once")
	if err != nil || again.ID != first.ID {
		t.Fatal("the same call again:", again, err)
	}
	second, err := n.Computers.Hold(ctx, c.Name, holt.HoldSpec{Reason: "a build elsewhere", ForMS: 3600_000}, "")
	if err != nil || second.ExpiresAt.Sub(second.CreatedAt) != time.Hour {
		t.Fatal(second, err)
	}
	holds, err := n.Computers.Holds(ctx, c.Name)
	if err != nil || len(holds) != 2 {
		t.Fatal(holds, err)
	}
	a, err := n.Computers.Awake(ctx, c.Name)
	if err != nil || a.ComputerID != c.ID || a.IdleTimeout != holt.NeverIdle || a.PausesAt != nil {
		t.Fatal(a, err)
	}
	var reasons []string
	for _, u := range a.Uses {
		if u.Kind == holt.UseHold && u.Until != nil {
			reasons = append(reasons, u.Detail)
		}
	}
	if strings.Join(reasons, ",") != "thinking,a build elsewhere" {
		t.Errorf("it is awake for %v", a.Uses)
	}
	for range 2 {
		if err := n.Computers.Release(ctx, c.Name, first.ID, "release-once"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Computers.Release(ctx, c.Name, first.ID, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error("what was released:", err)
	}
	for _, bad := range []holt.HoldSpec{{}, {Reason: "x", ForMS: 8 * 24 * 3600_000}} {
		if _, err := n.Computers.Hold(ctx, c.Name, bad, ""); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
