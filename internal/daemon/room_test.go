package daemon_test

import (
	"strings"
	"testing"

	"holt"
)

// TestHostMemory: a host that has no memory for a computer refuses to make, start and wake it, and keeps nothing of it.
func TestHostMemory(t *testing.T) {
	cfg := config(t, home(t))
	cfg.HostMemory = func() (int64, int64) { return 4096 << 20, 3000 << 20 }
	n := up(t, cfg).Nouns()
	ctx := t.Context()
	create := func(name string) error {
		_, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: name, MemoryMB: 1024}, "")
		return err
	}
	lacks := func(err error) {
		t.Helper()
		if full, ok := holt.LacksMemory(err); !ok || full.AskedMB != 1024 || holt.CodeOf(err) != holt.TooMany || holt.AsError(err).Hint == "" {
			t.Errorf("%+v", holt.AsError(err))
		}
	}
	if err := create("einstein"); err != nil {
		t.Fatal(err)
	}
	if err := create("bohr"); err != nil {
		t.Fatal(err)
	}
	lacks(create("curie"))
	if all, err := n.Workspaces.List(ctx); err != nil || len(all) != 2 {
		t.Errorf("%+v %v", all, err)
	}
	if _, err := n.Computers.Stop(ctx, "bohr", ""); err != nil {
		t.Fatal(err)
	}
	if err := create("curie"); err != nil {
		t.Fatal(err)
	}
	_, err := n.Computers.Start(ctx, "bohr", "")
	lacks(err)
	_, err = n.Runs.Start(ctx, "bohr", holt.RunSpec{Command: "true"}, "")
	lacks(err)
	if c, err := n.Computers.Get(ctx, "bohr"); err != nil || c.State != holt.ComputerStopped || c.Reason != "" {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := n.Computers.Delete(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Computers.Start(ctx, "bohr", ""); err != nil {
		t.Error(err)
	}
}

// TestWorkspaceSize: a computer's workspace has a bound if one is asked for or a limit counts disks, which programs meet as a full disk, and of which the daemon
// says what raises it.
func TestWorkspaceSize(t *testing.T) {
	n := up(t, config(t, home(t))).Nouns()
	ctx := t.Context()
	c, err := n.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein"}, "")
	if err != nil || c.WorkspaceSizeMB != 0 {
		t.Fatalf("%+v %v", c, err)
	}
	if c, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr", WorkspaceSizeMB: 1}, ""); err != nil || c.WorkspaceSizeMB != 1 {
		t.Fatalf("%+v %v", c, err)
	}
	write := func() error {
		_, err := n.Files.Write(ctx, "bohr", "/home/agent/much", holt.WriteSpec{}, strings.NewReader(strings.Repeat("much\n", 1<<19)))
		return err
	}
	if err := write(); holt.CodeOf(err) != holt.OutOfSpace || !strings.Contains(holt.AsError(err).Hint, "holt workspace quota bohr --max-bytes") {
		t.Errorf("%+v", holt.AsError(err))
	}
	most := int64(20480)
	if _, err := n.Limits.Set(ctx, holt.DefaultTenant, holt.LimitChange{MaxDiskMB: &most}, ""); err != nil {
		t.Fatal(err)
	}
	_, err = n.Workspaces.SetQuota(ctx, "bohr", holt.Quota{Bytes: 8 << 30})
	wantCode(t, err, holt.TooMany)
	_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if wantCode(t, err, holt.TooMany); !strings.Contains(err.Error(), "this needs 30720 more") { // 10240 and 20480
		t.Error(err)
	}
	if w, err := n.Workspaces.Get(ctx, "bohr"); err != nil || w.Quota.Bytes != 1<<20 || w.Quota.Files == 0 {
		t.Errorf("%+v %v", w, err)
	}
	most = 0
	if _, err := n.Limits.Set(ctx, holt.DefaultTenant, holt.LimitChange{MaxDiskMB: &most}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Workspaces.SetQuota(ctx, "bohr", holt.Quota{Bytes: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
	if c, err := n.Computers.Get(ctx, "bohr"); err != nil || c.WorkspaceSizeMB != 8 {
		t.Errorf("%+v %v", c, err)
	}
}
