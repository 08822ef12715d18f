package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/client"
	"holt/internal/daemon"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// TestAnotherTenantIsNotThere walks every route of the API with a token of another tenant, and with every
// id and name of real things: each answer is, byte by byte, the one about things that do not exist.
func TestAnotherTenantIsNotThere(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	owner, intruder := d.token("team-a", "owner"), d.token("team-b", "intruder")
	ids, names := belongings(t, d.client(t, owner), "curie")
	noIDs, noNames := absent("nobody")
	told := 0
	for _, r := range d.all {
		if !strings.Contains(r.path, "{") && !strings.Contains(bodies[r.id], "$") && !slices.Contains(r.query, "from") {
			continue // lists, and what makes things: below
		}
		for _, pair := range [][2]vars{{ids, noIDs}, {names, noNames}} {
			d.alike(r, bodies[r.id], pair[0], pair[1], intruder)
			told++
		}
	}
	if told < 150 {
		t.Errorf("only %d routes were tried", told)
	}
	for _, r := range d.all {
		if r.method != "GET" || strings.Contains(r.path, "{") || r.id == "diffComputers" {
			continue
		}
		_, body := d.call(r, ids, intruder, "")
		if r.id == "listAudit" { // has the names that the intruder asked for
			if strings.Contains(body, `"team-a"`) || !strings.Contains(body, `"team-b"`) {
				t.Errorf("the audit log of another tenant: %s", body)
			}
			continue
		}
		for _, v := range []vars{ids, names} {
			for what, value := range v {
				if len(value) > 4 && strings.Contains(body, value) {
					t.Errorf("%s shows another tenant's %s: %s", r.id, what, body)
				}
			}
		}
		if _, body := d.call(r, ids, owner, ""); r.id == "listComputers" && !strings.Contains(body, ids["computer"]) {
			t.Errorf("its own tenant does not see it: %s", body)
		}
	}
	// What was taken aim at is as it was.
	c := d.client(t, owner)
	d.alike(d.route("createJob"), `{"inputs":"$inputs","run":{"command":"true"}}`, ids, noIDs, intruder)
	d.alike(d.route("createJob"), `{"secrets_of":"$computer","run":{"command":"true"}}`, names, noNames, intruder)
	d.alike(d.route("createComputer"), `{"name":"mine","secrets_of":"$computer"}`, ids, noIDs, intruder)
	job, err := c.Jobs.Create(t.Context(), holt.JobSpec{Inputs: holt.JobInputsID(ids["inputs"]), Run: holt.RunSpec{Command: "cat sent"}}, "")
	if err != nil {
		t.Fatal("its own inputs: ", err)
	}
	if err := c.Jobs.Follow(t.Context(), job.ID, 0, func(holt.RunEvent) error { return nil }); err != nil {
		t.Error(err)
	}
	if job, err = c.Jobs.Get(t.Context(), job.ID); err != nil || job.State != holt.JobDone {
		t.Errorf("%+v %v", job, err)
	}
	if got, err := c.Computers.Get(t.Context(), "curie"); err != nil || got.State != holt.ComputerRunning || string(got.ID) != ids["computer"] {
		t.Error(got, err)
	}
	if all, err := c.Tokens.List(t.Context()); err != nil || len(all) != 2 {
		t.Error(all, err)
	}
}

// alike calls a route about things of another tenant, and about others that are nowhere: the answers are the same.
func (d *door) alike(r route, body string, there, nowhere vars, intruder string) {
	d.t.Helper()
	usual := bodies[r.id]
	bodies[r.id] = body
	defer func() { bodies[r.id] = usual }()
	status, said := d.call(r, there, intruder, "")
	none, gone := d.call(r, nowhere, intruder, "")
	if status != none || there.out(said) != nowhere.out(gone) {
		d.t.Errorf("%s tells what there is: %d %s\nof what there is not: %d %s", r.id, status, said, none, gone)
	}
	if status < 400 && r.id != "dropJobInputs" {
		d.t.Errorf("%s of another's things: %d %s", r.id, status, said)
	}
}

