package daemon_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
	"holt/internal/network"
)

// TestApart: where the daemon is root a computer's processes are users of their own, without capabilities, in
// namespaces of their own, and see their own files only. This holds for forks, for what is restored, and
// under the daemon that takes a computer over; with full counts also after a resize, pause and resume.
func TestApart(t *testing.T) {
	v := &vm{t: t, dir: virtualHome(t)}
	v.again("")
	ctx := t.Context()
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "einstein", MemoryMB: 256}, ""); err != nil {
		t.Fatal(err)
	}
	v.says("einstein", "echo one >/root/said; sync")
	v.goesApart("einstein", "one")
	if _, err := v.Computers.Snapshot(ctx, "einstein", holt.SnapshotSpec{Name: "then"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	v.goesApart("bohr", "one")
	users, processes := map[int]string{}, map[int]int{}
	for _, name := range []string{"einstein", "bohr"} {
		q, n := v.processes(name)
		for _, pid := range []int{q, n} {
			uid := v.confined(pid, pid == n)
			if other := users[uid]; other != "" {
				t.Errorf("a process of %s is the user of one of %s", name, other)
			}
			users[uid], processes[uid] = name, pid
		}
		v.sees(name, q)
		v.networkSees(name, n)
	}
	v.strangers(processes)

	v.says("einstein", "echo two >/root/said; sync")
	v.kill()
	v.again("")
	v.goesApart("einstein", "two")
	if !testing.Short() {
		v.resizedApart("einstein")
		v.goesApart("einstein", "two")
	}
	if _, err := v.Snapshots.Restore(ctx, "einstein@then", holt.SnapshotRestoreSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	v.goesApart("einstein", "one")
	q, n := v.processes("einstein")
	v.confined(q, false)
	v.confined(n, true)
	v.remove("einstein")
	v.remove("bohr")
	v.nothingKept()
	endAll(t, v.process)
}

// resizedApart has a computer go through a snapshot, a resize, pause and resume.
func (v *vm) resizedApart(name string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	_, err := v.Computers.Snapshot(ctx, name, holt.SnapshotSpec{Name: "later"}, "")
	was, err2 := v.Computers.Get(ctx, name)
	if err = errors.Join(err, err2); err == nil {
		_, err = v.Computers.Resize(ctx, name, holt.ResizeSpec{MemoryMB: was.MemoryMB + 128, DiskSizeMB: was.DiskSizeMB + 256}, "")
	}
	if err == nil {
		_, err = v.Computers.Pause(ctx, name, "")
	}
	if err == nil {
		_, err = v.Computers.Resume(ctx, name, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goesApart has a computer read and write its disk, and reach the host by its network process.
func (v *vm) goesApart(name, said string) {
	v.t.Helper()
	if got := v.says(name, "cat /root/said; dd if=/dev/urandom of=/root/new bs=1M count=4 conv=fsync 2>/dev/null && echo; holt self | head -c 1"); !strings.HasPrefix(got, said+"\n") || len(got) < len(said)+3 {
		v.t.Errorf("%s says %q", name, got)
	}
}

// processes are a computer's machine and its network.
func (v *vm) processes(name string) (qemu, net int) {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), name)
	if err != nil {
		v.t.Fatal(err)
	}
	dir := filepath.Join(v.dir, "computers", string(c.ID))
	all, err := machine.FindStrays(dir, func(machine.Process) bool { return true }, machine.Process.Kill)
	nets, err2 := network.Strays(dir)
	if err := errors.Join(err, err2); err != nil || len(all) != 1 || len(nets) != 1 {
		v.t.Fatalf("%s: %v %v %v", name, all, nets, err)
	}
	return all[0].Process.PID, nets[0].Process.PID
}

// confined looks at what a process may, and returns its user.
func (v *vm) confined(pid int, network bool) (uid int) {
	v.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		v.t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		has[name] = strings.Join(strings.Fields(value), " ")
	}
	if _, err := fmt.Sscan(has["Uid"], &uid); err != nil || uid < 0x70000000 || has["Uid"] != strings.TrimSuffix(strings.Repeat(fmt.Sprint(uid, " "), 4), " ") || has["Gid"] != has["Uid"] || has["Groups"] != "" {
		v.t.Errorf("user %s, group %s, groups %q", has["Uid"], has["Gid"], has["Groups"])
	}
	want := map[string]string{"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1"}
	other := []string{"mnt", "ipc", "uts"}
	if !network {
		want["Seccomp"] = "2"
		other = append(other, "net")
	}
	for name, value := range want {
		if has[name] != value {
			v.t.Errorf("%s of process %d is %s", name, pid, has[name])
		}
	}
	for _, ns := range other {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil || err2 != nil || own == its {
			v.t.Errorf("its namespace %s is %s, the host's %s: %v %v", ns, its, own, err, err2)
		}
	}
	return uid
}

// sees looks at which files of the data directory a machine's process sees, and what it may do with them.
func (v *vm) sees(name string, pid int) {
	v.t.Helper()
	root := fmt.Sprintf("/proc/%d/root", pid)
	c, err := v.Computers.Get(v.t.Context(), name)
	if err != nil {
		v.t.Fatal(err)
	}
	var uid uint32
	if info, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		uid = info.Sys().(*syscall.Stat_t).Uid
	}
	all := map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, v.dir), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all[strings.TrimPrefix(path, root)] = true
		}
		return err
	})
	if err != nil || len(all) == 0 {
		v.t.Errorf("%s sees %v, %v", name, all, err)
	}
	written, endLog := 0, "/computers/"+string(c.ID)+"/end.log" // where it says why it ends
	for path := range all {
		if sub := strings.TrimPrefix(path, v.dir); !strings.HasPrefix(sub, "/disks/") && !strings.HasPrefix(sub, "/snapshots/") && sub != "/computers/"+string(c.ID)+"/initrd" && sub != endLog {
			v.t.Errorf("%s sees %s", name, path)
		}
		if in(uid, root, "test", "-w", path) == nil {
			written++
		}
		// Nor can it be read as this user on the host, where the modes are what they were.
		if in(uid, "", "cat", path) == nil {
			v.t.Errorf("its user reads %s on the host", path)
		}
	}
	if written != 2 { // its disk and that log
		v.t.Errorf("%s may write to %d of %v", name, written, all)
	}
	for _, path := range ofDaemon {
		if _, err := os.Lstat(v.dir + path); err != nil && !strings.HasPrefix(path, "/holt.db-") {
			v.t.Errorf("holt keeps nothing in %s any more", path)
		}
		if in(uid, "", "cat", v.dir+path) == nil || in(uid, root, "test", "-e", v.dir+path) == nil {
			v.t.Errorf("its user reads %s", path)
		}
	}
}

