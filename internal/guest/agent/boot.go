package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel arguments that the initramfs understands.
const (
	argRoot = "holt.root" // the root device; default /dev/vda
	argNet  = "holt.net"  // address/bits,gateway,nameserver
)

const (
	// GuestPath is where the program is in a running machine.
	GuestPath = "/run/holt/holt-guest"
	// AgentName is its argv[0] there. systemd spares processes whose name
	// begins with @ when it ends all others.
	AgentName = "@holt-guest"

	initPath  = "/sbin/init"
	rootWait  = 10 * time.Second
	agentOwn  = "holt-agent" // the agent's own cgroup
	agentRAM  = "67108864"   // bytes the kernel does not take from it
	agentCPU  = "10000"      // cgroup2's greatest weight; others have 100
	openFiles = 1 << 20      // of a run, soft and hard; the kernel's fs.nr_open
)

// step is one thing that boot does.
type step struct {
	name string
	do   func() error
}

// Boot is PID 1 of the initramfs: it loads the modules, mounts the root file
// system, starts the agent and becomes the root's init. It does not return: a
// step that fails is told on the console, and the machine powered off, since
// a machine that hangs helps nobody.
func Boot() {
	b := &boot{}
	for _, s := range []step{
		{"mount /proc, /sys and /dev", mountKernel},
		{"read the kernel's arguments", b.readArgs},
		{"load modules", loadModules},
		{"mount the root file system", b.mountRoot},
		{"prepare /run", prepareRun},
		{"enter the root file system", enterRoot},
		{"mount cgroups", mountCgroups},
		{"mount /dev/pts", mountTerminals},
		{"start the agent", b.startAgent},
		{"prepare to list connections", loadDiag},
		{"start /sbin/init", b.becomeInit},
	} {
		if err := s.do(); err != nil {
			fail(s.name, err)
		}
	}
}

// note tells the console and the kernel's log.
func note(format string, args ...any) {
	for _, path := range []string{"/dev/console", "/dev/kmsg"} {
		if f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0); err == nil {
			fmt.Fprintf(f, format, args...)
			f.Close()
		}
	}
}

func fail(name string, err error) {
	note("holt-guest: cannot %s: %v; powering off\n", name, err)
	powerOff()
	for { // the kernel has not taken our word; nothing else is left to do
		time.Sleep(time.Hour)
	}
}

type boot struct {
	args  map[string]string
	agent int // pid
}

