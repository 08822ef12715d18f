package image

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/engine/machine"
)

// leaveMachine returns a function that makes a snapshot of a machine with an initramfs.
func leaveMachine(shape holt.Shape, initrd string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		kept := filepath.Join(dir, "snapshot")
		if err := os.Mkdir(kept, 0o700); err != nil {
			return err
		}
		spec := machine.Spec{CPUs: shape.CPUs, MemoryMB: shape.MemoryMB, Initrd: initrd}
		return machine.Image{Engine: "qemu-tcg", Spec: spec, Hardware: json.RawMessage("{}")}.Write(kept, false)
	}
}

// TestReady: a list shows the shapes of the snapshots that have the present guest binary.
func TestReady(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root := strings.Repeat("a", 64)
	rec := plant(t, s, "mine", root)
	small, large := holt.Shape{CPUs: 1, MemoryMB: 512}, holt.Shape{CPUs: 2, MemoryMB: 256}
	for key, make := range map[string]func(context.Context, string) error{
		"1": leaveMachine(large, "/elsewhere/"+s.initrdName(rec)), "2": leaveMachine(small, s.initrdName(rec)), "3": leaveMachine(small, s.initrdName(rec)),
		"4": leaveMachine(holt.Shape{CPUs: 4, MemoryMB: 256}, "former.cpio"), "5": leave(t, 1),
	} {
		if _, err := s.MakeSnapshot(ctx, root, key, make); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range all {
		want := []holt.Shape{small, large}
		if im.Template != "mine" {
			want = nil
		}
		if d := cmp.Diff(want, im.Ready); d != "" {
			t.Errorf("%s is ready: %s", im.Template, d)
		}
	}
}

// TestGuestIsHashedOnce: a list hashes the guest binary, which is large, only once.
func TestGuestIsHashedOnce(t *testing.T) {
	guest := []byte("guest")
	s, err := Open(t.TempDir(), Options{GuestBinary: guest})
	if err != nil {
		t.Fatal(err)
	}
	first, other := s.initrdName(record{Kernel: "1"}), s.initrdName(record{Kernel: "2"})
	guest[0] = 'q'
	if s.initrdName(record{Kernel: "1"}) != first || other == first {
		t.Errorf("%s, %s", first, other)
	}
	if s, err = Open(t.TempDir(), Options{GuestBinary: guest}); err != nil {
		t.Fatal(err)
	}
	if s.initrdName(record{Kernel: "1"}) == first {
		t.Error("another guest has the same name")
	}
}

// TestBytesOfImage: the size of an image includes its snapshots, also in the answer of its deletion.
func TestBytesOfImage(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root := strings.Repeat("a", 64)
	rec := plant(t, s, "mine", root)
	dir, err := s.MakeSnapshot(ctx, root, "1", leave(t, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	want := rec.Bytes + allocated(filepath.Join(dir, "memory")) + allocated(filepath.Join(dir, SnapshotDisk)) + allocated(filepath.Join(dir, SnapshotRecord))
	all, err := s.List()
	if i := slices.IndexFunc(all, func(im holt.Image) bool { return im.Template == "mine" }); err != nil || i < 0 || all[i].Bytes != want || want < 1<<20 {
		t.Errorf("%+v, %v; want %d bytes", all, err, want)
	}
	if gone, err := s.Delete(ctx, root); err != nil || gone.Bytes != want {
		t.Errorf("%+v, %v; want %d bytes", gone, err, want)
	}
}

// TestKept: a list does not count as a use of a snapshot, and does not have those that are unused for long.
func TestKept(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	root := strings.Repeat("a", 64)
	plant(t, s, "mine", root)
	now := time.Now()
	for key, used := range map[string]time.Time{"1": now.Add(-2 * time.Hour), "2": now.Add(-time.Hour), "3": now.Add(-unusedSnapshot - time.Hour)} {
		dir, err := s.MakeSnapshot(ctx, root, key, leave(t, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, SnapshotRecord), used, used); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		kept, err := s.Kept()
		if err != nil || len(kept) != 2 || kept[0].Key != "2" || kept[1].Key != "1" || kept[0].Template != "mine" || kept[0].Digest != root || now.Sub(kept[0].Used).Round(time.Hour) != time.Hour {
			t.Errorf("%+v, %v", kept, err)
		}
	}
}

// TestUnbooted: an image is unbooted from its build until it is booted. Another image of the template is unbooted again.
func TestUnbooted(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	is := func(want ...string) {
		t.Helper()
		all, err := s.Unbooted()
		var got []string
		for _, u := range all {
			got = append(got, u.Template)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	is()
	first, second := strings.Repeat("a", 64), strings.Repeat("b", 64)
	plant(t, s, "mine", first)
	is("mine")
	for _, c := range []struct{ template, digest string }{{"mine", second}, {"other", first}} {
		if err := s.Booted(ctx, c.template, c.digest); err != nil {
			t.Error(err)
		}
	}
	is("mine")
	if err := s.Booted(ctx, "mine", first); err != nil {
		t.Error(err)
	}
	is()
	plant(t, s, "mine", first) // built again, from the same
	is()
	plant(t, s, "mine", second)
	is("mine")
	if im, err := s.Get(ctx, "mine"); err != nil || im.Digest != second || im.Unbooted == nil || *im.Unbooted != (holt.Shape{}) {
		t.Errorf("%s, to be booted %v, %v", im.Digest, im.Unbooted, err)
	}
	if im, err := s.Get(ctx, first); err != nil || im.Unbooted != nil {
		t.Errorf("%s, to be booted %v, %v", im.Digest, im.Unbooted, err)
	}
	large := holt.Shape{CPUs: 2, MemoryMB: 2048}
	for digest, want := range map[string]holt.Shape{first: {}, second: large} {
		if err := s.BootLater(ctx, "mine", digest, large); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Unbooted(); err != nil || len(all) != 1 || digest == second && all[0].Shape != want {
			t.Errorf("in a shape: %+v, %v", all, err)
		}
	}
	plant(t, s, "mine", second) // built again, from the same
	if im, err := s.Get(ctx, "mine"); err != nil || im.Unbooted == nil || *im.Unbooted != large {
		t.Errorf("to be booted %v, %v", im.Unbooted, err)
	}
	if err := s.Booted(ctx, "mine", second); err != nil {
		t.Error(err)
	}
	is()
	if err := s.setTemplate(ctx, "mine", second, true); err != nil { // with other kernel arguments
		t.Fatal(err)
	}
	is("mine")
}

// TestBootedDuringBuild: Booted does not wait for a build of the template.
func TestBootedDuringBuild(t *testing.T) {
	s := openStore(t)
	root := strings.Repeat("a", 64)
	plant(t, s, "mine", root)
	release, err := s.lock(t.Context(), "mine", func() {}) // as a build has
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Booted(ctx, "mine", root); err != nil {
		t.Error(err)
	}
	if left, err := s.Unbooted(); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestNotOnTheDisk: a change of a recipe that does not affect the root disk takes effect with the same root.
func TestNotOnTheDisk(t *testing.T) {
	s, recipe := openStore(t), filepath.Join(t.TempDir(), "mine.json")
	build := func(args string) Image {
		t.Helper()
		if err := os.WriteFile(recipe, []byte(`{"name": "mine", "extends": "base", "kernel_args": [`+args+`],
  "services": {"define": [{"name": "web", "command": "true", "after": ["db.socket", "off"]}], "enable": ["cron", "user@.service"], "disable": ["off"]}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := loadRecipe(recipe)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newPlan(r, s.opt, discard())
		if err != nil {
			t.Fatal(err)
		}
		digest, err := p.digest()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.record(digest); err != nil {
			plant(t, s, "mine", digest)
		}
		im, err := s.Build(t.Context(), recipe, nil)
		if err != nil {
			t.Fatal(err)
		}
		return im
	}
	first, second := build(`"a=1"`), build(`"a=1", "b=2"`)
	again, err := s.Get(t.Context(), "mine")
	if err != nil || first.Digest != second.Digest {
		t.Fatalf("other roots, or %v", err)
	}
	for _, im := range []Image{second, again} {
		if got := strings.Join(im.Args[len(im.Args)-2:], " "); got != "a=1 b=2" {
			t.Errorf("kernel arguments: %q", im.Args)
		}
		if d := cmp.Diff([]string{"web.service", "cron.service", "db.socket"}, im.Units); d != "" {
			t.Error(d)
		}
	}
}
