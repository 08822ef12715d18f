package daemon_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/engine/qemu"
	"holt/internal/network"
)

// vmHome is a data directory of a daemon with isolated machines: sandboxes, which start
// quickly everywhere, or virtual machines if HOLT_TEST_ENGINE says qemu. Nothing
// may be left of them when the test ends.
func vmHome(t *testing.T) string {
	t.Helper()
	return homeOn(t, cmp.Or(os.Getenv(envVM), daemon.EngineGVisor))
}

// virtualHome is one of a daemon with virtual machines, for what only they have.
func virtualHome(t *testing.T) string {
	t.Helper()
	return homeOn(t, daemon.EngineQEMU)
}

func homeOn(t *testing.T, engine string) string {
	t.Helper()
	setenv(t, holt.EnvEngine, engine)
	setenv(t, envSandbox, machinetest.Holt(t))
	setenv(t, holt.EnvImageDir, machinetest.Images(t))
	dir, err := os.MkdirTemp("", "holt-home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range strays(t, dir) {
			t.Errorf("a machine is left: %+v", s)
			s.Kill()
		}
		networks, err := network.Strays(dir)
		if err != nil {
			t.Error(err)
		}
		for _, s := range networks {
			t.Errorf("the network of a machine is left: %+v", s)
			s.Kill()
		}
		os.RemoveAll(dir)
	})
	return dir
}

// envVM chooses the engine of the tests with isolated machines: gvisor, which is quick everywhere, or qemu.
const envVM = "HOLT_TEST_ENGINE"

