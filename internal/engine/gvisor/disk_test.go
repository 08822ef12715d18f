package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// disks is a directory of disks over one image.
type disks struct {
	*testing.T
	Engine
	dir, root string
}

const testMB = 64

func newDisks(t *testing.T) *disks {
	d := &disks{T: t, dir: t.TempDir()}
	d.root = d.path("root.ext4")
	if err := errors.Join(os.WriteFile(d.root, nil, 0o600), os.Truncate(d.root, testMB<<20)); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *disks) path(name string) string { return filepath.Join(d.dir, name) }

// over makes a disk over another one, or over the image.
func (d *disks) over(name, base string) string {
	d.Helper()
	b := machine.Base{Path: d.root}
	if base != "" {
		b = machine.Base{Path: d.path(base), Format: DiskFormat}
	}
	if err := d.CreateDisk(d.Context(), d.path(name), b, testMB); err != nil {
		d.Fatal(err)
	}
	return d.path(name)
}

// debugfs runs a request on the file system of a disk.
func (d *disks) debugfs(disk, request string) string {
	d.Helper()
	out, err := exec.Command("debugfs", "-w", "-R", request, fmt.Sprintf("%s?offset=%d", disk, HeaderBytes)).Output()
	if err != nil {
		d.Fatalf("debugfs %s: %v", request, err)
	}
	return string(out)
}

// write writes a file to a disk.
func (d *disks) write(disk, name string) {
	d.Helper()
	text := d.path("text")
	if err := os.WriteFile(text, []byte("this is "+name), 0o600); err != nil {
		d.Fatal(err)
	}
	d.debugfs(disk, "write "+text+" "+name)
}

// check fails the test unless a disk is over base, has an intact file system and exactly these files.
func (d *disks) check(disk, base string, names ...string) {
	d.Helper()
	h, err := ReadDiskHeader(disk)
	if err != nil || h.Root != d.root || h.Base.Path != base {
		d.Errorf("%s: %+v (%v), want the root %s and the base %s", filepath.Base(disk), h, err, d.root, base)
	}
	if got, err := d.DiskBase(d.Context(), disk); err != nil || got != h.Base {
		d.Errorf("base of %s: %+v (%v)", filepath.Base(disk), got, err)
	}
	if out, err := exec.Command("e2fsck", "-fn", fmt.Sprintf("%s?offset=%d", disk, HeaderBytes)).CombinedOutput(); err != nil {
		d.Errorf("check %s: %v\n%s", filepath.Base(disk), err, out)
	}
	for _, name := range []string{"one", "two", "three"} {
		want := ""
		for _, there := range names {
			if there == name {
				want = "this is " + name
			}
		}
		if got := d.debugfs(disk, "cat "+name); got != want {
			d.Errorf("%s has %q at %s, want %q", filepath.Base(disk), got, name, want)
		}
	}
}

func (d *disks) size(disk string) (sizeMB, allocatedMB int64) {
	d.Helper()
	info, err := os.Stat(disk)
	if err != nil {
		d.Fatal(err)
	}
	return info.Size() >> 20, info.Sys().(*syscall.Stat_t).Blocks >> 11
}

func (d *disks) read(path string) []byte {
	d.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		d.Fatal(err)
	}
	return b
}

// only fails the test unless the directory has just these files.
func (d *disks) only(names ...string) {
	d.Helper()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.Fatal(err)
	}
	left := map[string]bool{}
	for _, e := range entries {
		left[e.Name()] = true
	}
	for _, name := range append(names, "root.ext4", "text") {
		if !left[name] && name != "text" {
			d.Errorf("%s is gone", name)
		}
		delete(left, name)
	}
	if len(left) > 0 {
		d.Errorf("left: %v", left)
	}
}

func TestCreateDisk(t *testing.T) {
	d := newDisks(t)
	first := d.over("first", "")
	d.write(first, "one")
	was := d.read(first)
	second := d.path("second")
	if err := d.CreateDisk(t.Context(), second, machine.Base{Path: first, Format: DiskFormat}, 2*testMB); err != nil {
		t.Fatal(err)
	}
	d.write(second, "two")
	d.check(first, d.root, "one")
	d.check(second, first, "one", "two")
	if !bytes.Equal(d.read(first), was) {
		t.Error("the disk below has changed")
	}
	for disk, want := range map[string]int64{first: testMB, second: 2 * testMB} {
		if size, used := d.size(disk); size != want || used >= testMB {
			t.Errorf("%s has %d MiB, %d allocated", filepath.Base(disk), size, used)
		}
	}
	if err := os.Remove(first); err != nil { // a disk needs no other one
		t.Fatal(err)
	}
	d.check(second, first, "one", "two")
	d.only("second")
}