func mountKernel() error {
	for _, m := range []struct{ dir, kind string }{{"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		err := unix.Mount(m.kind, m.dir, m.kind, unix.MS_NOSUID, "")
		if err != nil && !errors.Is(err, unix.EBUSY) { // the kernel may have mounted /dev
			return fmt.Errorf("%s: %w", m.dir, err)
		}
	}
	return nil
}

func (b *boot) readArgs() (err error) {
	b.args, err = kernelArgs()
	return err
}

func kernelArgs() (map[string]string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	args := map[string]string{}
	for _, f := range strings.Fields(string(line)) {
		k, v, _ := strings.Cut(f, "=")
		args[k] = v
	}
	return args, nil
}

// loadModules loads /m/*.ko in the order of their names, which is that of
// their dependencies. One that fails is told and left out: what is truly
// needed will be missed by a later step.
func loadModules() error {
	paths, err := filepath.Glob("/m/*.ko")
	if err != nil {
		return err
	}
	sort.Strings(paths)
	for _, path := range paths {
		if err := loadModule(path); err != nil && !errors.Is(err, unix.EEXIST) {
			kmsg(3, fmt.Sprintf("load %s: %v", path, err))
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// loadDiag loads what a fork of this machine lists its connections with (see
// endConnections) from the root disk. It would load by itself then, but by a program of
// its own, while somebody waits for the fork. A root that has it not, or not here, still does that.
func loadDiag() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	dir := filepath.Join("/usr/lib/modules", unix.ByteSliceToString(name.Release[:]), "kernel/net/ipv4")
	for _, module := range []string{"inet_diag.ko", "tcp_diag.ko"} { // in the order of dependency
		if err := loadModule(filepath.Join(dir, module)); err != nil && !errors.Is(err, unix.EEXIST) {
			kmsg(6, fmt.Sprintf("%s is loaded when it is needed: %v", module, err))
			return nil
		}
	}
	return nil
}

// rootDevice is the disk with the root file system.
func rootDevice(args map[string]string) string { return cmp.Or(args[argRoot], "/dev/vda") }

func (b *boot) mountRoot() error {
	device := rootDevice(b.args)
	end := time.Now().Add(rootWait)
	for {
		if _, err := os.Stat(device); err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not appear in %v", device, rootWait)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := os.MkdirAll("/new", 0o755); err != nil {
		return err
	}
	if err := unix.Mount(device, "/new", "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	if err := growRoot(device, "/new"); err != nil {
		note("holt-guest: root file system keeps its size: %v\n", err) // a small root is better than none
	}
	return nil
}

// prepareRun mounts the new root's /run and puts this program there, where
// the root file system's fate does not concern it.
func prepareRun() error {
	if err := os.MkdirAll("/new/run", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/new/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=20%,nr_inodes=800k"); err != nil {
		return err
	}
	if err := os.MkdirAll("/new"+filepath.Dir(GuestPath), 0o755); err != nil {
		return err
	}
	// A halted machine would take memory, and answer nothing, for ever: halt powers off.
	if err := os.MkdirAll("/new/run/systemd/system", 0o755); err != nil {
		return err
	}
	if err := os.Symlink("/usr/lib/systemd/system/poweroff.target", "/new/run/systemd/system/halt.target"); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile("/new"+GuestPath, self, 0o755)
}

// enterRoot makes /new the root, as switch_root(8) does, and frees the
// initramfs's memory.
func enterRoot() error {
	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := os.MkdirAll("/new"+dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, "/new"+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	os.RemoveAll("/m")
	os.Remove("/init")
	if err := unix.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// mountCgroups mounts cgroup2 as systemd would and sets the agent's share
// aside before anything else runs.
func mountCgroups() error {
	const dir = "/sys/fs/cgroup"
	err := unix.Mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME,
		"nsdelegate,memory_recursiveprot")
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	for _, c := range []string{"+cpu", "+memory", "+pids", "+io"} {
		os.WriteFile(dir+"/cgroup.subtree_control", []byte(c), 0)
	}
	own := filepath.Join(dir, agentOwn)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	// Without these controllers the agent has no reserve, but works.
	os.WriteFile(own+"/cpu.weight", []byte(agentCPU), 0)
	os.WriteFile(own+"/memory.min", []byte(agentRAM), 0)
	return nil
}

// mountTerminals mounts devpts as systemd would, which leaves it so: the agent opens
// terminals before systemd comes to that.
func mountTerminals() error {
	const dir = "/dev/pts"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Mount("devpts", dir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=620,gid=5,ptmxmode=000")
}

// startAgent starts the agent in its own session and cgroup.
func (b *boot) startAgent() error {
	if err := raiseLimits(); err != nil {
		return err
	}
	own, err := unix.Open(filepath.Join("/sys/fs/cgroup", agentOwn), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	argv := []string{AgentName, "machine"}
	if arg := b.args[argNet]; arg != "" {
		argv = append(argv, "--net", arg)
	}
	b.agent, err = syscall.ForkExec(GuestPath, argv, &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=" + guestPath}, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: own},
	})
	return err
}

// raiseLimits gives this process the limits that the image's limits.d gives to those of sudo and su: the agent,
// and so runs, terminals and sessions inherit them. Their memory and number of processes is limited by cgroups.
func raiseLimits() error {
	for _, l := range []struct {
		what string
		kind int
		most uint64
	}{
		{"open files", unix.RLIMIT_NOFILE, openFiles},
		{"locked memory", unix.RLIMIT_MEMLOCK, unix.RLIM_INFINITY},
		{"processes", unix.RLIMIT_NPROC, unix.RLIM_INFINITY},
	} {
		// The syscall package's, since it is its record of open files that children are started with.
		if err := syscall.Setrlimit(l.kind, &syscall.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("set limit of %s: %w", l.what, err)
		}
	}
	return nil
}

// becomeInit runs the root's own init in this process. A root that has none is
// looked after by this one.
func (b *boot) becomeInit() error {
	err := syscall.Exec(initPath, []string{initPath}, []string{"PATH=" + guestPath, "TERM=linux"})
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return b.ownInit()
}

// ownInit is all that a machine without an init needs: the usual mounts, and
// somebody to reap orphans.
func (b *boot) ownInit() error {
	for _, m := range []struct{ source, dir, options string }{
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/tmp", "mode=1777"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.dir, m.source, unix.MS_NOSUID, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == nil && pid == b.agent {
			return fmt.Errorf("keep the agent: it ended with status %d", status)
		}
		if errors.Is(err, unix.ECHILD) {
			return errors.New("keep the agent: it is gone")
		}
	}
}
