package servertest

import (
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
)

// testIdle: how a computer is kept awake, and what is said of that.
func testIdle(t *testing.T, n nouns.Set) {
	ctx, c := t.Context(), newComputer(t, n, "einstein")
	if c.IdleTimeout != holt.DefaultIdleTimeout {
		t.Errorf("idle timeout of a computer that was given none: %v", c.IdleTimeout)
	}
	for _, timeout := range []holt.IdleTimeout{holt.IdleTimeout(90 * time.Minute), holt.NeverIdle} {
		set, err := n.Computers.Update(ctx, c.Name, holt.ComputerUpdate{IdleTimeout: timeout}, "")
		if err != nil || set.IdleTimeout != timeout {
			t.Fatal(set.IdleTimeout, err)
		}
		if got, err := n.Computers.Get(ctx, c.Name); err != nil || got.IdleTimeout != timeout {
			t.Fatal(got.IdleTimeout, err)
		}
	}
	if _, err := n.Computers.Update(ctx, c.Name, holt.ComputerUpdate{}, ""); holt.CodeOf(err) != holt.InvalidArgument {
		t.Error("nothing is changed:", err)
	}
	if _, err := n.Computers.Update(ctx, "nobody", holt.ComputerUpdate{IdleTimeout: holt.NeverIdle}, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
	testRename(t, n, c)
	testHolds(t, n, c)
}

// testRename: ids stay, the old name is free, and a name that another has is refused.
func testRename(t *testing.T, n nouns.Set, c holt.Computer) {
	ctx := t.Context()
	newComputer(t, n, "bohr")
	for _, bad := range []struct {
		name string
		code holt.Code
	}{{"bohr", holt.AlreadyExists}, {"Not/A/Name", holt.InvalidArgument}} {
		if _, err := n.Computers.Update(ctx, c.Name, holt.ComputerUpdate{Name: bad.name}, ""); holt.CodeOf(err) != bad.code {
			t.Errorf("rename to %s: %v", bad.name, err)
		}
		if _, err := n.Workspaces.Update(ctx, c.Workspace, holt.WorkspaceUpdate{Name: bad.name}, ""); holt.CodeOf(err) != bad.code {
			t.Errorf("rename a workspace to %s: %v", bad.name, err)
		}
	}
	for range 2 { // the second is a repeat
		if got, err := n.Computers.Update(ctx, c.Name, holt.ComputerUpdate{Name: "albert"}, "rename"); err != nil || got.ID != c.ID || got.Name != "albert" || got.Workspace != c.Workspace {
			t.Errorf("renamed: %+v, %v", got, err)
		}
		if got, err := n.Workspaces.Update(ctx, c.Workspace, holt.WorkspaceUpdate{Name: "papers"}, "rename-workspace"); err != nil || got.Name != "papers" || got.Computer != "albert" {
			t.Errorf("renamed: %+v, %v", got, err)
		}
	}
	if got, err := n.Computers.Get(ctx, "albert"); err != nil || got.ID != c.ID || got.Workspace != "papers" {
		t.Errorf("by its new name: %+v, %v", got, err)
	}
	if _, err := n.Computers.Get(ctx, c.Name); holt.CodeOf(err) != holt.NotFound {
		t.Error("by its old name:", err)
	}
	if _, err := n.Workspaces.Update(ctx, "nothing", holt.WorkspaceUpdate{Name: "x"}, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
	if _, err := n.Computers.Update(ctx, "albert", holt.ComputerUpdate{Name: c.Name}, ""); err != nil { // it is free
		t.Error(err)
	}
	if _, err := n.Workspaces.Update(ctx, "papers", holt.WorkspaceUpdate{Name: c.Workspace}, ""); err != nil {
		t.Error(err)
	}
}

func testHolds(t *testing.T, n nouns.Set, c holt.Computer) {
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
