package daemon_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"holt"
)

// TestRepeatsAfterAKill: of each call that makes or removes something the daemon is killed when it has acted, before its answer is
// written down. Its repeat, to the next daemon, makes nothing more, and finds what was removed removed.
func TestRepeatsAfterAKill(t *testing.T) {
	dir := home(t)
	cfg := config(t, dir)
	first := open(t, cfg)
	d := doorOf(t, first)
	owner := d.token("default", "owner", "admin")
	c := d.client(t, owner)
	ids, _ := belongings(t, c, "einstein")
	ids["tenant"], ids["sshkey"] = "default", sshKey(t)
	usual := bodies["addSSHKey"]
	bodies["addSSHKey"] = `{"key":"$sshkey"}`
	defer func() { bodies["addSSHKey"] = usual }()
	if _, err := c.Files.Write(t.Context(), ids["computer"], "/reports/a", holt.WriteSpec{Parents: true}, strings.NewReader("a")); err != nil {
		t.Fatal(err)
	}
	run := int64(1000)
	if _, err := c.Computers.SetBudget(t.Context(), ids["computer"], holt.BudgetChange{RunMS: &run}, ""); err != nil {
		t.Fatal(err)
	}

	const key = "cut-"
	makes := []string{"addSSHKey", "createToken", "forkWorkspace"}
	without := []string{"deleteComputer", "deleteWorkspace", "deleteSnapshot", "deleteComputerSecret", "deleteService", "unmountWorkspace", "unlinkArtifact", "releaseJobOutputs"} // the first two have tests of their own; of the next five there is none here, and the last changes what it finds
	var calls []route
	answers := map[string]string{}
	for _, r := range d.all {
		if !r.keyed || !slices.Contains(makes, r.id) && (r.method != http.MethodDelete || slices.Contains(without, r.id)) {
			continue
		}
		status, body := d.call(r, ids, owner, key+r.id)
		if status >= 300 {
			t.Errorf("%s: %d %s", r.id, status, body)
			continue
		}
		calls, answers[r.id] = append(calls, r), body
	}
	before := d.world(route{}, ids, owner)
	if err := first.CutOff(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	d = doorOf(t, up(t, cfg))
	for _, r := range calls {
		switch status, body := d.call(r, ids, owner, key+r.id); {
		case status >= 300:
			t.Errorf("%s, repeated: %d %s", r.id, status, body)
		case r.method != http.MethodDelete && lasting(body) != lasting(answers[r.id]):
			t.Errorf("%s: the answer to a repeat is another\n%s\n%s", r.id, answers[r.id], body)
		}
	}
	if after := d.world(route{}, ids, owner); after != before {
		t.Errorf("the repeats have an effect\n%s\n%s", before, after)
	}
	if len(calls) < 14 {
		t.Errorf("only %d calls could be made", len(calls))
	}
}

// TestForksAfterAKill: a daemon is killed when it has made two of three forks. The repeat gets them, and the third of the same
// checkpoint.
func TestForksAfterAKill(t *testing.T) {
	cfg := config(t, home(t))
	d := open(t, cfg)
	ctx := t.Context()
	if _, err := d.Workspaces().Create(ctx, holt.WorkspaceSpec{Name: "data"}, ""); err != nil {
		t.Fatal(err)
	}
	spec := holt.ForkSpec{Count: 3, Name: "try"}
	first, err := d.Workspaces().Fork(ctx, "data", spec, "cut-fork")
	if err != nil || len(first.Workspaces) != 3 {
		t.Fatal(first, err)
	}
	if err := d.Workspaces().Delete(ctx, "try-3", ""); err != nil { // as if it had not got that far
		t.Fatal(err)
	}
	if _, err := d.Workspaces().Files().Write(ctx, "data", "/later", holt.WriteSpec{}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // this daemon, and the one after it
		if err := d.CutOff(ctx, "cut-"); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = open(t, cfg)
		again, err := d.Workspaces().Fork(ctx, "data", spec, "cut-fork")
		if err != nil || len(again.Workspaces) != 3 {
			t.Fatalf("%+v %v", again, err)
		}
		for i, one := range again.Workspaces {
			was := first.Workspaces[i]
			if one.Name != was.Name || one.Error != nil || i < 2 && one.Workspace.ID != was.Workspace.ID || one.Workspace.Parent.Checkpoint != was.Workspace.Parent.Checkpoint {
				t.Errorf("%d: %+v, was %+v", i, one, was)
			}
		}
		if all, err := d.Workspaces().List(ctx); err != nil || len(all) != 4 {
			t.Errorf("%d workspaces: %v", len(all), err)
		}
	}
	down(t, d)
}
