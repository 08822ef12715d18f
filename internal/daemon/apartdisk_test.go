package daemon_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
)

// TestHostileDisk: a guest that has taken QEMU over writes into its disk that it lies over another computer's, or
// over a file of the host. Nothing that holt does with it opens that, and its QEMU is never shown it.
func TestHostileDisk(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	ctx := t.Context()
	for _, name := range []string{"curie", "mallory"} {
		if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: name, MemoryMB: 256}, ""); err != nil {
			t.Fatal(err)
		}
	}
	secret, disk := v.writes("curie"), v.writes("mallory")
	then, err := v.Computers.Snapshot(ctx, "mallory", holt.SnapshotSpec{Name: "then"}, "")
	if err != nil {
		t.Fatal(err)
	}
	frozen := disk
	if disk = v.writes("mallory"); disk == frozen {
		t.Fatal("a snapshot froze no disk")
	}
	refused := func(verb string, err error) {
		t.Helper()
		if holt.CodeOf(err) != holt.Corrupt || !strings.Contains(err.Error(), "is not its base") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	for _, other := range []string{secret, "/etc/shadow"} {
		back := v.laysOver(frozen, other)
		_, err := v.Snapshots.Fork(ctx, "mallory@then", holt.ComputerForkSpec{Name: "trudy"}, "")
		refused("fork of a snapshot, "+other, err)
		back()

		back = v.laysOver(disk, other)
		_, err = v.Computers.Snapshot(ctx, "mallory", holt.SnapshotSpec{Name: "now"}, "")
		refused("snapshot, "+other, err)
		_, err = v.Computers.Fork(ctx, "mallory", holt.ComputerForkSpec{Name: "trudy"}, "")
		refused("fork, "+other, err)
		_, err = v.Computers.Pause(ctx, "mallory", "")
		refused("pause, "+other, err)
		v.seesNot("mallory", other)
		if got := v.says("mallory", "echo here"); got != "here" {
			t.Errorf("it says %q", got)
		}
		back()
	}
	if _, err := v.Computers.Stop(ctx, "mallory", ""); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{secret, "/etc/shadow"} {
		back := v.laysOver(disk, other)
		_, err := v.Computers.Start(ctx, "mallory", "")
		refused("start, "+other, err)
		back()
	}
	if _, err := v.Computers.Start(ctx, "mallory", ""); err != nil { // what it was laid over is no harm
		t.Error(err)
	}
	if _, err := v.Snapshots.Restore(ctx, "mallory@"+then.Name, holt.SnapshotRestoreSpec{}, ""); err != nil {
		t.Error(err)
	}
	v.remove("mallory")
	v.remove("curie")
	v.nothingKept()
	endAll(t, v.process)
}

// record is what holt has written down of a computer's machine.
func (v *vm) record(name string) (r machine.Record) {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), name)
	var b []byte
	if err == nil {
		b, err = os.ReadFile(filepath.Join(v.dir, "computers", string(c.ID), machine.RecordFile))
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return r
}

// writes is the disk that a computer's QEMU has open for writing.
func (v *vm) writes(name string) string {
	v.t.Helper()
	pid := v.record(name).Process.PID
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		v.t.Fatal(err)
	}
	for _, fd := range open {
		path, err := os.Readlink(fd)
		if err != nil || filepath.Dir(path) != filepath.Join(v.dir, "disks") {
			continue
		}
		info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		var flags uint64
		if _, after, ok := strings.Cut(string(info), "flags:"); err == nil && ok {
			fmt.Sscanf(after, "%o", &flags)
		}
		if flags&uint64(os.O_RDWR|os.O_WRONLY) != 0 {
			return path
		}
	}
	v.t.Fatalf("%s writes to no disk", name)
	return ""
}

// laysOver writes into a disk that it lies over another file, until back is called.
func (v *vm) laysOver(disk, other string) (back func()) {
	v.t.Helper()
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	was := make([]byte, 4096)
	if err == nil {
		_, err = f.ReadAt(was, 0)
	}
	at := binary.BigEndian.Uint64(was[8:])
	if err == nil && at+uint64(len(other)) > uint64(len(was)) {
		err = fmt.Errorf("its name is at %d", at)
	}
	if err == nil {
		now := append([]byte(nil), was...)
		binary.BigEndian.PutUint32(now[16:], uint32(len(other)))
		copy(now[at:], other)
		_, err = f.WriteAt(now, 0)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return func() {
		if _, err := f.WriteAt(was, 0); err != nil {
			v.t.Error(err)
		}
		f.Close()
	}
}

// seesNot fails the test if a file is shown to a computer's QEMU, or if it has it open.
func (v *vm) seesNot(name, path string) {
	v.t.Helper()
	pid := v.record(name).Process.PID
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil || strings.Contains(string(mounts), path+" ") {
		v.t.Errorf("%s sees %s: %v", name, path, err)
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range open {
		if is, err := os.Readlink(fd); err == nil && is == path {
			v.t.Errorf("%s has %s open", name, path)
		}
	}
}
