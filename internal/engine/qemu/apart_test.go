package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holt"
	"holt/internal/engine/machine"
)

// stacked makes a chain of disks over a root; the last is on top.
func stacked(t *testing.T, e *Engine, names ...string) (disks []string) {
	t.Helper()
	dir := t.TempDir()
	base := machine.Base{Path: filepath.Join(dir, "root")}
	if err := os.WriteFile(base.Path, make([]byte, 8*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	disks = []string{base.Path}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := e.CreateDisk(t.Context(), path, base, 8); err != nil {
			t.Fatal(err)
		}
		base = machine.Base{Path: path, Format: "qcow2"}
		disks = append(disks, path)
	}
	return disks
}

// The chain below a disk is read from its header down to the root.
func TestDiskBeneath(t *testing.T) {
	e := &Engine{img: "qemu-img"}
	installed(t)
	disks := stacked(t, e, "one", "two", "three")
	got, err := e.beneath(t.Context(), disks[3])
	want := []machine.Base{{Path: disks[2], Format: "qcow2"}, {Path: disks[1], Format: "qcow2"}, {Path: disks[0], Format: "raw"}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, want %v: %v", got, want, err)
	}
	out, err := exec.Command("qemu-img", "info", "--backing-chain", disks[3]).CombinedOutput()
	for _, disk := range disks {
		if err != nil || !strings.Contains(string(out), disk) {
			t.Errorf("qemu-img says %s, %v", out, err)
		}
	}
}

// liesOver changes the base in a disk's header, as a guest that has compromised QEMU can.
func liesOver(t *testing.T, disk, base, format string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", "rebase", "-u", "-f", "qcow2", "-F", format, "-b", base, disk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A disk whose header names a wrong base is refused by every operation that would open the base.
func TestHostileHeader(t *testing.T) {
	installed(t)
	var known []string
	e := &Engine{img: "qemu-img", ledger: func(context.Context, string) ([]string, error) { return known, nil }}
	for _, c := range []struct {
		what string
		do   func(t *testing.T, disk, secret string)
	}{
		{"another's disk", func(t *testing.T, disk, secret string) { liesOver(t, disk, secret, "qcow2") }},
		{"a file", func(t *testing.T, disk, _ string) { liesOver(t, disk, "/etc/shadow", "raw") }},
		{"a protocol", func(t *testing.T, disk, secret string) {
			liesOver(t, disk, `json:{"driver":"qcow2","file":{"driver":"file","filename":"`+secret+`"}}`, "qcow2")
		}},
		{"another by a longer way", func(t *testing.T, disk, secret string) {
			liesOver(t, disk, filepath.Dir(secret)+"/../"+filepath.Base(filepath.Dir(secret))+"/two", "qcow2")
		}},
		{"its data elsewhere", func(t *testing.T, disk, _ string) {
			f, err := os.OpenFile(disk, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt(binary.BigEndian.AppendUint64(nil, dataFile), 72)
				f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			disks, foreign := stacked(t, e, "one", "two", "three"), stacked(t, e, "one", "two")
			top, under := disks[3], disks[2]
			known = []string{disks[2], disks[1], disks[0]}
			if _, err := e.beneath(t.Context(), top); err != nil {
				t.Fatal(err)
			}
			c.do(t, top, foreign[2])
			_, base := e.DiskBase(t.Context(), top)
			_, start := e.Start(t.Context(), machine.Spec{ID: "x", Dir: filepath.Join(t.TempDir(), "m"), Kernel: top, Initrd: top, Disk: top, CPUs: 1, MemoryMB: 64})
			to := filepath.Join(t.TempDir(), "to")
			for what, err := range map[string]error{
				"look": base, "start": start, "grow": e.GrowDisk(t.Context(), top, 64), "merge": e.MergeDisk(t.Context(), top, under),
				"flatten": e.FlattenDisk(t.Context(), top, under, to),
			} {
				if holt.CodeOf(err) != holt.Corrupt {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := os.Lstat(to); err == nil {
				t.Error("a disk was made of it")
			}
		})
	}
}

// A disk in the ledger that has been removed by a merge may be missing from the chain.
func TestMergedHeader(t *testing.T) {
	installed(t)
	e := &Engine{img: "qemu-img"}
	disks := stacked(t, e, "one", "two", "three")
	e.ledger = func(context.Context, string) ([]string, error) { return []string{disks[2], disks[1], disks[0]}, nil }
	liesOver(t, disks[3], disks[1], "qcow2")
	if err := os.Remove(disks[2]); err != nil {
		t.Fatal(err)
	}
	if all, err := e.beneath(t.Context(), disks[3]); err != nil || len(all) != 2 {
		t.Error(all, err)
	}
	liesOver(t, disks[1], disks[3], "qcow2") // upwards
	if all, err := e.beneath(t.Context(), disks[3]); holt.CodeOf(err) != holt.Corrupt {
		t.Error(all, err)
	}
}

// A file that is not a qcow2 has no base.
func FuzzBase(f *testing.F) {
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03"))
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parseHeader(b); err == nil && d.Base != "" && !filepath.IsAbs(d.Base) {
			t.Errorf("%q", d.Base)
		}
	})
}

// Without jails, or without root, machines run as the daemon's user, and the log has the reason.
func TestNotApart(t *testing.T) {
	if os.Geteuid() == 0 {
		if said := notApart(t, "/proc"); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "as the daemon's user") || !strings.Contains(said, "show /proc") {
			t.Errorf("on a file system without idmapped mounts the log says %q", said)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestNotApart$", "-test.v")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNotApart") {
			t.Errorf("as a user: %v: %s", err, out)
		}
		return
	}
	if said := notApart(t, "/"); !strings.Contains(said, "level=INFO") || !strings.Contains(said, "the daemon is not root") {
		t.Errorf("for a user the log says %q", said)
	}
}

// notApart returns the log when machines cannot run in jails.
func notApart(t *testing.T, dir string) string {
	t.Helper()
	var said bytes.Buffer
	if apart("/bin/true", Options{Apart: []string{dir}}, slog.New(slog.NewTextHandler(&said, nil))) {
		t.Errorf("apart, of %s", dir)
	}
	return said.String()
}