// ofDaemon are the control database, which has the tokens' hashes and sealed secrets, and what else is the daemon's only.
var ofDaemon = []string{"/holt.db", "/holt.db-wal", "/holt.db-shm", "/lock", "/holt.sock"}

// networkSees looks at which files of the data directory a network's process sees.
func (v *vm) networkSees(name string, pid int) {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), name)
	if err != nil {
		v.t.Fatal(err)
	}
	root, own := fmt.Sprintf("/proc/%d/root", pid), filepath.Join(v.dir, "computers", string(c.ID))
	seen := 0
	err = filepath.WalkDir(filepath.Join(root, v.dir), func(path string, d fs.DirEntry, err error) error {
		inside := strings.TrimPrefix(path, root)
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		if !strings.HasPrefix(inside, own+"/") {
			v.t.Errorf("the network of %s sees %s", name, inside)
		}
		info, err := os.Lstat(path) // what lies there now: the directory has the names of what is hidden too
		if err == nil && info.Mode()&fs.ModeSocket != 0 && !strings.HasPrefix(d.Name(), "network") && d.Name() != "own.sock" {
			v.t.Errorf("the network of %s sees the socket %s", name, inside)
		}
		return err
	})
	if err != nil || seen == 0 {
		v.t.Errorf("the network of %s sees %d files, %v", name, seen, err)
	}
}

// strangers: no process of a computer may signal, trace or read one of another, nor of its own network, nor reach
// the daemon or another's sockets. On the host, that is: there is more before it than in its jail.
func (v *vm) strangers(processes map[int]int) {
	v.t.Helper()
	sockets, err := filepath.Glob(filepath.Join(v.dir, "computers", "*", "*.sock"))
	if err != nil || len(sockets) < 10 {
		v.t.Fatal(sockets, err)
	}
	sockets = append(sockets, filepath.Join(v.dir, "holt.sock"))
	for uid, own := range processes {
		err := as(uid, func() {
			for _, pid := range append(slices.Collect(maps.Values(processes)), v.process.cmd.Process.Pid) {
				if pid == own {
					continue
				}
				if err := unix.Kill(pid, 0); err == nil {
					v.t.Errorf("user %d may signal process %d", uid, pid)
				}
				if err := unix.PtraceAttach(pid); err == nil {
					v.t.Errorf("user %d may trace process %d", uid, pid)
				}
				for _, file := range []string{"mem", "environ", "maps"} {
					if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); !errors.Is(err, fs.ErrPermission) {
						v.t.Errorf("user %d reads %s of process %d: %v", uid, file, pid, err)
					}
				}
			}
			for _, path := range sockets {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
				if err != nil {
					v.t.Error(err)
				}
				if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.EACCES) {
					v.t.Errorf("user %d connects to %s: %v", uid, path, err)
				}
				unix.Close(fd)
			}
		})
		if err != nil {
			v.t.Error(err)
		}
	}
}

// as does something as a user, in a thread of its own.
func as(uid int, do func()) error {
	return jail.Thread(func() error {
		id := uintptr(uid)
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, errno := unix.RawSyscall(call, id, id, id); errno != 0 {
				return errno
			}
		}
		do()
		return nil
	})
}

// in runs a program as a user, in the root directory of a process.
func in(uid uint32, root string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run()
}
