package workspace

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"holt"
)

func TestQuotaBytes(t *testing.T) {
	f := newFixture(t, Options{Quota: holt.Quota{Bytes: 64 << 10}})
	a, err := f.t.Create(f.c, Root, "a", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	write := func(off int64, n int, want error) {
		t.Helper()
		if _, err := f.t.Write(f.c, a.Ino, off, make([]byte, n)); err != want {
			t.Errorf("write %d bytes at %d: %v, want %v", n, off, err, want)
		}
	}
	write(1<<40, 60<<10, nil) // the hole before it is free
	write(0, 4<<10, nil)
	write(8<<10, 1, syscall.EDQUOT)
	write(1<<40+100, 60<<10-100, nil) // over what is there
	write(1<<40+100, 60<<10, syscall.EDQUOT)
	s, err := f.t.StatFS()
	if err != nil || s.Blocks != 16 || s.BlocksFree != 0 {
		t.Errorf("statfs %+v, %v", s, err)
	}
	b, err := f.t.Create(f.c, Root, "b", 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.t.CopyRange(f.c, a.Ino, 0, b.Ino, 0, 4096); err != syscall.EDQUOT {
		t.Errorf("a shared copy: %v", err)
	}
	if n, err := f.t.CopyRange(f.c, a.Ino, 8<<10, b.Ino, 0, 4096); err != nil || n != 4096 {
		t.Errorf("a copied hole: %d, %v", n, err)
	}
	// Less may be given than there is; then nothing grows until enough is gone.
	f.w.SetQuota(holt.Quota{Bytes: 8 << 10})
	write(0, 4<<10, nil)
	write(8<<10, 1, syscall.EDQUOT)
	if _, err := f.t.SetAttr(f.c, a.Ino, SetAttrs{Mask: SetSize, Size: 4 << 10}); err != nil {
		t.Fatal(err)
	}
	write(4<<10, 4<<10, nil)
	write(8<<10, 1, syscall.EDQUOT)
	f.w.SetQuota(holt.Quota{})
	write(8<<10, 1<<20, nil)
	if s, _ := f.t.StatFS(); s.Blocks != pebibyte/4096 {
		t.Errorf("without a quota: %+v", s)
	}
}

func TestQuotaFiles(t *testing.T) {
	f := newFixture(t, Options{Quota: holt.Quota{Files: 3}})
	var err error
	for i, want := range []error{nil, nil, syscall.EDQUOT} { // the top counts
		if _, err = f.t.Create(f.c, Root, string(rune('a'+i)), 0o644); err != want {
			t.Errorf("file %d: %v, want %v", i, err, want)
		}
	}
	a, _ := f.stat("a")
	if _, err := f.t.Link(f.c, a.Ino, Root, "link"); err != nil { // a name is no file
		t.Error(err)
	}
	if s, _ := f.t.StatFS(); s.Files != 3 || s.FilesFree != 0 {
		t.Errorf("statfs %+v", s)
	}
	if err := f.t.Unlink(f.c, Root, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.t.Mkdir(f.c, Root, "d", 0o755); err != nil {
		t.Error(err)
	}
	// Through paths it is a sentence with a hint, and nothing half-made stays.
	_, err = Files{Tree: f.t, Caller: f.c}.Write(context.Background(), "/d/x", holt.WriteSpec{}, bytes.NewReader([]byte("x")))
	if holt.CodeOf(err) != holt.OutOfSpace || holt.AsError(err).Hint == "" {
		t.Errorf("over the quota: %v", err)
	}
	report, err := f.bring(sample(t), ImportSpec{Path: "/d"})
	if holt.CodeOf(err) != holt.OutOfSpace || report.Entries != 2 {
		t.Errorf("import over the quota: %+v, %v", report, err)
	}
}

// Where a quota leaves no room to make one extent of many, a block of a file still
// holds a bounded number; then what is larger than a piece goes on, and all of it
// once there is room.
func TestQuotaCrowds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, quiet(Options{Quota: holt.Quota{Bytes: 32 << 10}}))
	in := f.put("f", "").Ino
	const apart = 64
	var err error
	wrote := 0
	for err == nil && wrote <= 2*mostBlockExtents {
		if _, err = f.t.Write(f.c, in, int64(wrote)*apart, []byte("x")); err == nil {
			wrote++
		}
	}
	if f.want(err, syscall.EDQUOT); wrote != mostBlockExtents {
		t.Errorf("a block got %d extents, want %d", wrote, mostBlockExtents)
	}
	const punch = FallocPunchHole | FallocKeepSize
	f.want(f.t.Fallocate(f.c, in, 0, apart, punch), syscall.EDQUOT)
	f.w.SetQuota(holt.Quota{})
	f.ok(f.t.Fallocate(f.c, in, 0, apart, punch))
	if n := f.t.inodes.m[in].file.count(); n > 3 {
		t.Errorf("%d extents", n)
	}
	f.w.SetQuota(holt.Quota{Bytes: 32 << 10})
	f.ok(f.t.Fallocate(f.c, in, 0, chunk, punch))
	_, err = f.t.Write(f.c, in, 0, []byte("x"))
	f.ok(err)
	if got := f.get("f"); got[0] != 'x' || strings.Trim(got[1:], "\x00") != "" {
		t.Error("the file holds something else")
	}
}
