package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/engine/machine"
)

// engineName is the name of the engine for users and records.
const engineName = "local"

// Options configure the engine.
type Options struct {
	Guest string       // path of the holt-guest program
	Log   *slog.Logger // nil: slog.Default
}

// Engine runs the guest agent in namespaces of this host. It is a [machine.Engine].
type Engine struct {
	guest  string
	log    *slog.Logger
	claims machine.Claims
}

// New returns an engine. It does no I/O; Start fails on a host that does not support it.
func New(opt Options) *Engine {
	log := opt.Log
	if log == nil {
		log = slog.Default()
	}
	return &Engine{guest: opt.Guest, log: log}
}

func (e *Engine) Name() string { return engineName }

// Capabilities implements [machine.Engine].
func (e *Engine) Capabilities() machine.Capabilities {
	return machine.Capabilities{Acceleration: machine.AccelNone}
}

// DiskBase implements [machine.Engine]: its disks have no base.
func (e *Engine) DiskBase(context.Context, string) (machine.Base, error) { return machine.Base{}, nil }

// CreateDisk creates an empty placeholder, since machines have no disk. The base need not exist.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	if !filepath.IsAbs(path) || sizeMB < 1 {
		return holt.Errorf(holt.InvalidArgument, "invalid disk of %d MiB at %q", sizeMB, path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	if err != nil {
		return fmt.Errorf("create disk: %w", err)
	}
	return f.Close()
}

// GrowDisk implements [machine.Engine].
func (e *Engine) GrowDisk(context.Context, string, int) error { return nil }

// MergeDisk implements [machine.Engine]: it removes one of two placeholders.
func (e *Engine) MergeDisk(_ context.Context, _, under string) error {
	if err := os.Remove(under); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("merge disk: %w", err)
	}
	return nil
}

// FlattenDisk implements [machine.Engine].
func (e *Engine) FlattenDisk(_ context.Context, _, _, to string) error {
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		return fmt.Errorf("flatten disk: %w", err)
	}
	return nil
}

// Strays implements [machine.Engine].
func (e *Engine) Strays(root string) ([]machine.Stray, error) {
	return machine.FindStrays(root, func(p machine.Process) bool {
		return !e.claims.Has(p) && machine.IsInit(p.PID)
	}, machine.KillInit)
}
