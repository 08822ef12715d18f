package daemon

import (
	"bytes"
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

// openEngine opens the engine that runs machines.
func openEngine(ctx context.Context, cfg Config, groups *cgroup.Tree, ledger computer.DiskLedger) (machine.Engine, error) {
	switch cfg.Engine {
	case "", EngineAuto, EngineQEMU:
		return qemu.Open(ctx, qemu.Options{CacheDir: cfg.DataDir, Groups: groups, Apart: apart(cfg), Ledger: ledger.Beneath, Log: cfg.Log})
	case EngineGVisor:
		guest, err := placeGuest(filepath.Join(cfg.DataDir, "bin"), cfg.GuestBinary)
		if err != nil {
			return nil, err
		}
		return gvisor.Open(gvisor.Options{Program: cfg.Sandbox, Guest: filepath.Dir(guest), Groups: groups, Log: cfg.Log})
	case EngineLocal:
		guest, err := placeGuest(filepath.Join(cfg.DataDir, "bin"), cfg.GuestBinary)
		if err != nil {
			return nil, err
		}
		return local.New(local.Options{Guest: guest, Log: cfg.Log}), nil
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "unknown engine %q", cfg.Engine).
			WithHint("use auto, qemu, gvisor or local")
	}
}

// apart returns the directories of the files of machines.
func apart(cfg Config) []string { return []string{cfg.DataDir, cfg.ImageDir} }

// placeGuest writes the guest agent to a file that the local engine runs. Machines
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