func TestCreateDiskRefused(t *testing.T) {
	d := newDisks(t)
	first, absent := d.over("first", ""), d.path("absent")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		path   string
		base   machine.Base
		sizeMB int
		code   holt.Code
	}{
		"relative":       {path: "disk", base: machine.Base{Path: d.root}, code: holt.InvalidArgument},
		"relative base":  {base: machine.Base{Path: "root"}, code: holt.InvalidArgument},
		"format":         {base: machine.Base{Path: d.root, Format: "vmdk"}, code: holt.InvalidArgument},
		"there":          {path: first, base: machine.Base{Path: d.root}, code: holt.AlreadyExists},
		"no base":        {base: machine.Base{Path: absent}, code: holt.NotFound},
		"too small":      {base: machine.Base{Path: d.root}, sizeMB: testMB - 1, code: holt.InvalidArgument},
		"smaller":        {base: machine.Base{Path: first, Format: DiskFormat}, sizeMB: testMB - 1, code: holt.InvalidArgument},
		"no disk":        {base: machine.Base{Path: d.root, Format: DiskFormat}, code: holt.Corrupt},
		"no directory":   {path: d.path("no/disk"), base: machine.Base{Path: d.root}, code: holt.Internal},
		"cancelled":      {ctx: cancelled, base: machine.Base{Path: d.root}, code: holt.Internal},
		"cancelled copy": {ctx: cancelled, base: machine.Base{Path: first, Format: DiskFormat}, code: holt.Internal},
		"long paths":     {base: machine.Base{Path: strings.Repeat("/.", 1500) + d.root}, code: holt.InvalidArgument},
	} {
		if c.path == "" {
			c.path = absent
		}
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		if c.sizeMB == 0 {
			c.sizeMB = testMB
		}
		err := d.CreateDisk(c.ctx, c.path, c.base, c.sizeMB)
		if holt.CodeOf(err) != c.code || c.ctx == cancelled && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.check(first, d.root)
	d.only("first")
}

func TestGrowDisk(t *testing.T) {
	d := newDisks(t)
	disk := d.over("disk", "")
	d.write(disk, "one")
	for _, grow := range [][2]int{{testMB + 8, testMB + 8}, {testMB, testMB + 8}, {testMB + 8, testMB + 8}} {
		if err := d.GrowDisk(t.Context(), disk, grow[0]); err != nil {
			t.Fatal(err)
		}
		if size, _ := d.size(disk); size != int64(grow[1]) {
			t.Errorf("grown to %d MiB: %d MiB", grow[0], size)
		}
		d.check(disk, d.root, "one")
	}
	if err := d.GrowDisk(t.Context(), d.path("absent"), testMB); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("no disk: %v", err)
	}
	if err := d.GrowDisk(t.Context(), d.root, 2*testMB); holt.CodeOf(err) != holt.Corrupt {
		t.Errorf("an image: %v", err)
	}
	if size, _ := d.size(d.root); size != testMB {
		t.Errorf("the image has %d MiB", size)
	}
}