// strays returns the isolated machines that run below a directory.
func strays(t *testing.T, dir string) []machine.Stray {
	t.Helper()
	virtual, err := qemu.Open(context.Background(), qemu.Options{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	sandboxes, err := gvisor.Open(gvisor.Options{Program: machinetest.Holt(t)})
	if err != nil {
		t.Fatal(err)
	}
	left, err := virtual.Strays(dir)
	more, err2 := sandboxes.Strays(dir)
	if err := errors.Join(err, err2); err != nil {
		t.Error(err)
	}
	return append(left, more...)
}

// vm is a daemon process with real machines, as a client sees it.
type vm struct {
	*process
	t     *testing.T
	dir   string
	lines int // that were typed or logged, rows and files: each is another
	far   *far
	lives map[string]*life // by computer
}

// again starts the next daemon, which kills itself at a step if there is one.
func (v *vm) again(kill string) {
	v.t.Helper()
	v.process = spawn(v.t, v.dir, kill)
}

// dies waits for the daemon to kill itself.
func (v *vm) dies(point string) {
	v.t.Helper()
	select {
	case err := <-v.done:
		v.done <- err
	case <-time.After(patience):
		v.t.Fatalf("the daemon has not come to %s", point)
	}
}

// virtual reports whether computers are virtual machines, with a kernel, a clock and a random generator of their own.
func (v *vm) virtual() bool {
	own, _ := environments.Load(v.t.Name())
	of, _ := own.(map[string]string)
	return of[holt.EnvEngine] == daemon.EngineQEMU
}

// says runs a command and returns what it says; it must succeed.
func (v *vm) says(computer, command string) string {
	v.t.Helper()
	r, err := v.Runs.Start(v.t.Context(), computer, holt.RunSpec{Command: holt.OSString(command), User: "root"}, "")
	var out strings.Builder
	var end holt.Run
	if err == nil {
		err = v.Runs.Follow(v.t.Context(), r.ID, 0, func(e holt.RunEvent) error {
			out.Write(e.Data)
			if e.Run != nil {
				end = *e.Run
			}
			return nil
		})
	}
	if err != nil || end.State != holt.RunExited || end.ExitCode != 0 {
		v.t.Fatalf("%s: %s: %v %+v %s", computer, command, err, end, out.String())
	}
	return strings.TrimSpace(out.String())
}

// until waits for a command to say something.
func (v *vm) until(computer, command, want string) {
	v.t.Helper()
	end := time.Now().Add(patience)
	for {
		got := v.says(computer, command)
		if got == want {
			return
		}
		if time.Now().After(end) {
			v.t.Fatalf("%s: %s says %q, not %q", computer, command, got, want)
		}
	}
}

// clock fails the test if a computer's clock is wrong by more than a second.
func (v *vm) clock(computer string) {
	v.t.Helper()
	before := time.Now()
	said := v.says(computer, "date +%s%N")
	ns, err := strconv.ParseInt(said, 10, 64)
	if now := time.Unix(0, ns); err != nil || now.Before(before.Add(-time.Second)) || now.After(time.Now().Add(time.Second)) {
		v.t.Errorf("%s: the clock says %v, between %v and %v", computer, now, before, time.Now())
	}
}

// stamps fails the test if a new file of a computer's home is ahead of its clock, or newer than
// one that is made on its root disk after it, or more than 10 ms behind.
func (v *vm) stamps(computer string) {
	v.t.Helper()
	const line = `b=$(date +%s%N); touch /home/agent/new; a=$(date +%s%N); touch /root/newer
		m=$(stat -c %.9Y /home/agent/new | tr -d .)
		[ $m -gt $((b - 10000000)) ] && [ $m -lt $a ] && ! [ /home/agent/new -nt /root/newer ] && echo right || echo "$b $m $a"`
	if said := v.says(computer, line); said != "right" {
		v.t.Errorf("%s: the clock before, a file's mtime and the clock behind: %s", computer, said)
	}
}

// TestSnapshots: everything that runs in a computer goes on in it and in its
// forks, through pause, a daemon that is killed, and resume: a counter, a terminal with a
// line half-typed, a server, an open transaction and a tail -f. HOLT_SOAK=1 forks it
// 4 at once, pauses it 25 times, and forks a fork of a fork 10 deep.
func TestSnapshots(t *testing.T) {
	atOnce, pauses, deep := 2, 2, 1
	if os.Getenv("HOLT_SOAK") != "" {
		atOnce, pauses, deep = 4, 25, 10
	}
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	v.populate("einstein")
	least := v.whole("einstein", 0)

	kept, err := v.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "before"}, "")
	if err != nil || kept.Workspace != "einstein" {
		t.Fatalf("%+v %v", kept, err)
	}
	forked, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Count: atOnce}, "fork")
	if err != nil || len(forked.Computers) != atOnce {
		t.Fatalf("%+v %v", forked, err)
	}
	all := []string{"einstein"}
	for _, f := range forked.Computers {
		if f.Error != nil {
			t.Fatal(f.Name, f.Error)
		}
		v.copies("einstein", f.Name)
		all = append(all, f.Name)
	}
	v.diverge(all, least)
	v.forkOfForks(kept, forked)
	v.refuses()
	for _, name := range all[2:] {
		if _, err := v.Computers.Delete(ctx, name, ""); err != nil {
			t.Error(err)
		}
	}
	least = v.pauseAndKill(least)
	least = v.pauses(pauses-1, least)
	v.goesOn("einstein-1", 0) // it was adopted
	least = v.restores("einstein", "einstein-1", least)
	v.remove("einstein-1")
	last := v.forksOfForks(deep, least)
	v.merges(last)
	t.Logf("counts: %d forks at once, %d pauses, %d of them under a daemon that was killed, %d forks of forks; %d files of the last one, and %d rows, are as they were written",
		atOnce, pauses, 1+(pauses-1)/2, deep, len(v.lives[last].files), len(v.lives[last].rows))
	v.remove(last)
	v.nothingKept()
	endAll(t, v.process)
}

