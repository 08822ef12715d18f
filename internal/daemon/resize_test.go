package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// TestResize: processors, memory and disk are added to a computer in which everything goes on: a counter, a
// terminal with a line half-typed, a server, an open transaction and a tail -f. So it does in its forks, which
// have the same shape, and through pause and resume; what was asked for while it was paused is there then.
// Less comes with the next start. A snapshot of before has the shape of then.
func TestResize(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	ctx := t.Context()
	v.populate("einstein")
	least := v.whole("einstein", 0)
	was, err := v.Computers.Get(ctx, "einstein")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "small"}, ""); err != nil {
		t.Fatal(err)
	}
	v.copies("einstein", "small")

	hungry, err := v.Runs.Start(ctx, "einstein", holt.RunSpec{Command: `until [ -e resized ]; do sleep 0.1; done; python3 -c 'b = b"x" * (480 << 20)'`}, "")
	if err != nil {
		t.Fatal(err)
	}
	big := holt.ResizeSpec{CPUs: 2, MemoryMB: was.MemoryMB + 256, DiskSizeMB: was.DiskSizeMB + 1024}
	for range 2 { // the second is the answer of the first
		got, err := v.Computers.Resize(ctx, "einstein", big, "big")
		if g := got.Guest; err != nil || got.Note != "" || g == nil || g.CPUs != big.CPUs || g.MemoryMB < big.MemoryMB || g.DiskSizeMB != big.DiskSizeMB {
			t.Fatalf("%+v guest %+v: %v", got, got.Guest, err)
		}
	}
	if _, err := v.Files.Write(ctx, "einstein", "/home/agent/resized", holt.WriteSpec{}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if end := v.ends(hungry.ID, holt.RunExited); end.ExitCode != 0 { // it takes more than there was before
		t.Errorf("what ran before has no more memory: %+v", end)
	}
	v.has("einstein", big, nil)
	least = v.whole("einstein", least)
	got, err := v.Computers.Resize(ctx, "einstein", holt.ResizeSpec{MemoryMB: big.MemoryMB + 100}, "")
	if err != nil || got.Computer.MemoryMB != big.MemoryMB || got.Computer.Pending == nil || got.Note == "" {
		t.Errorf("less than a block: %+v: %v", got, err)
	}
	for _, wrong := range []holt.ResizeSpec{{DiskSizeMB: big.DiskSizeMB - 1}, {CPUs: 1000}, {MemoryMB: 1}, {}} {
		_, err := v.Computers.Resize(ctx, "einstein", wrong, "")
		wantCode(t, err, holt.InvalidArgument)
	}

	if _, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	v.copies("einstein", "bohr")
	v.has("bohr", big, nil)
	v.whole("bohr", least)
	v.says("bohr", `python3 -c 'b = b"x" * (480 << 20)'`) // more than was free before
	if _, err := v.Computers.Delete(ctx, "bohr", ""); err != nil {
		t.Fatal(err)
	}

	if _, err := v.Computers.Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	bigger := holt.ResizeSpec{CPUs: 3, MemoryMB: big.MemoryMB + 128, DiskSizeMB: big.DiskSizeMB + 512}
	got, err = v.Computers.Resize(ctx, "einstein", bigger, "")
	if c := got.Computer; err != nil || c.State != holt.ComputerPaused || c.Pending == nil || c.Pending.When != "resume" || got.Note == "" {
		t.Fatalf("paused: %+v: %v", got, err)
	}
	if _, err := v.Computers.Resume(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	v.has("einstein", bigger, nil)
	least = v.whole("einstein", least)

	less := holt.ResizeSpec{CPUs: 1, MemoryMB: 512}
	if got, err = v.Computers.Resize(ctx, "einstein", less, ""); err != nil || got.Note == "" {
		t.Fatalf("less: %+v: %v", got, err)
	}
	v.has("einstein", bigger, &holt.Pending{CPUs: 1, MemoryMB: 512, When: "start"})
	v.whole("einstein", least)
	v.kill()
	v.again("")
	v.has("einstein", bigger, &holt.Pending{CPUs: 1, MemoryMB: 512, When: "start"})

	m, err := v.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "large"}, "")
	if err != nil || m.CPUs != bigger.CPUs || m.MemoryMB != bigger.MemoryMB || m.DiskSizeMB != bigger.DiskSizeMB {
		t.Fatalf("%+v: %v", m, err)
	}
	if _, err := v.Snapshots.Restore(ctx, "einstein@small", holt.SnapshotRestoreSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	v.copies("small", "einstein")
	v.has("einstein", holt.ResizeSpec{CPUs: was.CPUs, MemoryMB: was.MemoryMB, DiskSizeMB: was.DiskSizeMB}, nil)
	v.whole("einstein", 0)
	if _, err := v.Snapshots.Restore(ctx, "einstein@large", holt.SnapshotRestoreSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	v.has("einstein", bigger, nil)
	if _, err := v.Computers.Resize(ctx, "einstein", less, ""); err != nil {
		t.Fatal(err)
	}
	c, err := v.Computers.Stop(ctx, "einstein", "")
	if err != nil || c.CPUs != 1 || c.MemoryMB != 512 || c.Pending != nil {
		t.Fatalf("stopped: %+v: %v", c, err)
	}
	less.DiskSizeMB = bigger.DiskSizeMB + 512
	if got, err = v.Computers.Resize(ctx, "einstein", holt.ResizeSpec{DiskSizeMB: less.DiskSizeMB}, ""); err != nil || got.Note == "" {
		t.Fatalf("%+v: %v", got, err)
	}
	if _, err := v.Computers.Start(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	v.has("einstein", less, nil)
	v.remove("einstein")
	v.nothingKept()
	endAll(t, v.process)
}

// TestCreateLarger: a computer that is larger than its template's machine goes on from that and has its shape from the first
// instant, and through pause and fork; one that is smaller boots, and so does one whose machine does not grow.
func TestCreateLarger(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	images := machinetest.Images(t)
	cannotGrow(t, images)
	v.again("")
	ctx := t.Context()
	boots := map[string]string{}
	for name, spec := range map[string]holt.ComputerSpec{"common": {}, "larger": {CPUs: 3, MemoryMB: 1536}, "smaller": {MemoryMB: 640}} {
		spec.Name = name
		began := time.Now()
		c, err := v.Computers.Create(ctx, spec, "")
		if err != nil {
			t.Fatal(err)
		}
		v.has(name, holt.ResizeSpec{CPUs: max(1, spec.CPUs), MemoryMB: c.MemoryMB, DiskSizeMB: c.DiskSizeMB}, nil)
		boots[name] = v.says(name, boot)
		t.Logf("%s: %v, of which %d ms from its machine's start on", name, time.Since(began).Round(time.Millisecond), c.BootMS)
	}
	if boots["larger"] != boots["common"] || boots["smaller"] == boots["common"] {
		t.Errorf("they go on from %v", boots)
	}
	made := map[machine.Shape]bool{}
	for _, record := range snapshotsIn(t, images) {
		if im, err := machine.ReadImage(filepath.Dir(record)); err != nil {
			t.Error(err)
		} else if strings.HasPrefix(im.Engine, daemon.EngineQEMU) {
			made[machine.Shape{CPUs: im.Spec.CPUs, MemoryMB: im.Spec.MemoryMB}] = true
		}
	}
	if !made[machine.Shape{CPUs: 1, MemoryMB: 1024}] || !made[machine.Shape{CPUs: 1, MemoryMB: 640}] || made[machine.Shape{CPUs: 3, MemoryMB: 1536}] {
		t.Errorf("snapshots of the template: %v", made)
	}
	c, err := v.Computers.Get(ctx, "larger")
	if err != nil {
		t.Fatal(err)
	}
	shape := holt.ResizeSpec{CPUs: 3, MemoryMB: 1536, DiskSizeMB: c.DiskSizeMB}
	if _, err := v.Computers.Fork(ctx, "larger", holt.ComputerForkSpec{Name: "fork"}, ""); err != nil {
		t.Fatal(err)
	}
	v.has("fork", shape, nil)
	if _, err := v.Computers.Pause(ctx, "larger", ""); err != nil {
		t.Fatal(err)
	}
	v.has("larger", shape, nil)
	if _, err := v.Computers.Stop(ctx, "larger", ""); err != nil {
		t.Fatal(err)
	}
	v.has("larger", shape, nil)
	for _, name := range []string{"fork", "larger", "common", "smaller"} {
		v.remove(name)
	}
	endAll(t, v.process)
}

// cannotGrow: a computer whose machine does not grow boots in its shape, and the snapshot that it went on from stays.
func cannotGrow(t *testing.T, images string) {
	t.Helper()
	cfg := config(t, t.TempDir())
	cfg.Engine, cfg.ImageDir, cfg.Network = daemon.EngineQEMU, images, []string{"/proc/self/exe", asNetwork}
	cfg.Fail = func(point string) error {
		if point == "create/grow" {
			return errors.New("no room")
		}
		return nil
	}
	d := open(t, cfg)
	defer down(t, d)
	create(t, d, holt.ComputerSpec{Name: "curie"}) // makes the snapshot, unless it was there
	before := snapshotsIn(t, images)
	c := create(t, d, holt.ComputerSpec{Name: "bohr", CPUs: 2, MemoryMB: 1280})
	if said := succeeds(t, d, "bohr", "nproc; [ $(sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo) -gt $((1120 << 10)) ] && echo enough"); said != "2\nenough\n" || c.Pending != nil {
		t.Errorf("%+v: %q", c, said)
	}
	if made := snapshotsIn(t, images); !slices.Equal(made, before) {
		t.Errorf("snapshots of the template: %v, before %v", made, before)
	}
}

// has fails the test unless a computer has a shape, by its record and by its guest, and that is pending.
func (v *vm) has(computer string, want holt.ResizeSpec, pending *holt.Pending) {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), computer)
	if err != nil || c.CPUs != want.CPUs || c.MemoryMB != want.MemoryMB || c.DiskSizeMB != want.DiskSizeMB ||
		(c.Pending == nil) != (pending == nil) || pending != nil && *c.Pending != *pending {
		v.t.Errorf("%s: %+v, pending %+v: %v; want %+v", computer, c, c.Pending, err, want)
	}
	var cpus, kib, bytes int
	said := v.says(computer, `echo $(nproc) $(sed -n 's/MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) $(df --block-size=1 --output=size / | tail -n 1)`)
	if _, err := fmt.Sscan(said, &cpus, &kib, &bytes); err != nil {
		v.t.Fatalf("%s: %q: %v", computer, said, err)
	}
	// The kernel keeps some of its memory to itself, and a file system of its disk.
	if mb := kib >> 10; cpus != want.CPUs || mb < want.MemoryMB-160 || mb > want.MemoryMB {
		v.t.Errorf("%s: its guest has %d processors and %d MiB of memory, want %+v", computer, cpus, mb, want)
	}
	if mb := bytes >> 20; mb < want.DiskSizeMB*95/100 || mb > want.DiskSizeMB {
		v.t.Errorf("%s: its root file system has %d MiB, want %+v", computer, mb, want)
	}
}

