package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"holt/machine"
)

// The disks that one lies over are those that qemu-img says.
func TestDiskBeneath(t *testing.T) {
	e, dir := &Engine{img: "qemu-img"}, t.TempDir()
	installed(t)
	base := machine.Base{Path: filepath.Join(dir, "root")}
	if err := os.WriteFile(base.Path, make([]byte, 8*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"one", "two", "three"} {
		want = append([]string{base.Path}, want...)
		path := filepath.Join(dir, name)
		if err := e.CreateDisk(t.Context(), path, base, 8); err != nil {
			t.Fatal(err)
		}
		base = machine.Base{Path: path, Format: "qcow2"}
	}
	got, err := diskBeneath(base.Path)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, want %v: %v", got, want, err)
	}
	for i, f := range got {
		if f.Path != want[i] || f.Write {
			t.Errorf("%+v, want %s", f, want[i])
		}
	}
}

// What is no qcow2 names no disk.
func FuzzBase(f *testing.F) {
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03"))
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		if base, _, err := parseBase(b); err == nil && base != "" && !filepath.IsAbs(base) {
			t.Errorf("%q", base)
		}
	})
}