// diverge looks at a computer, the first, and its forks: everything goes on in each of them,
// each is itself, and what happens in one does not happen in the others. The last one's
// program takes back what all of them had begun.
func (v *vm) diverge(all []string, least int) {
	t := v.t
	t.Helper()
	different := map[string]string{}
	v.transacts(all[len(all)-1], "rollback")
	for _, name := range all {
		v.whole(name, least)
		if name == "einstein" {
			v.linked(name)
		} else {
			v.cut(name)
		}
		v.clock(name)
		v.stamps(name)
		if said := v.says(name, "hostname; cat /etc/hostname; echo "+name+" > mine"); said != name+"\n"+name {
			t.Errorf("%s says its name is %q", name, said)
		}
		for _, command := range []string{"cat /etc/machine-id", "head -c 16 /dev/urandom | od -A n -t x1", "cat /etc/ssh/ssh_host_ed25519_key.pub"} {
			said := v.says(name, command)
			if other := different[said]; other != "" {
				t.Errorf("%s and %s are the same in %s: %s", name, other, command, said)
			}
			different[said] = name
		}
	}
	for _, name := range all {
		v.transacts(name, "commit")
		v.until(name, "cat mine", name)
	}
	v.apart("einstein-1")
}

// refuses: a fork that cannot be itself is not handed out, and nothing is left of it.
func (v *vm) refuses() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	all, err := v.Computers.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	none := func(why string) {
		t.Helper()
		entries(t, v.dir, "computers", len(all))
		entries(t, v.dir, "workspaces", len(all))
		if now, err := v.Computers.List(ctx); err != nil || len(now) != len(all) {
			t.Errorf("%s: %+v %v", why, now, err)
		}
	}
	const keepsOld = "cp /etc/ssh/ssh_host_ed25519_key* /root; " +
		`printf '#!/bin/sh\nfor to; do :; done; for ext in "" .pub; do cp /root/ssh_host_ed25519_key$ext $to$ext; done\n' > /root/keygen; chmod +x /root/keygen; `
	for _, c := range []struct{ spoil, at, why string }{
		{"mount --bind /etc/machine-id /etc/machine-id", "/etc/machine-id", "set machine id"}, // no rename replaces a mount point
		{"mount --bind /etc/hostname /etc/hostname", "/etc/hostname", "set host name"},
		{"mount --bind /bin/false /usr/bin/ssh-keygen", "/usr/bin/ssh-keygen", "make SSH host key"},
		{keepsOld + "mount --bind /root/keygen /usr/bin/ssh-keygen", "/usr/bin/ssh-keygen", "is that of its parent"},
		{"mount --bind /etc/hostname /dev/random", "/dev/random", "reseed"},
	} {
		if c.why == "reseed" && !v.virtual() {
			continue // a sandbox has the host's generator
		}
		v.says("einstein", c.spoil)
		_, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "impostor"}, "")
		if holt.CodeOf(err) != holt.Unavailable || !strings.Contains(err.Error(), c.why) {
			t.Errorf("a fork that cannot %s: %v", c.why, err)
		}
		none(c.why)
		v.says("einstein", "umount "+c.at)
	}
	// A generator that nothing changes gives the first what it gives the second.
	v.says("einstein", "head -c 32 /dev/zero > /root/drawn; mount --bind /root/drawn /dev/urandom")
	forked, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "twin", Count: 2}, "")
	if err != nil || len(forked.Computers) != 2 {
		t.Fatalf("%+v %v", forked, err)
	}
	refused := 0
	for _, one := range forked.Computers {
		if one.Error == nil {
			v.remove(one.Name)
		} else if refused++; !strings.Contains(one.Error.Error(), "its identity is not fresh") {
			t.Errorf("a fork that draws what its sibling does: %v", one.Error)
		}
	}
	if refused != 1 {
		t.Errorf("of two forks that draw the same at random %d were refused", refused)
	}
	none("two that draw the same")
	v.says("einstein", "umount /dev/urandom")
}

