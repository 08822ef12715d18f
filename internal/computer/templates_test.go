package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/image"
)

// rooted is an engine whose machines can be kept with their disks.
type rooted struct {
	machine.Engine
	version string
}

func (rooted) Name() string { return "qemu-tcg" }

func (r rooted) Capabilities() machine.Capabilities {
	return machine.Capabilities{RootDisk: true, MemorySnapshot: true, Version: r.version}
}

// builtImages has images of the template mine, the last of which nobody has booted.
func builtImages(t *testing.T, digests ...string) *image.Store {
	t.Helper()
	dir := t.TempDir()
	images, err := image.Open(dir, image.Options{GuestBinary: []byte("guest")})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, digest := range digests {
		write("roots/"+digest+"/record.json", fmt.Sprintf(`{"template": "mine", "digest": %q}`, digest))
		write("templates/mine.json", fmt.Sprintf(`{"digest": %q, "unbooted": true}`, digest))
	}
	return images
}

// TestStaleTemplates: what was built and not booted is to be booted, and what was kept of another build or
// for another engine, once, in its shape.
func TestStaleTemplates(t *testing.T) {
	ctx := t.Context()
	old, now := strings.Repeat("a", 64), strings.Repeat("b", 64)
	images := builtImages(t, old, now)
	keep := func(digest, key string, shape holt.Shape) {
		t.Helper()
		if _, err := images.MakeSnapshot(ctx, digest, key, func(_ context.Context, dir string) error {
			kept := filepath.Join(dir, "snapshot")
			if err := os.Mkdir(kept, 0o700); err != nil {
				return err
			}
			img, err := images.Get(ctx, digest)
			if err != nil {
				return err
			}
			spec := machine.Spec{CPUs: shape.CPUs, MemoryMB: shape.MemoryMB, Initrd: img.Initrd}
			return machine.Image{Engine: "qemu-tcg", Spec: spec, Hardware: json.RawMessage("{}")}.Write(kept, false)
		}); err != nil {
			t.Fatal(err)
		}
	}
	store := newStore(ctx, Config{Engines: Engines{Default: rooted{version: "1"}}, Images: images, Log: slog.New(slog.DiscardHandler)})
	is := func(s *Store, want ...holt.Shape) (all []*staleTemplate) {
		t.Helper()
		all, err := s.Templates().stale(ctx)
		if err != nil || len(all) != len(want) {
			t.Fatalf("%+v, %v; want %v", all, err, want)
		}
		for i, one := range all {
			if got := (holt.Shape{CPUs: one.r.CPUs, MemoryMB: one.r.MemoryMB}); got != want[i] || one.img.Digest != now || !one.background {
				t.Errorf("%d is %+v of %s", i, got, one.img.Digest)
			}
		}
		return all
	}
	common, other := holt.Shape{CPUs: defaultCPUs, MemoryMB: defaultMemoryMB}, holt.Shape{CPUs: 2, MemoryMB: 512}
	is(store, common)
	later := func(shape holt.Shape) {
		t.Helper()
		if err := images.BootLater(ctx, "mine", now, shape); err != nil {
			t.Fatal(err)
		}
	}
	later(other)
	is(store, other)
	later(holt.Shape{})
	keep(old, "former", other)
	keep(old, "larger", holt.Shape{CPUs: mostCPUs + 1, MemoryMB: 512}) // than this host takes
	all := is(store, common, other)
	if time.Since(all[1].used) > time.Hour || !all[0].used.IsZero() {
		t.Errorf("used %v, %v", all[0].used, all[1].used)
	}
	keep(now, all[1].key(), other)
	is(store, common)
	keep(now, all[0].key(), common)
	is(store)
	ready := func(s *Store, want ...holt.Shape) {
		t.Helper()
		all, err := s.Templates().List(ctx)
		for _, im := range all {
			if im.Digest == now && !slices.Equal(im.Ready, want) || im.Digest != now && len(im.Ready) > 0 || err != nil {
				t.Errorf("%s is ready as %v, %v; want %v", im.Digest, im.Ready, err, want)
			}
		}
	}
	ready(store, common, other)
	ready(newStore(ctx, Config{Engines: Engines{Default: rooted{version: "2"}}, Images: images, Log: slog.New(slog.DiscardHandler)}))
	if left, err := images.Unbooted(); err != nil || len(left) > 0 {
		t.Errorf("to be booted still: %v, %v", left, err)
	}
	later(holt.Shape{CPUs: mostCPUs + 1})
	is(store)
	if left, err := images.Unbooted(); err != nil || len(left) > 0 {
		t.Errorf("to be booted, which cannot be: %v, %v", left, err)
	}
	later(common)
	is(newStore(ctx, Config{Engines: Engines{Default: rooted{version: "2"}}, Images: images, Log: slog.New(slog.DiscardHandler)}), common, other)
}