// fillRoot takes all of the root file system, to the last block that only root may take.
const fillRoot = `for s in 1G 256M 32M 4M 256K 16K 4K; do i=0; while fallocate -l $s /full-$s-$i 2>/dev/null; do i=$((i+1)); done; rm -f /full-$s-$i; done
until ! echo x >> /full-last || [ $((n++)) -gt 5000 ]; do :; done 2>/dev/null; df --output=avail / | tail -n 1`

// TestFullRoot: a computer whose root disk is full to the last block answers, is made larger while it runs and while
// it is stopped, starts, and its files can be removed.
func TestFullRoot(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	c, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	full := func(when string) {
		t.Helper()
		if said := v.says("curie", fillRoot); said != "0" {
			t.Fatalf("%s: %s KiB are free", when, said)
		}
		if said := v.says("curie", "head -c 8192 /dev/zero > /more 2>&1 || echo full"); !strings.HasSuffix(said, "full") {
			t.Errorf("%s: there is room still: %q", when, said)
		}
	}
	const writes = "head -c 100M /dev/zero > /more && sync && rm /more && echo wrote"
	full("at first")
	if v.virtual() { // a running sandbox keeps its size
		if _, err := v.Computers.Resize(ctx, "curie", holt.ResizeSpec{DiskSizeMB: c.DiskSizeMB + 1024}, ""); err != nil {
			t.Fatal(err)
		}
		if said := v.says("curie", writes); said != "wrote" {
			t.Errorf("larger while it ran: %q", said)
		}
		full("again")
	}
	for _, verb := range []string{"pause", "stop"} { // both with a disk that is full
		if verb == "pause" {
			_, err = v.Computers.Pause(ctx, "curie", "")
		} else {
			_, err = v.Computers.Stop(ctx, "curie", "")
		}
		if err != nil {
			t.Fatal(verb, err)
		}
		if said := v.says("curie", "echo on"); said != "on" {
			t.Errorf("after %s: %q", verb, said)
		}
	}
	if _, err := v.Computers.Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Computers.Resize(ctx, "curie", holt.ResizeSpec{DiskSizeMB: c.DiskSizeMB + 2048}, ""); err != nil {
		t.Fatal(err)
	}
	if said := v.says("curie", writes); said != "wrote" {
		t.Errorf("larger while it was stopped: %q", said)
	}
	full("once more")
	if _, err := v.Computers.Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if err := v.Files.Remove(ctx, "curie", "/full-1G-0", false, ""); err != nil { // which starts it
		t.Errorf("remove a file of a full disk: %v", err)
	}
	if said := v.says("curie", writes); said != "wrote" {
		t.Errorf("once a file was removed: %q", said)
	}
	v.remove("curie")
	endAll(t, v.process)
}

