package qemu

import (
	"context"
	"log/slog"
	"os/exec"
	"time"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
)

// Options configure the engine.
type Options struct {
	Binary    string               // default: qemu-system-x86_64 from PATH
	ImgBinary string               // default: qemu-img from PATH
	CacheDir  string               // cache for the verdict of [Probe]; default: none
	Accel     machine.Acceleration // default: by [Probe]
	Groups    *cgroup.Tree         // limits of machines; nil: no limits
	// Apart are existing directories that contain all files of machines. If set,
	// and the host supports it (see [jail.Check]), QEMU runs in a jail with a user
	// of its own. Otherwise it runs as this process's user.
	Apart []string
	// Ledger returns the disks that a disk may lie over, from the top down, as
	// recorded when they were created. Disk headers that name others are refused,
	// because a guest that has compromised its QEMU can write them. Nil: headers
	// are trusted.
	Ledger func(ctx context.Context, disk string) ([]string, error)
	Log    *slog.Logger // nil: slog.Default
}

// Engine runs machines as QEMU processes that outlive the daemon. It is a [machine.Engine].
type Engine struct {
	verdict Verdict
	img     string // qemu-img
	groups  *cgroup.Tree
	apart   bool                                                     // machines are in jails
	ledger  func(ctx context.Context, disk string) ([]string, error) // see [Options]
	log     *slog.Logger
	wait    time.Duration // see monitorWait
	claims  machine.Claims

	startWait time.Duration // see the constant

	stepping func(step string) // called before each step of a snapshot, by tests
}

// Open probes the host and returns an engine.
//
// Errors: Unsupported if QEMU is not installed.
func Open(ctx context.Context, opt Options) (*Engine, error) {
	v, err := Probe(ctx, opt)
	if err != nil {
		return nil, err
	}
	switch opt.Accel {
	case "":
	case machine.AccelKVM, machine.AccelTCG:
		v.Accel, v.Reason = opt.Accel, "it was requested"
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "invalid acceleration %q: use kvm or tcg", clip(string(opt.Accel)))
	}
	img := opt.ImgBinary
	if img == "" {
		img = "qemu-img"
	}
	if img, err = exec.LookPath(img); err != nil {
		return nil, holt.Errorf(holt.Unsupported, "qemu-img is not installed: %w", err).
			WithHint("install the package qemu-utils")
	}
	log := opt.Log
	if log == nil {
		log = slog.Default()
	}
	e := &Engine{verdict: v, img: img, groups: opt.Groups, ledger: opt.Ledger, log: log, wait: monitorWait, startWait: startWait}
	e.apart = apart(v.Binary, opt, log)
	return e, nil
}

// Verdict returns what Open found.
func (e *Engine) Verdict() Verdict { return e.verdict }

// Name is qemu-kvm or qemu-tcg.
func (e *Engine) Name() string { return "qemu-" + string(e.verdict.Accel) }

// Capabilities implements [machine.Engine].
func (e *Engine) Capabilities() machine.Capabilities {
	return machine.Capabilities{
		Acceleration:     e.verdict.Accel,
		Version:          e.verdict.Version,
		Isolated:         true,
		OwnKernel:        true,
		OwnUser:          e.apart,
		RootDisk:         true,
		OwnNetwork:       true,
		NestedContainers: true,
		MemorySnapshot:   true,
		OverheadMB:       e.overhead(),
		Growing:          true,
		PowerButton:      true,
	}
}

// step tells a test the current step of a snapshot.
func (e *Engine) step(name string) {
	if e.stepping != nil {
		e.stepping(name)
	}
}

// Strays implements [machine.Engine].
func (e *Engine) Strays(root string) ([]machine.Stray, error) {
	return machine.FindStrays(root, func(p machine.Process) bool {
		return !e.claims.Has(p) && isQEMU(p.PID)
	}, machine.Process.Kill)
}
