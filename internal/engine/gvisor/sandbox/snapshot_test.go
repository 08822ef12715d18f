package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"holt"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
)

// disk writes a disk that has only a header and one byte.
func disk(t *testing.T, path string, h gvisor.DiskHeader, content byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{content}, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := h.Write(f); err != nil {
		t.Fatal(err)
	}
}

// is fails the test unless a disk has a base and a content.
func is(t *testing.T, path string, base machine.Base, content byte) {
	t.Helper()
	h, err := gvisor.ReadDiskHeader(path)
	if err != nil || h.Root != "/root.ext4" || h.Base != base {
		t.Errorf("%s: %+v (%v), want the base %+v", filepath.Base(path), h, err, base)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := b[len(b)-1]; got != content {
		t.Errorf("%s has the content %q, want %q", filepath.Base(path), got, content)
	}
}

// TestSwapKilled: after each step of a swap the disk in use, which the guest writes to again, is where
// [machine.SnapshotSpec] says that it is, over the right base; and the next snapshot is right again.
func TestSwapKilled(t *testing.T) {
	base := machine.Base{Path: "/root.ext4"}
	for done := range 4 {
		dir := t.TempDir()
		old, next, last := filepath.Join(dir, "old"), filepath.Join(dir, "next"), filepath.Join(dir, "last")
		disk(t, old, gvisor.DiskHeader{Root: base.Path, Base: base}, 'a')
		guest, err := os.OpenFile(old, os.O_WRONLY, 0) // as a loop device has it
		if err != nil {
			t.Fatal(err)
		}
		defer guest.Close()
		writes := func(content byte) {
			t.Helper()
			if _, err := guest.WriteAt([]byte{content}, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		s := &snapshot{keeper: &keeper{disk: old}, spec: machine.SnapshotSpec{Disk: next}}
		if err := s.freeze(); err != nil {
			t.Fatal(err)
		}
		steps := s.swapSteps()
		if len(steps) != 3 {
			t.Fatalf("%d steps", len(steps))
		}
		for _, step := range steps[:done] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		writes('b')
		use := old
		if _, err := os.Lstat(next); err == nil {
			use = next
		}
		if use != []string{old, old, next, next}[done] {
			t.Errorf("after %d steps the disk is %s", done, use)
		}
		under, first := base, byte('b') // of old: in use, or a second name of the disk in use
		if use == next {
			under = machine.Base{Path: old, Format: gvisor.DiskFormat}
			is(t, next, under, 'b')
		}
		if done == 3 {
			first = 'a'
		}
		is(t, old, base, first)

		again := &snapshot{keeper: &keeper{disk: use}, spec: machine.SnapshotSpec{Disk: last}}
		if err := errors.Join(again.freeze(), again.swap()); err != nil {
			t.Fatal(err)
		}
		writes('c')
		is(t, last, machine.Base{Path: use, Format: gvisor.DiskFormat}, 'c')
		is(t, use, under, 'b')
	}
}

// TestUndo: a swap is undone, whether it was complete or failed.
func TestUndo(t *testing.T) {
	base := machine.Base{Path: "/root.ext4"}
	dir := t.TempDir()
	old, next := filepath.Join(dir, "old"), filepath.Join(dir, "next")
	disk(t, old, gvisor.DiskHeader{Root: base.Path, Base: base}, 'a')
	was, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshot{keeper: &keeper{disk: old}, spec: machine.SnapshotSpec{Disk: next}}
	for name, prepare := range map[string]func() error{
		"complete":       func() error { return errors.Join(s.freeze(), s.swap()) },
		"before it":      s.freeze,
		"without a copy": func() error { return not(s.swap()) },
		"name taken":     func() error { return errors.Join(s.freeze(), os.Mkdir(next, 0o700), not(s.swap()), os.Remove(next)) },
	} {
		if err := errors.Join(prepare(), s.undo(old)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.Stat(old); err != nil || !os.SameFile(was, now) || s.disk != old {
			t.Errorf("%s: the disk is not where it was (%v)", name, err)
		}
		is(t, old, base, 'a')
		for _, path := range []string{next, s.frozen()} {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is left: %v", name, filepath.Base(path), err)
			}
		}
	}
}

// not returns an error if there is none.
func not(err error) error {
	if err == nil {
		return errors.New("it succeeded")
	}
	return nil
}

// TestOpenImage: join and openImage are inverse to each other.
func TestOpenImage(t *testing.T) {
	for _, c := range [][2]string{{"state", "table of pages"}, {"state", ""}, {"", "table"}} {
		dir, to := t.TempDir(), t.TempDir()
		want := map[string]string{checkpointfiles.StateFileName: c[0], checkpointfiles.PagesMetadataFileName: c[1], checkpointfiles.PagesFileName: "pages"}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := &snapshot{spec: machine.SnapshotSpec{Dir: dir}}
		if err := s.join(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("an image of the files %v (%v)", left, err)
		}
		if _, err := openImage(dir, to); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != text {
				t.Errorf("%s: %q (%v), want %q", name, got, err, text)
			}
		}
	}
}

func TestOpenImageCorrupt(t *testing.T) {
	for _, state := range []string{"", "1234567", "\x00\x00\x00\x00\x00\x00\x00\x01", "state\xff\xff\xff\xff\xff\xff\xff\xff", "state\x80\x00\x00\x00\x00\x00\x00\x00", "state\x00\x00\x00\x00\x00\x00\x00\x06"} {
		dir, to := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, machine.StateFile), []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openImage(dir, to); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%q: %v", state, err)
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("%q: left %v (%v)", state, left, err)
		}
	}
}
