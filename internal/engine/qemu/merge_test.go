package qemu_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// chain makes disks over a base, each with one MiB of its own at each of its places.
func chain(t *testing.T, e machine.Engine, places ...[]int) (disks []string) {
	t.Helper()
	base := machine.Base{Path: sparse(t, 40)}
	dir := t.TempDir()
	for i, mine := range places {
		disk := filepath.Join(dir, fmt.Sprintf("disk, %d.qcow2", i))
		if err := e.CreateDisk(t.Context(), disk, base, 40); err != nil {
			t.Fatal(err)
		}
		for _, at := range mine {
			qemuIO(t, disk, fmt.Sprintf("write -P %d %dM 1M", i+1, at))
		}
		base = machine.Base{Path: disk, Format: "qcow2"}
		disks = append(disks, disk)
	}
	return disks
}

func qemuIO(t *testing.T, disk, command string) {
	t.Helper()
	if out, err := exec.Command("qemu-io", "-f", "qcow2", "-c", command, disk).CombinedOutput(); err != nil || len(out) == 0 {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// shown returns the content of a disk at each MiB: the last writer.
func shown(t *testing.T, disk string) (all [40]byte) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	if out, err := exec.Command("qemu-img", "convert", "-f", "qcow2", "-O", "raw", disk, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range all {
		var b [1]byte
		if _, err := f.ReadAt(b[:], int64(i)<<20|4096); err != nil {
			t.Fatal(err)
		}
		all[i] = b[0]
	}
	return all
}

// A merged disk has the same content in either direction of copying, and the one below is removed.
func TestMergeDisk(t *testing.T) {
	e := open(t)
	for name, places := range map[string][][]int{
		"into the lower": {{1}, {1, 2, 3, 4, 5, 6, 7, 8}, {2, 9}, {9, 10}},
		"into the upper": {{1}, {1, 2}, {2, 3, 4, 5, 6, 7, 8, 9}, {9, 10}},
		"of nothing":     {{1}, {}, {}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			disks := chain(t, e, places...)
			top, over, under := disks[3], disks[2], disks[1]
			want, wantOver := shown(t, top), shown(t, over)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := e.MergeDisk(ended, over, under); err == nil {
				t.Error("a merge that was ended says that it was done")
			}
			for range 2 { // again is no error
				if err := e.MergeDisk(t.Context(), over, under); err != nil {
					t.Fatal(err)
				}
				if got := shown(t, top); got != want {
					t.Errorf("got %v\nwant %v", got, want)
				}
				if got := shown(t, over); got != wantOver {
					t.Errorf("got %v\nwant %v", got, wantOver)
				}
				if _, err := os.Stat(under); !os.IsNotExist(err) {
					t.Errorf("the disk beneath: %v", err)
				}
			}
			qemuIO(t, disks[0], "read -P 1 1M 1M") // it does not know
			if err := e.MergeDisk(t.Context(), top, over); err != nil {
				t.Fatal(err)
			}
			if got := shown(t, top); got != want {
				t.Errorf("the next: got %v\nwant %v", got, want)
			}
		})
	}
}

// A merge that is killed at any time does not change the content of either disk.
func TestMergeDiskKilled(t *testing.T) {
	e := open(t)
	many := make([]int, 30)
	for i := range many {
		many[i] = i + 5
	}
	for _, places := range [][][]int{{{1}, append([]int{2}, many...), many}, {{1}, many, append([]int{2}, many...)}} {
		disks := chain(t, e, places...)
		want := shown(t, disks[2])
		for killed := 0; ; killed++ {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- e.MergeDisk(ctx, disks[2], disks[1]) }()
			time.Sleep(time.Duration(killed%8) * 20 * time.Millisecond) // the snapshot of the kill
			cancel()
			err := <-done
			if got := shown(t, disks[2]); got != want {
				t.Fatalf("killed %d times: got %v\nwant %v", killed, got, want)
			}
			if err == nil {
				t.Logf("killed %d times", killed)
				break
			}
			if killed > 40 {
				if err := e.MergeDisk(t.Context(), disks[2], disks[1]); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		if got := shown(t, disks[2]); got != want {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
}

func TestMergeDiskRefused(t *testing.T) {
	e := open(t)
	disks := chain(t, e, []int{1}, []int{2})
	if err := e.MergeDisk(t.Context(), disks[1]+"x", disks[0]); holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
	// A symbolic link to the same directory works; another directory does not.
	disks = chain(t, e, []int{1}, []int{2}, []int{3})
	dir := filepath.Dir(disks[0])
	link, moved := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "moved")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	in := func(dir string, i int) string { return filepath.Join(dir, filepath.Base(disks[i])) }
	want := shown(t, disks[2])
	if err := e.MergeDisk(t.Context(), in(link, 2), in(link, 1)); err != nil {
		t.Error(err)
	}
	if got := shown(t, disks[2]); got != want {
		t.Errorf("by a link: got %v\nwant %v", got, want)
	}
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := e.MergeDisk(t.Context(), in(moved, 2), in(moved, 0)); holt.CodeOf(err) != holt.Conflict {
		t.Error("in a directory that was moved: ", err)
	}
	if _, err := os.Stat(in(moved, 0)); err != nil {
		t.Error(err)
	}
	// A running machine has it open, for writing or as a base.
	disks = chain(t, e, []int{1}, []int{2}, []int{3}, []int{4, 5, 6})
	for _, merged := range [][2]string{{disks[3], disks[2]}, {disks[2], disks[1]}} {
		want := shown(t, disks[3])
		let := hold(t, disks[3])
		if err := e.MergeDisk(t.Context(), merged[0], merged[1]); err == nil {
			t.Error("merged beneath a machine: ", merged)
		}
		let()
		if got := shown(t, disks[3]); got != want {
			t.Errorf("got %v\nwant %v", got, want)
		}
		if _, err := os.Stat(merged[1]); err != nil {
			t.Error(err)
		}
	}
}

// hold opens a disk for writing, as a machine does, until let is called.
func hold(t *testing.T, disk string) (let func()) {
	t.Helper()
	cmd := exec.Command("qemu-io", "-f", "qcow2", disk)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // its prompt
		t.Fatal(err)
	}
	return func() {
		in.Close()
		cmd.Wait()
	}
}