// route is the one of that name.
func (d *door) route(id string) route {
	d.t.Helper()
	i := slices.IndexFunc(d.all, func(r route) bool { return r.id == id })
	if i < 0 {
		d.t.Fatalf("no route %s", id)
	}
	return d.all[i]
}

// TestAnotherTenantsSnapshotsAreNotThere is [TestAnotherTenantIsNotThere] of what only real machines have: snapshots and services.
func TestAnotherTenantsSnapshotsAreNotThere(t *testing.T) {
	dir := vmHome(t)
	cfg := config(t, dir)
	cfg.Engine, cfg.Sandbox, cfg.ImageDir = daemon.EngineGVisor, machinetest.Holt(t), machinetest.Images(t)
	cfg.Network = []string{"/proc/self/exe", asNetwork}
	d := doorOf(t, up(t, cfg))
	ctx := t.Context()
	owner, intruder := d.token("team-a", "owner"), d.token("team-b", "intruder")
	c := d.client(t, owner)
	made, err := c.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 512}, "")
	var snapshot holt.Snapshot
	if err == nil {
		_, err = c.Services.Add(ctx, "curie", holt.ServiceSpec{Name: "web", Command: "exec sleep inf"}, "")
	}
	if err == nil {
		snapshot, err = c.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{Name: "before"}, "")
	}
	if err == nil {
		_, err = d.client(t, intruder).Computers.Create(ctx, holt.ComputerSpec{Name: "own", MemoryMB: 512}, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	is := []vars{
		{"computer": string(made.ID), "snapshot": string(snapshot.ID), "service": "web", "named": "before"},
		{"computer": "curie", "snapshot": string(snapshot.ID), "service": "web", "named": "before"},
	}
	isnt := []vars{
		{"computer": string(holt.NewComputerID()), "snapshot": string(holt.NewSnapshotID()), "service": "web", "named": "before"},
		{"computer": "nobody", "snapshot": string(holt.NewSnapshotID()), "service": "web", "named": "before"},
	}
	told := 0
	for i := range is {
		for _, r := range d.all {
			if strings.Contains(r.path, "{snapshot}") || strings.Contains(r.path, "/services") {
				d.alike(r, bodies[r.id], is[i], isnt[i], intruder)
				told++
			}
		}
		fork, diff := d.route("forkComputer"), d.route("diffComputers")
		fork.path = strings.Replace(fork.path, "{computer}", "own", 1)
		for _, at := range []string{"$snapshot", "$computer@$named", "$computer@$snapshot"} {
			d.alike(fork, `{"at":"`+at+`"}`, is[i], isnt[i], intruder)
		}
		for _, v := range []vars{is[i], isnt[i]} {
			v["plain"], v["computer"] = v["computer"], v["computer"]+"@before"
		}
		d.alike(diff, "", is[i], isnt[i], intruder)
	}
	if told < 20 {
		t.Errorf("only %d routes were tried", told)
	}
	if all, err := d.client(t, intruder).Snapshots.List(ctx, ""); err != nil || len(all) > 0 {
		t.Error(all, err)
	}
	if got, err := c.Snapshots.Get(ctx, string(snapshot.ID)); err != nil || got.Name != "before" {
		t.Error(got, err)
	}
	if s, err := c.Services.Get(ctx, "curie", "web"); err != nil || !s.Wanted {
		t.Error(s, err)
	}
	for _, name := range []string{"curie", "own"} {
		owns := c
		if name == "own" {
			owns = d.client(t, intruder)
		}
		if _, err := owns.Computers.Delete(ctx, name, ""); err != nil {
			t.Error(err)
		}
	}
}

// TestAnotherTenantsSecretsAreNotThere is [TestAnotherTenantIsNotThere] of what only computers with networks of their own
// have. Its computer is stopped, so it needs none of them.
func TestAnotherTenantsSecretsAreNotThere(t *testing.T) {
	cfg := dozes(t, home(t))
	cfg.Network = []string{"/bin/false"} // which nobody starts
	wrap := cfg.Wrap
	var engine *dozing
	cfg.Wrap = func(e machine.Engine) machine.Engine {
		engine = wrap(e).(*dozing)
		return engine
	}
	d := doorOf(t, up(t, cfg))
	owner, intruder := d.token("team-a", "owner"), d.token("team-b", "intruder")
	c := d.client(t, owner)
	ctx := t.Context()
	made, err := c.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Computers.Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	engine.networks.Store(true)
	defer engine.networks.Store(false)
	if _, err := c.Secrets.Set(ctx, "curie", "KEY", holt.HostSecret{Host: "a.example", Value: "hunter2"}); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, r := range d.all {
		if !strings.Contains(r.path, "{secret}") && !strings.HasSuffix(r.path, "/secrets") && !strings.HasSuffix(r.path, "/network") {
			continue
		}
		for _, there := range []string{string(made.ID), "curie"} {
			is, isnt := vars{"computer": there, "secret": "KEY"}, vars{"computer": "nobody", "secret": "KEY"}
			if there != "curie" {
				isnt["computer"] = string(holt.NewComputerID())
			}
			status, body := d.call(r, is, intruder, "")
			none, gone := d.call(r, isnt, intruder, "")
			if status != 404 || none != 404 || is.out(body) != isnt.out(gone) {
				t.Errorf("%s tells what there is: %d %s\nof what there is not: %d %s", r.id, status, body, none, gone)
			}
			told++
		}
	}
	if told < 8 {
		t.Errorf("only %d calls were made", told)
	}
	if all, err := c.Secrets.List(ctx, "curie"); err != nil || len(all) != 1 || all[0].Host != "a.example" {
		t.Error(all, err)
	}
}

// TestNamesAreATenants: two tenants have things of the same names, and each its own.
func TestNamesAreATenants(t *testing.T) {
	d := doorOf(t, up(t, config(t, home(t))))
	a, b := d.client(t, d.token("team-a", "a")), d.client(t, d.token("team-b", "b"))
	ofA, _ := belongings(t, a, "einstein")
	ofB, _ := belongings(t, b, "einstein")
	ctx := t.Context()
	for _, one := range []struct {
		c    *client.Client
		want vars
	}{{a, ofA}, {b, ofB}} {
		got, err := one.c.Computers.Get(ctx, "einstein")
		if err != nil || string(got.ID) != one.want["computer"] {
			t.Error(got.ID, err)
		}
		var out strings.Builder
		if err := one.c.WorkspaceFiles.Read(ctx, "einstein", "/reports/a", 0, -1, &out); err != nil || out.String() != "of einstein" {
			t.Error(out.String(), err)
		}
		if all, err := one.c.Schedules.List(ctx, ""); err != nil || len(all) != 1 || string(all[0].ID) != one.want["schedule"] {
			t.Error(all, err)
		}
		if all, err := one.c.Runs.List(ctx, "", "", 10); err != nil || len(all) == 0 || string(all[0].ComputerID) != one.want["computer"] {
			t.Error(all, err)
		}
	}
	// The same key of another tenant is another key.
	one, err := a.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, "same")
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, "same")
	if err != nil || one.ID == two.ID {
		t.Errorf("%s got %s's answer: %v", two.ID, one.ID, err)
	}
	if _, err := a.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, ""); holt.CodeOf(err) != holt.AlreadyExists {
		t.Error("a name twice in one tenant:", err)
	}
	if _, err := b.Workspaces.Merge(ctx, "data", holt.MergeSpec{From: string(one.ID)}, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error("a merge across tenants:", err)
	}
	if _, err := b.Workspaces.Fork(ctx, string(one.ID), holt.ForkSpec{Name: "stolen"}, ""); holt.CodeOf(err) != holt.NotFound {
		t.Error("a fork across tenants:", err)
	}
	// An admin sees a tenant by saying so, and nobody else.
	admin, err := client.New(client.Options{Host: d.base, Token: d.token("default", "root", "admin"), Tenant: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if got, err := admin.Computers.Get(ctx, "einstein"); err != nil || string(got.ID) != ofA["computer"] {
		t.Error(got.ID, err)
	}
	sly, err := client.New(client.Options{Host: d.base, Token: d.token("team-b", "sly"), Tenant: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	defer sly.Close()
	if _, err := sly.Computers.Get(ctx, "einstein"); holt.CodeOf(err) != holt.Forbidden {
		t.Error("a token of another tenant:", err)
	}
}