func TestMergeDisk(t *testing.T) {
	d := newDisks(t)
	bottom := d.over("bottom", "")
	d.write(bottom, "one")
	middle := d.over("middle", "bottom")
	d.write(middle, "two")
	top, other := d.over("top", "middle"), d.over("other", "middle")
	if err := d.MergeDisk(t.Context(), top, bottom); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("with a disk that is not its base: %v", err)
	}
	if err := d.MergeDisk(t.Context(), bottom, d.root); holt.CodeOf(err) != holt.Corrupt {
		t.Errorf("with the image: %v", err)
	}
	if err := d.MergeDisk(t.Context(), d.path("absent"), bottom); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("no disk: %v", err)
	}
	d.only("bottom", "middle", "top", "other")
	for range 2 { // the second finds it merged
		if err := d.MergeDisk(t.Context(), top, middle); err != nil {
			t.Fatal(err)
		}
		d.check(top, bottom, "one", "two")
		d.only("bottom", "top", "other")
	}
	// Interrupted before the last step.
	if err := os.Rename(other, middle); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(middle, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(DiskHeader{Root: d.root, Base: machine.Base{Path: bottom, Format: DiskFormat}}.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := d.MergeDisk(t.Context(), top, middle); err != nil {
		t.Fatal(err)
	}
	d.only("bottom", "top")
	// In a directory that was moved.
	moved := t.TempDir() + "/moved"
	if err := errors.Join(os.Rename(d.dir, moved), os.Symlink(moved, d.dir)); err != nil {
		t.Fatal(err)
	}
	if err := d.MergeDisk(t.Context(), moved+"/top", moved+"/bottom"); err != nil {
		t.Fatal(err)
	}
	d.check(top, d.root, "one", "two")
	d.only("top")
}

func TestFlattenDisk(t *testing.T) {
	d := newDisks(t)
	var chain []string
	for i, name := range []string{"", "one", "two", "three"} {
		base := ""
		if i > 0 {
			base = filepath.Base(chain[i-1])
		}
		chain = append(chain, d.over(fmt.Sprint("disk", i), base))
		if name != "" {
			d.write(chain[i], name)
		}
	}
	was := [][]byte{d.read(chain[3]), d.read(chain[1])}
	to := d.path("flat")
	for name, c := range map[string]struct{ path, under string }{
		"upside down": {chain[1], chain[3]}, "the image": {chain[3], d.root}, "no base": {chain[3], d.path("absent")}, "no disk": {d.path("absent"), chain[1]}, "an image": {d.root, chain[1]},
	} {
		if err := d.FlattenDisk(t.Context(), c.path, c.under, to); err == nil || holt.CodeOf(err) == holt.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(to, []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.FlattenDisk(cancelled, chain[3], chain[1], to); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left by an error: %v", err)
	}
	if err := os.WriteFile(to, []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.FlattenDisk(t.Context(), chain[3], chain[1], to); err != nil {
		t.Fatal(err)
	}
	d.check(to, chain[0], "one", "two", "three")
	if !bytes.Equal(d.read(chain[3]), was[0]) || !bytes.Equal(d.read(chain[1]), was[1]) {
		t.Error("a disk has changed")
	}
	if err := d.FlattenDisk(t.Context(), chain[2], chain[2], to); err != nil {
		t.Fatal(err)
	}
	d.check(to, chain[1], "one", "two")
	d.only("disk0", "disk1", "disk2", "disk3", "flat")
	// A chain without an end.
	if err := put(t, chain[0], DiskHeader{Root: d.root, Base: machine.Base{Path: chain[3]}}); err != nil {
		t.Fatal(err)
	}
	if err := d.FlattenDisk(t.Context(), chain[3], d.path("absent"), to); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a circle: %v", err)
	}
}

// TestTwoNames: a keeper that was killed in a snapshot leaves a disk with two names. It can be flattened and merged.
func TestTwoNames(t *testing.T) {
	d := newDisks(t)
	bottom := d.over("bottom", "")
	old, next, to := d.over("old", "bottom"), d.path("next"), d.path("flat")
	d.write(old, "one")
	h, err := ReadDiskHeader(old)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(old, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(h.Rename(next, machine.Base{Path: old, Format: DiskFormat}).Write(f), os.Link(old, next)); err != nil {
		t.Fatal(err)
	}
	d.check(old, bottom, "one")
	d.check(next, old, "one")
	for under, base := range map[string]string{next: old, old: bottom, bottom: d.root} {
		if err := d.FlattenDisk(t.Context(), next, under, to); err != nil {
			t.Fatal(err)
		}
		d.check(to, base, "one")
	}
	if err := d.MergeDisk(t.Context(), next, old); err != nil {
		t.Fatal(err)
	}
	d.check(next, bottom, "one")
	d.only("bottom", "next", "flat")
}

// TestCopySparse: holes stay, also where neither reflinks nor copy_file_range work.
func TestCopySparse(t *testing.T) {
	d := newDisks(t)
	from := d.path("from")
	f, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := bytes.Repeat([]byte("holt"), 1<<18)
	for _, at := range []int64{0, 3 << 20, 4 << 20, 20<<20 + 4096} {
		if _, err := f.WriteAt(piece, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(100<<20 + 1); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{d.dir, "/dev/shm"} {
		to, err := os.CreateTemp(dir, "to")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(to.Name())
		defer to.Close()
		if err := CopySparse(t.Context(), to, from); err != nil {
			t.Errorf("to %s: %v", dir, err)
		}
		if !bytes.Equal(d.read(from), d.read(to.Name())) {
			t.Errorf("to %s: other content", dir)
		}
		if _, used := d.size(to.Name()); used > 5 {
			t.Errorf("to %s: %d MiB allocated", dir, used)
		}
	}
}

// TestFullDisk: it returns OutOfSpace and leaves nothing.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root")
	}
	d := newDisks(t)
	disk := d.over("disk", "")
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 120<<20), 4<<20); err != nil {
		t.Fatal(err)
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	base := machine.Base{Path: disk, Format: DiskFormat}
	if err := d.CreateDisk(t.Context(), small+"/disk", base, 512); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("create: %v", err)
	}
	if err := d.FlattenDisk(t.Context(), disk, disk, small+"/disk"); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("flatten: %v", err)
	}
	if err := os.WriteFile(small+"/filler", make([]byte, 50<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.CreateDisk(t.Context(), small+"/disk", machine.Base{Path: d.root}, testMB); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("create on a full disk: %v", err)
	}
	if err := put(t, small+"/disk", DiskHeader{Root: d.root}); err != nil {
		t.Fatal(err)
	}
	if err := d.GrowDisk(t.Context(), small+"/disk", testMB); holt.CodeOf(err) != holt.OutOfSpace {
		t.Errorf("grow: %v", err)
	}
	if left, err := filepath.Glob(small + "/*"); err != nil || len(left) != 2 {
		t.Errorf("left: %v (%v)", left, err)
	}
}
