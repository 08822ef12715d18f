package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/computer"
)

// TestCreateUndone: a create that fails at any step leaves nothing, and the
// name is free again.
func TestCreateUndone(t *testing.T) {
	dir := home(t)
	cfg := config(t, dir)
	broken := errors.New("broken on purpose")
	at := ""
	cfg.Fail = func(point string) error {
		if point == at {
			return broken
		}
		return nil
	}
	d := up(t, cfg)
	for _, at = range []string{
		"create/row", "create/workspace", "create/disk", "create/open", "create/machine", "create/agent", "create/settle",
	} {
		_, err := d.Computers().Create(t.Context(), holt.ComputerSpec{Name: "curie"}, "same-key")
		if !errors.Is(err, broken) {
			t.Fatalf("%s: %v", at, err)
		}
		if all, err := d.Computers().List(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("%s: %+v %v", at, all, err)
		}
		if all, err := d.Workspaces().List(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("%s: %+v %v", at, all, err)
		}
		empty(t, dir)
		nothingLeft(t, dir)
	}
	at = ""
	if _, err := d.Computers().Create(t.Context(), holt.ComputerSpec{Name: "curie"}, "same-key"); err != nil {
		t.Fatal(err)
	}
	// A start that fails leaves the computer stopped, and says why.
	if _, err := d.Computers().Stop(t.Context(), "curie", ""); err != nil {
		t.Fatal(err)
	}
	for _, at = range []string{"start/open", "start/machine", "start/agent", "start/settle"} {
		if _, err := d.Computers().Start(t.Context(), "curie", ""); !errors.Is(err, broken) {
			t.Fatalf("%s: %v", at, err)
		}
		c, err := d.Computers().Get(t.Context(), "curie")
		if err != nil || c.State != holt.ComputerStopped || !strings.Contains(c.Reason, broken.Error()) {
			t.Errorf("%s: %+v %v", at, c, err)
		}
		nothingLeft(t, filepath.Join(dir, "computers"))
	}
	// What cannot be undone is kept as failed, until delete gets through.
	at = "delete/disk"
	if _, err := d.Computers().Delete(t.Context(), "curie", ""); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	c, err := d.Computers().Get(t.Context(), "curie")
	if err != nil || c.State != holt.ComputerFailed || !strings.Contains(c.Reason, broken.Error()) {
		t.Errorf("%+v %v", c, err)
	}
	_, err = d.Computers().Start(t.Context(), "curie", "")
	wantCode(t, err, holt.Conflict)
	_, err = d.Computers().Runs().Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")
	wantCode(t, err, holt.Conflict)
	at = ""
	if _, err := d.Computers().Delete(t.Context(), "curie", ""); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
}

// TestCallerLeaves: a create whose caller is gone is undone.
func TestCallerLeaves(t *testing.T) {
	dir := home(t)
	cfg := config(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.Fail = func(point string) error {
		if point == "create/agent" {
			cancel()
		}
		return nil
	}
	d := up(t, cfg)
	if _, err := d.Computers().Create(ctx, holt.ComputerSpec{}, ""); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if all, err := d.Computers().List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v %v", all, err)
	}
	empty(t, dir)
}

// TestSameKey: calls repeated with one key act once.
func TestSameKey(t *testing.T) {
	d := up(t, config(t, home(t)))
	ctx, computers := t.Context(), d.Computers()
	var mu sync.Mutex
	ids := map[holt.ComputerID]bool{}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			c, err := computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, "create")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			ids[c.ID] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ids) != 1 {
		t.Errorf("%v", ids)
	}
	_, err := computers.Create(ctx, holt.ComputerSpec{Name: "other"}, "create")
	wantCode(t, err, holt.Conflict)
	var first holt.Run
	for i := range 3 {
		r, err := computers.Runs().Start(ctx, "curie", holt.RunSpec{Command: "echo once >> log", User: "root"}, "run")
		if err != nil || i > 0 && r.ID != first.ID {
			t.Fatalf("%+v %+v %v", first, r, err)
		}
		first = r
	}
	follow(t, d, first.ID, 0)
	if out := succeeds(t, d, "curie", "cat log"); out != "once\n" {
		t.Errorf("%q", out)
	}
	for range 2 {
		if _, err := computers.Delete(ctx, "curie", "delete"); err != nil {
			t.Error(err)
		}
	}
}

