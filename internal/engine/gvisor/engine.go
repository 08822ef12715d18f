package gvisor

import (
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
)

// EngineName is the name of the engine for users and records.
const EngineName = "gvisor"

// Version is the version of gVisor, as in go.mod.
const Version = "v0.0.0-20260905035102-160fafc42237"

// self is this program.
const self = "/proc/self/exe"

// Options configure the engine.
type Options struct {
	Program string       // the program that calls sandbox.Dispatch; default: this one
	Guest   string       // directory with the program holt-guest, and nothing else
	Kept    string       // directory for copies of Program, by version, which restore older images; "": none are kept
	Groups  *cgroup.Tree // limits of machines; nil: no limits
	Log     *slog.Logger // nil: slog.Default
}

// Engine runs gVisor sandboxes. It is a [machine.Engine].
type Engine struct {
	program string
	guest   string
	kept    string
	groups  *cgroup.Tree
	log     *slog.Logger
	claims  machine.Claims
	keeping sync.Mutex // see keep
}

// Open checks the host and returns an engine.
//
// Errors: Unsupported if the host lacks what the engine needs.
func Open(opt Options) (*Engine, error) {
	if err := Check(opt.Program); err != nil {
		return nil, err
	}
	e := &Engine{program: cmp.Or(opt.Program, self), guest: opt.Guest, kept: opt.Kept, groups: opt.Groups, log: opt.Log}
	if e.log == nil {
		e.log = slog.Default()
	}
	return e, nil
}

// static returns Unsupported unless a program is linked statically. A sandbox runs its program in an empty root, where
// a dynamic loader would find no libraries.
func static(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read the program of sandboxes: %w", err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return holt.Errorf(holt.Unsupported, "the gvisor engine needs a statically linked program, and %s is not", program).
				WithHint("build it with make build, or with CGO_ENABLED=0")
		}
	}
	return nil
}

// Check returns Unsupported, with the reason, if this host cannot run sandboxes of a program, see [Options]. If
// only packages are missing, they are the error's detail "install".
func Check(program string) error {
	if os.Geteuid() != 0 {
		return holt.Errorf(holt.Unsupported, "the gvisor engine needs root to mount root disks").
			WithHint("run holt as root, or use holt up --engine qemu")
	}
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(device); err != nil {
			return holt.Errorf(holt.Unsupported, "the gvisor engine needs %s: %w", device, err).
				WithHint("load the kernel's modules fuse and loop")
		}
	}
	overlay, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC) // loads the kernel's module
	if err != nil {
		return holt.Errorf(holt.Unsupported, "the gvisor engine needs overlayfs: %w", err).WithHint("load the kernel's module overlay")
	}
	unix.Close(overlay)
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER} // as gVisor starts what serves files; see user_namespaces(7)
	if err := cmd.Run(); err != nil {
		return holt.Errorf(holt.Unsupported, "the gvisor engine needs a user namespace: %w", err).
			WithHint("run holt outside of a chroot, and check that the sysctl user.max_user_namespaces is not 0; or use holt up --engine qemu")
	}
	if err := static(cmp.Or(program, self)); err != nil {
		return err
	}
	if _, err := exec.LookPath(formatter); err != nil {
		missing := holt.Errorf(holt.Unsupported, "%s is not installed: %w", formatter, err).WithHint("apt-get install e2fsprogs")
		missing.Detail = map[string]any{"install": []string{"e2fsprogs"}}
		return missing
	}
	return nil
}

func (e *Engine) Name() string { return EngineName }

// Capabilities implements [machine.Engine].
func (e *Engine) Capabilities() machine.Capabilities {
	return machine.Capabilities{
		Acceleration:   machine.AccelNone,
		Version:        Version,
		Isolated:       true,
		RootDisk:       true,
		OwnNetwork:     true,
		MemorySnapshot: true,
		OverheadMB:     usualMB,
		PowerButton:    true,
	}
}

// Strays implements [machine.Engine].
func (e *Engine) Strays(root string) ([]machine.Stray, error) {
	return machine.FindStrays(root, func(p machine.Process) bool {
		return !e.claims.Has(p) && isKeeper(p.PID)
	}, machine.KillInit)
}

// isKeeper reports whether a process is the keeper of a sandbox.
func isKeeper(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	return err == nil && name == KeeperName && machine.IsInit(pid)
}

// Ended implements [machine.Engine].
func (e *Engine) Ended(dir string) machine.Ending {
	b, _ := os.ReadFile(filepath.Join(dir, EndFile)) // usually there is none
	switch kind := machine.EndKind(b); kind {
	case machine.EndReboot, machine.EndOff:
		return machine.Ending{Kind: kind}
	}
	return machine.Ending{}
}

// DiskBase implements [machine.Engine].
func (e *Engine) DiskBase(_ context.Context, path string) (machine.Base, error) {
	h, err := ReadDiskHeader(path)
	return h.Base, err
}
