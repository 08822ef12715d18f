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
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/engine/qemu"
)

// The engines that can be asked for.
const (
	EngineAuto  = "auto"
	EngineQEMU  = "qemu"
	EngineLocal = "local"
)

// openEngine returns what runs machines here.
func openEngine(ctx context.Context, cfg Config, groups *cgroup.Tree, ledger computer.DiskLedger) (machine.Engine, error) {
	switch cfg.Engine {
	case "", EngineAuto, EngineQEMU:
		return qemu.Open(ctx, qemu.Options{CacheDir: cfg.DataDir, Groups: groups, Apart: apart(cfg), Ledger: ledger.Beneath, Log: cfg.Log})
	case EngineLocal:
		guest, err := placeGuest(filepath.Join(cfg.DataDir, "bin"), cfg.GuestBinary)
		if err != nil {
			return nil, err
		}
		return local.New(local.Options{Guest: guest, Log: cfg.Log}), nil
	default:
		return nil, holt.Errorf(holt.InvalidArgument, "there is no engine %q", cfg.Engine).
			WithHint("the engines are: auto, qemu, local")
	}
}

// apart are the directories that the files of machines are in.
func apart(cfg Config) []string { return []string{cfg.DataDir, cfg.ImageDir} }

// placeGuest puts the guest agent where the local engine can run it. Machines
// that run an older one keep that.
func placeGuest(dir string, binary []byte) (string, error) {
	path := filepath.Join(dir, "holt-guest")
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, binary) {
		return path, nil
	}
	if len(binary) == 0 {
		return "", holt.Errorf(holt.Unsupported, "this holt was built without a guest agent").WithHint("build it with make build")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", described(fmt.Errorf("place guest agent: %w", err))
	}
	f, err := os.CreateTemp(dir, "holt-guest.")
	if err != nil {
		return "", described(fmt.Errorf("place guest agent: %w", err))
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
		return "", described(fmt.Errorf("place guest agent: %w", err))
	}
	return path, nil
}