// TestKilledInResize kills a daemon at each step of a resize: the repeated call finishes it, and if there is
// none the next daemon does. Record and machine agree afterwards.
func TestKilledInResize(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	c, err := v.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	to := holt.ResizeSpec{CPUs: 1, MemoryMB: c.MemoryMB, DiskSizeMB: c.DiskSizeMB}
	n := 0
	for _, point := range []string{"resize/row", "resize/machine", "resize/guest"} {
		for _, repeated := range []bool{true, false} {
			if !repeated && point == "resize/row" {
				continue // nothing was written down
			}
			n++
			to.MemoryMB, to.DiskSizeMB, to.CPUs = to.MemoryMB+128, to.DiskSizeMB+64, to.CPUs+n%2
			v.kill()
			v.again(point)
			ctx, leave := context.WithCancel(context.Background())
			done := make(chan error, 1)
			caller := connect(t, v.dir)
			go func() {
				_, err := caller.Computers.Resize(ctx, "curie", to, point+fmt.Sprint(repeated))
				done <- err
			}()
			v.dies(point)
			if !repeated {
				leave()
			}
			v.again("")
			if err := <-done; repeated && err != nil {
				t.Errorf("%s: the repeated call: %v", point, err)
			}
			leave()
			if !repeated {
				v.settles("curie", to)
			}
			v.has("curie", to, nil)
		}
	}
	v.remove("curie")
	endAll(t, v.process)
	t.Logf("counts: a daemon was killed at %d points of a resize", n)
}

// settles waits until a computer has a shape, by its record.
func (v *vm) settles(computer string, want holt.ResizeSpec) {
	v.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		c, err := v.Computers.Get(v.t.Context(), computer)
		if err != nil || time.Now().After(end) {
			v.t.Fatalf("%s: %+v: %v", computer, c, err)
		}
		if c.CPUs == want.CPUs && c.MemoryMB == want.MemoryMB && c.DiskSizeMB == want.DiskSizeMB && c.Pending == nil {
			break
		}
	}
	v.until(computer, "nproc", fmt.Sprint(want.CPUs))
	// Its file system grows last.
	v.until(computer, fmt.Sprintf("[ $(df --block-size=1M --output=size / | tail -n 1) -ge %d ] && echo grown || true", want.DiskSizeMB*95/100), "grown")
}
