package daemon_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
	"holt/internal/store/parcel"
)

// parcelOf packs a directory with the given files.
func parcelOf(t *testing.T, files map[string]string) *bytes.Buffer {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	w, err := parcel.NewWriter(&out, parcel.Totals{})
	if err == nil {
		_, err = parcel.Pack(t.Context(), dir, w, parcel.Options{})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

// beside changes a workspace through the API under a mount whose kernel has
// seen it, and looks through the mount with the given eyes.
func beside(t *testing.T, d *daemon.Daemon, ref string, see func(name string) string) {
	ctx, files, spaces := t.Context(), d.Workspaces().Files(), d.Workspaces()
	write := func(name, content string) {
		t.Helper()
		if _, err := files.Write(ctx, ref, name, holt.WriteSpec{Parents: true}, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name, content string) {
		t.Helper()
		for deadline := time.Now().Add(patience); see(name) != content; { // a guest is told, and goes on meanwhile
			if time.Now().After(deadline) {
				t.Fatalf("%s holds %q, want %q", name, see(name), content)
			}
		}
	}
	write("/old", "old")
	write("/dir/kept", "kept")
	want("old", "old")
	want("dir/kept", "kept")
	want("dir/absent", "")
	want("new/deep/file", "")
	write("/old", "newer")
	want("old", "newer")
	if _, err := spaces.Import(ctx, ref, holt.ImportSpec{Path: "/"}, parcelOf(t, map[string]string{
		"old": "imported", "dir/absent": "here now", "new/deep/file": "deep"})); err != nil {
		t.Fatal(err)
	}
	want("old", "imported")
	want("dir/absent", "here now")
	want("dir/kept", "kept")
	want("new/deep/file", "deep")
	if err := files.Remove(ctx, ref, "/new", true, ""); err != nil {
		t.Fatal(err)
	}
	want("new/deep/file", "")
	if err := files.Rename(ctx, ref, holt.RenameSpec{From: "/dir", To: "/moved"}, ""); err != nil {
		t.Fatal(err)
	}
	want("moved/absent", "here now")
	want("dir/absent", "")
	var sent bytes.Buffer
	if err := spaces.Export(ctx, ref, holt.ExportSpec{Path: "/moved"}, &sent); err != nil {
		t.Fatal(err)
	}
	r, err := parcel.NewReader(&sent)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := parcel.Unpack(context.Background(), r, t.TempDir(), parcel.Options{}); err != nil || report.Entries != 3 {
		t.Errorf("exported %+v, %v", report, err)
	}
	if report, err := spaces.Check(ctx, ref); err != nil || len(report.Problems) > 0 {
		t.Errorf("%+v %v", report, err)
	}
}

// TestBesideHostMount: what the API changes is seen through a host mount.
func TestBesideHostMount(t *testing.T) {
	at := t.TempDir() // goes after the daemon, and with it the mount, has ended
	d := up(t, config(t, home(t)))
	if _, err := d.Workspaces().Create(t.Context(), holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Workspaces().Mount(t.Context(), "notes", holt.MountSpec{Dir: at}, ""); err != nil {
		t.Fatal(err)
	}
	beside(t, d, "notes", func(name string) string {
		text, _ := cat(filepath.Join(at, name))
		return text
	})
}

// TestBesideComputer: and through a computer, which also sees what is written
// as its own guest's doing.
func TestBesideComputer(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	beside(t, d, "curie", func(name string) string { return succeeds(t, d, "curie", "cat "+name+" 2>/dev/null || true") })
}

// TestQuotaInComputer: programs get EDQUOT, df shows the quota, and the API
// says what to do.
func TestQuotaInComputer(t *testing.T) {
	d := up(t, config(t, home(t)))
	ctx := t.Context()
	if _, err := d.Workspaces().Create(ctx, holt.WorkspaceSpec{Name: "small", Quota: holt.Quota{Bytes: 8 << 20}}, ""); err != nil {
		t.Fatal(err)
	}
	create(t, d, holt.ComputerSpec{Name: "curie", Workspace: "small"})
	if out := succeeds(t, d, "curie", "df -B1M --output=size . | tail -1; (head -c 9000000 /dev/zero > big) 2>&1 || true; rm big; echo ok > small; cat small"); !strings.Contains(out, "quota") || !strings.HasPrefix(strings.TrimSpace(out), "8\n") || !strings.HasSuffix(out, "ok\n") {
		t.Errorf("%q", out)
	}
	w, err := d.Workspaces().SetQuota(ctx, "small", holt.Quota{})
	if err != nil || w.Quota != (holt.Quota{}) {
		t.Fatal(w, err)
	}
	succeeds(t, d, "curie", "head -c 9000000 /dev/zero > big && rm big")
	if _, err := d.Workspaces().SetQuota(ctx, "small", holt.Quota{Bytes: -1}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Error(err)
	}
}
