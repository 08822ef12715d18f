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
	// GuestPath is the path of the program in a running machine.
	GuestPath = "/run/holt/holt-guest"
	// AgentName is its argv[0] there. At shutdown systemd does not kill processes
	// whose name begins with @.
	AgentName = "@holt-guest"

	initPath  = "/sbin/init"
	rootWait  = 10 * time.Second
	agentOwn  = "holt-agent" // the agent's own cgroup
	agentRAM  = "67108864"   // memory.min, bytes
	agentCPU  = "10000"      // cgroup2's maximum weight; the default is 100
	openFiles = 1 << 20      // soft and hard limit for runs; the kernel's fs.nr_open
)

// step is a step of boot.
type step struct {
	name string
	do   func() error
}

// Boot is PID 1 of the initramfs: it loads modules, mounts the root file
// system, starts the agent and becomes the root's init. It does not return: if
// a step fails it prints the error on the console and powers the machine off,
// rather than hang.
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
		{"raise limits", raiseLimits},
		{"start the agent", b.startAgent},
		{"prepare to list connections", loadDiag},
		{"start /sbin/init", b.becomeInit},
	} {
		if err := s.do(); err != nil {
			fail(s.name, err)
		}
	}
}

// note writes to the console and to the kernel's log.
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
	for { // the power-off failed; nothing else can be done
		time.Sleep(time.Hour)
	}
}

type boot struct {
	args    map[string]string
	sandbox bool
	agent   int // pid
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

// loadModules loads /m/*.ko in the order of names, which is that of
// dependencies. It logs a failure and continues; if the module was needed, a
// later step fails.
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

// loadDiag loads the modules for listing connections in a fork (see
// endConnections) from the root disk. The kernel would load them on demand, but
// with a helper program, while a fork waits. That still happens if the root
// disk does not have them here.
func loadDiag() error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	dir := filepath.Join("/usr/lib/modules", unix.ByteSliceToString(name.Release[:]), "kernel/net/ipv4")
	for _, module := range []string{"inet_diag.ko", "tcp_diag.ko"} { // in the order of dependency
		if err := loadModule(filepath.Join(dir, module)); err != nil && !errors.Is(err, unix.EEXIST) {
			kmsg(6, fmt.Sprintf("%s will be loaded on demand: %v", module, err))
			return nil
		}
	}
	return nil
}

// rootDevice returns the disk with the root file system.
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
		note("holt-guest: root file system keeps its size: %v\n", err) // continue with a small root
	}
	return nil
}

// prepareRun mounts the new root's /run and fills it.
func prepareRun() error {
	if err := os.MkdirAll("/new/run", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/new/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=20%,nr_inodes=800k"); err != nil {
		return err
	}
	return fillRun("/new")
}

// runtimeUnits is a directory of systemd for units and links that last until the power-off.
const runtimeUnits = "/run/systemd/system"

// fillRun copies this program to the /run of the root at root, so that it does
// not depend on the root file system.
func fillRun(root string) error {
	for _, dir := range []string{filepath.Dir(GuestPath), runtimeUnits} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			return err
		}
	}
	// A halted machine would keep its memory and never answer, so halt powers off.
	if err := os.Symlink("/usr/lib/systemd/system/poweroff.target", root+runtimeUnits+"/halt.target"); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return os.WriteFile(root+GuestPath, self, 0o755)
}

// enterRoot makes /new the root, as switch_root(8) does, and frees the memory of the initramfs.
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

const cgroupDir = "/sys/fs/cgroup"

// mountCgroups mounts cgroup2 as systemd would, unless it is mounted, and reserves
// the agent's share before anything else runs.
func mountCgroups() error {
	for _, options := range []string{"nsdelegate,memory_recursiveprot", "nsdelegate"} { // gVisor has only the first option
		if cgroupMount() != "" {
			break
		}
		err := unix.Mount("cgroup2", cgroupDir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, options)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	for _, c := range []string{"+cpu", "+memory", "+pids", "+io"} {
		os.WriteFile(cgroupDir+"/cgroup.subtree_control", []byte(c), 0)
	}
	own := filepath.Join(cgroupDir, agentOwn)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	// Without these controllers the agent works, but has no reserve.
	os.WriteFile(own+"/cpu.weight", []byte(agentCPU), 0)
	os.WriteFile(own+"/memory.min", []byte(agentRAM), 0)
	return nil
}

// mountTerminals mounts devpts as systemd would, because the agent opens
// terminals before systemd mounts it.
func mountTerminals() error {
	const dir = "/dev/pts"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Mount("devpts", dir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=620,gid=5,ptmxmode=000")
}

// startAgent starts the agent in its own session and cgroup.
func (b *boot) startAgent() error {
	own, err := unix.Open(filepath.Join(cgroupDir, agentOwn), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	files := []uintptr{0, 1, 2}
	if b.sandbox {
		files = append(files, lineIn, lineOut)
	}
	b.agent, err = syscall.ForkExec(GuestPath, b.agentArgs(), &syscall.ProcAttr{
		Dir: "/", Env: []string{"PATH=" + guestPath}, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: own},
	})
	return err
}

func (b *boot) agentArgs() []string {
	argv := []string{AgentName, "machine"}
	if b.sandbox {
		argv = append(argv, "--sandbox")
	}
	if arg := b.args[argNet]; arg != "" {
		argv = append(argv, "--net", arg)
	}
	return argv
}

// raiseLimits sets the limits of the image's limits.d, which sudo and su apply,
// for this process: the agent and so runs, terminals and sessions inherit them.
// cgroups limit their memory and number of processes.
func raiseLimits() (err error) {
	for _, l := range []struct {
		what string
		kind int
		most uint64
	}{
		{"open files", unix.RLIMIT_NOFILE, openFiles},
		{"locked memory", unix.RLIMIT_MEMLOCK, unix.RLIM_INFINITY},
		{"processes", unix.RLIMIT_NPROC, unix.RLIM_INFINITY},
	} {
		// Package syscall, because it restores its own record of RLIMIT_NOFILE in children.
		if failed := syscall.Setrlimit(l.kind, &syscall.Rlimit{Cur: l.most, Max: l.most}); failed != nil {
			err = errors.Join(err, fmt.Errorf("set limit of %s: %w", l.what, failed))
		}
	}
	return err
}

// becomeInit executes the root's init in this process. If the root has none,
// this process acts as init.
func (b *boot) becomeInit() error {
	err := syscall.Exec(initPath, []string{initPath}, []string{"PATH=" + guestPath, "TERM=linux"})
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return b.ownInit()
}

// ownInit is a minimal init: the usual mounts, and reaping orphans.
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
