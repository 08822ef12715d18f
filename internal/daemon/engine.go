package daemon

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/computer"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/engine/qemu"
	"holt/internal/hosterror"
)

// The values of [Config].Engine.
const (
	EngineAuto   = "auto"
	EngineQEMU   = "qemu"
	EngineGVisor = "gvisor"
	EngineLocal  = "local"
)

// openEngines opens the engines that work on this host. cfg.Engine chooses the default: auto is QEMU
// where KVM works, or else gVisor, or else QEMU's software emulation. A daemon with the local engine,
// which is for tests, has only that.
//
// Errors: InvalidArgument (an unknown name), Unsupported if the default does not work here.
func openEngines(ctx context.Context, cfg Config, groups *cgroup.Tree, ledger computer.DiskLedger) (computer.Engines, error) {
	none := computer.Engines{}
	switch cfg.Engine {
	case "", EngineAuto, EngineQEMU, EngineGVisor:
	case EngineLocal:
		guest, err := placeGuest(filepath.Join(cfg.DataDir, "bin"), cfg.GuestBinary)
		if err != nil {
			return none, err
		}
		return computer.Engines{Default: local.New(local.Options{Guest: guest, Log: cfg.Log})}, nil
	default:
		return none, holt.Errorf(holt.InvalidArgument, "unknown engine %q", cfg.Engine).
			WithHint("use auto, qemu, gvisor or local")
	}
	missing := map[string]error{}
	virtual, err := qemu.Open(ctx, qemu.Options{CacheDir: cfg.DataDir, Groups: groups, Apart: apart(cfg), Ledger: ledger.Beneath, Log: cfg.Log})
	if ctx.Err() != nil {
		return none, err
	}
	missing[EngineQEMU] = err
	sandboxes, err := openGVisor(cfg, groups)
	missing[EngineGVisor] = err

	choice := cfg.Engine
	if choice == "" || choice == EngineAuto {
		choice = EngineQEMU
		if missing[EngineGVisor] == nil && (missing[EngineQEMU] != nil || virtual.Capabilities().Acceleration != machine.AccelKVM) {
			choice = EngineGVisor
		}
	}
	if err := missing[choice]; err != nil {
		return none, err
	}
	all := computer.Engines{Missing: missing}
	add := func(family string, e machine.Engine) {
		switch {
		case missing[family] != nil:
			cfg.Log.InfoContext(ctx, "this host does not have an engine", "engine", family, "why", missing[family])
		case family == choice:
			all.Default = e
		default:
			all.Others = append(all.Others, e)
		}
	}
	add(EngineQEMU, virtual)
	add(EngineGVisor, sandboxes)
	kvm := ""
	if virtual != nil {
		kvm = virtual.Verdict().Reason
	}
	cfg.Log.InfoContext(ctx, "computers run by default on the engine "+all.Default.Name(), "asked", cmp.Or(cfg.Engine, EngineAuto), "kvm", kvm)
	return all, nil
}

func openGVisor(cfg Config, groups *cgroup.Tree) (machine.Engine, error) {
	guest, err := placeGuest(filepath.Join(cfg.DataDir, "bin"), cfg.GuestBinary)
	if err != nil {
		return nil, err
	}
	return gvisor.Open(gvisor.Options{Program: cfg.Sandbox, Guest: filepath.Dir(guest), Kept: filepath.Join(cfg.DataDir, "gvisor"), Groups: groups, Log: cfg.Log})
}

// apart returns the directories of the files of machines.
func apart(cfg Config) []string { return []string{cfg.DataDir, cfg.ImageDir} }

// placeGuest writes the guest agent to a file that the local and gvisor engines run. Machines
// that run an older agent keep it.
func placeGuest(dir string, binary []byte) (string, error) {
	path := filepath.Join(dir, "holt-guest")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, binary) {
		return path, nil
	}
	if len(binary) == 0 {
		return "", holt.Errorf(holt.Unsupported, "this holt was built without a guest agent").WithHint("build it with make build")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", hosterror.Describe(fmt.Errorf("place guest agent: %w", err))
	}
	f, err := os.CreateTemp(dir, "holt-guest.")
	if err != nil {
		return "", hosterror.Describe(fmt.Errorf("place guest agent: %w", err))
	}
	_, err = f.Write(binary)
	if err == nil {
		err = f.Chmod(0o755)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", hosterror.Describe(fmt.Errorf("place guest agent: %w", err))
	}
	return path, nil
}