// TestDeadAgent: a guest that does not answer gets a clear error within the
// deadlines, and stop and start mend it.
func TestDeadAgent(t *testing.T) {
	dir := home(t)
	cfg := config(t, dir)
	cfg.Limits = computer.Limits{
		// The same limits hold while the agent is well, on a machine that may be busy.
		Beat: 200 * time.Millisecond, Answer: 8 * time.Second, Reconnect: 8 * time.Second, Dial: 8 * time.Second,
		Stall: 8 * time.Second, Shutdown: 3 * time.Second,
	}
	d := up(t, cfg)
	c := create(t, d, holt.ComputerSpec{Name: "curie"})
	succeeds(t, d, "curie", "echo kept > kept; sync kept")
	freeze(t, filepath.Join(dir, "computers", string(c.ID)))
	var calls sync.WaitGroup
	for _, call := range []func() error{
		func() error {
			_, err := d.Computers().Runs().Start(t.Context(), "curie", holt.RunSpec{Command: "true"}, "")
			return err
		},
		func() error { _, err := d.Computers().Files().Stat(t.Context(), "curie", "/etc"); return err },
		func() error {
			return d.Computers().Files().Read(t.Context(), "curie", "/etc/hostname", 0, -1, io.Discard)
		},
	} {
		calls.Go(func() {
			err := call()
			wantCode(t, err, holt.Unavailable)
			if err != nil && !strings.Contains(holt.AsError(err).Hint, "stop and start") {
				t.Error(holt.AsError(err).Hint)
			}
		})
	}
	calls.Wait()
	within(t, "the beat to find out", func() bool {
		got, err := d.Computers().Get(t.Context(), "curie")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(got.Reason, "does not answer")
	})
	stopped, err := d.Computers().Stop(t.Context(), "curie", "")
	if err != nil || stopped.State != holt.ComputerStopped || stopped.Reason == "" {
		t.Fatalf("%+v %v", stopped, err)
	}
	if out := succeeds(t, d, "curie", "cat kept"); out != "kept\n" {
		t.Errorf("%q", out)
	}
	runs, err := d.Computers().Runs().List(t.Context(), "curie", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.State == holt.RunRunning {
			t.Errorf("%+v", r)
		}
	}
}

// freeze stops every process of the machine in dir, as a guest that hangs.
func freeze(t *testing.T, dir string) {
	t.Helper()
	all := machines(t, dir)
	if len(all) != 1 {
		t.Fatalf("machines in %s: %v", dir, all)
	}
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", all[0].Process.PID))
	if err != nil {
		t.Fatal(err)
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, proc := range procs {
		if in, err := os.Readlink(proc + "/ns/pid"); err != nil || in != ns {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGSTOP)
		}
		if err != nil {
			t.Fatal(err)
		}
		stands(t, proc)
	}
}

// stands waits until every thread of a process that was told to stop has: on a
// busy machine one may still run, and answer. One that waits within the kernel
// (D), for a file system that is stopped too, stops before it goes on.
func stands(t *testing.T, proc string) {
	t.Helper()
	running := func(stat string) bool {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false // it has ended
		}
		state := b[bytes.LastIndex(b, []byte(") "))+2]
		return !bytes.ContainsRune([]byte("TDZX"), rune(state))
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		tasks, err := filepath.Glob(proc + "/task/*/stat")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(tasks, running) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not stop", proc)
		}
	}
}

// TestFullDisk: what runs goes on, what needs room says so, and deleting makes
// room.
func TestFullDisk(t *testing.T) {
	dir := home(t)
	if err := syscall.Mount("holt-test", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal("mount a small disk:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := open(t, config(t, dir))
	t.Cleanup(func() { down(t, d) })
	create(t, d, holt.ComputerSpec{Name: "fermi"})
	succeeds(t, d, "fermi", "echo precious > precious; sync precious")
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)
	for i := range 15 {
		if out := succeeds(t, d, "fermi", "cat precious"); out != "precious\n" {
			t.Fatalf("run %d: %q", i, out)
		}
	}
	if res := run(t, d, "fermi", "head -c 5000000 /dev/zero > big"); !strings.Contains(res.out, "No space left") || res.ExitCode == 0 {
		t.Errorf("%+v %q", res.Run, res.out)
	}
	_, err := d.Computers().Create(t.Context(), holt.ComputerSpec{Name: "another"}, "")
	wantCode(t, err, holt.OutOfSpace)
	if all, err := d.Computers().List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v %v", all, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if out := succeeds(t, d, "fermi", "rm -f big; echo more > more; sync more; cat precious more"); out != "precious\nmore\n" {
		t.Errorf("%q", out)
	}
	fill(t, ballast)
	if _, err := d.Computers().Delete(t.Context(), "fermi", ""); err != nil {
		t.Error("delete on a full disk:", err)
	}
	empty(t, dir)
}

// TestFullDiskOfWorkspaces: the reserve is on the disk that workspaces are on, also where that
// is not the one of the data directory.
func TestFullDiskOfWorkspaces(t *testing.T) {
	dir := home(t)
	disk := filepath.Join(dir, "workspaces")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("holt-test", disk, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal("mount a small disk:", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	d := open(t, config(t, dir))
	t.Cleanup(func() { down(t, d) })
	near{d}.Create(t, "notes")
	const files = 100
	for i := range files {
		near{d}.Put(t, "notes", fmt.Sprint("/f", i), "text")
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	_, err := d.Workspaces().Files().Write(t.Context(), "notes", "/big", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 20<<20)))
	wantCode(t, err, holt.OutOfSpace)
	for i := range files {
		if err := d.Workspaces().Files().Remove(t.Context(), "notes", fmt.Sprint("/f", i), false, ""); err != nil {
			t.Fatal("remove on a full disk:", err)
		}
	}
	if report, err := d.Workspaces().Check(t.Context(), "notes"); err != nil || len(report.Problems) > 0 { // once the index has it too
		t.Errorf("after that: %+v, %v", report, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}