// forkOfForks: a fork and an older snapshot can be forked, too.
func (v *vm) forkOfForks(kept holt.Snapshot, forked holt.ForkedComputers) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	if _, err := v.Computers.Fork(ctx, "einstein-1", holt.ComputerForkSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	v.goesOn("bohr", 0)
	v.until("bohr", "cat mine", "einstein-1")
	if _, err := v.Snapshots.Fork(ctx, "before", holt.ComputerForkSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	v.goesOn("curie", 0)
	if said := v.says("curie", "ls mine 2>&1 || true"); !strings.Contains(said, "No such file") {
		t.Errorf("from before: %q", said)
	}
	bohr, err := v.Computers.Get(ctx, "bohr")
	if err != nil || bohr.Parent == nil || bohr.Parent.Name != "einstein-1" {
		t.Errorf("%+v %v", bohr, err)
	}
	got, err := v.Snapshots.Get(ctx, "before")
	if err != nil || got.ID != kept.ID || len(got.Forks) != 1 || got.Forks[0].Name != "curie" {
		t.Errorf("%+v %v", got, err)
	}
	freed, err := v.Snapshots.Delete(ctx, "before", "")
	if err != nil || freed.Bytes == 0 || len(freed.Forks) != 1 {
		t.Errorf("%+v %v", freed, err)
	}
	v.goesOn("curie", 0)
	if got, err := v.Snapshots.Get(ctx, string(forked.Snapshot)); err != nil || len(got.Forks) != len(forked.Computers) || got.Parent != kept.ID {
		t.Errorf("%+v %v", got, err)
	}
	for _, name := range []string{"bohr", "curie"} {
		if _, err := v.Computers.Delete(ctx, name, ""); err != nil {
			t.Error(err)
		}
	}
}

// pauseAndKill: what was paused goes on under another daemon, woken by who needs it.
func (v *vm) pauseAndKill(least int) int {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	least = v.goesOn("einstein", least)
	s := servertest.Watch(t, servertest.ClientNouns(v.Client), "einstein", "main", holt.AttachSpec{Offset: -1})
	s.Rests(t, false)
	c, err := v.Computers.Pause(ctx, "einstein", "")
	if err != nil || c.State != holt.ComputerPaused || c.Snapshot == "" {
		t.Fatalf("%+v %v", c, err)
	}
	s.Rests(t, true)
	if _, err := v.History.DeleteCheckpoint(ctx, "einstein", string(c.Snapshot), false, ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("the checkpoint of a snapshot was deleted beside it: %v", err)
	}
	if _, err := v.Snapshots.Delete(ctx, string(c.Snapshot), ""); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("what it is paused at was deleted: %v", err)
	}
	v.kill()
	v.again("")
	if c, err := v.Computers.Get(ctx, "einstein"); err != nil || c.State != holt.ComputerPaused {
		t.Fatalf("%+v %v", c, err)
	}
	if _, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "asleep"}, ""); err != nil {
		t.Fatal(err)
	}
	v.copies("einstein", "asleep")
	v.whole("asleep", least)
	v.cut("asleep")
	v.remove("asleep")
	if c, err := v.Computers.Get(ctx, "einstein"); err != nil || c.State != holt.ComputerPaused {
		t.Fatalf("with somebody attached, and forked: %+v %v", c, err)
	}
	// Beside the guest, whose kernel has it in memory.
	if _, err := v.WorkspaceFiles.Write(ctx, "einstein", "/mine", holt.WriteSpec{}, strings.NewReader("written while paused\n")); err != nil {
		t.Fatal(err)
	}
	least = v.goesOn("einstein", least) // this wakes it
	v.clock("einstein")
	v.until("einstein", "cat mine", "written while paused")
	v.cut("einstein")
	s.Rests(t, false) // woken by others
	least = v.whole("einstein", least)
	if _, err := v.Computers.Pause(ctx, "einstein", ""); err != nil {
		t.Fatal(err)
	}
	s.Rests(t, true)
	s.Type(t, "woken\"\n")
	s.Shows(t, "\nbegun:woken\r\n> ")
	v.leave(s, "\nbegun:woken\r\n> ")
	v.clock("einstein")
	v.cut("einstein")
	return least
}

// remove deletes a computer whose workspace is as it should be.
func (v *vm) remove(name string) {
	v.t.Helper()
	if report, err := v.Workspaces.Check(v.t.Context(), name); err != nil || len(report.Problems) > 0 {
		v.t.Errorf("check of %s: %v %v", name, report.Problems, err)
	}
	if _, err := v.Computers.Delete(v.t.Context(), name, ""); err != nil {
		v.t.Error(err)
	}
}
