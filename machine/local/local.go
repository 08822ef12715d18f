// Package local is the engine without a virtual machine: the guest agent runs
// as a host process in namespaces of its own. See [Engine].
package local

import (
	"context"
	"log/slog"

	"holt"
	"holt/machine"
)

// Options says how machines are run.
type Options struct {
	Guest string       // path of the holt-guest program
	Log   *slog.Logger // nil: slog.Default
}

// Engine runs the guest agent as PID 1 of new PID, mount, UTS and IPC
// namespaces. It isolates nothing: for tests and development.
type Engine struct{ opt Options }

// New returns an engine. It does no I/O.
func New(opt Options) *Engine { return &Engine{opt: opt} }

var errNotYet = holt.Errorf(holt.Unsupported, "not built yet")

// Name is "local".
func (e *Engine) Name() string { return "local" }

// Capabilities: none of a virtual machine's.
func (e *Engine) Capabilities() machine.Capabilities {
	return machine.Capabilities{Acceleration: machine.AccelNone}
}

// CreateDisk makes a marker file: there is no root disk.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	return errNotYet
}

// Start implements [machine.Engine]. Unsupported without root.
func (e *Engine) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	return nil, errNotYet
}

// Adopt implements [machine.Engine].
func (e *Engine) Adopt(ctx context.Context, dir string) (machine.Machine, error) {
	return nil, errNotYet
}

// Strays implements [machine.Engine].
func (e *Engine) Strays(root string) ([]machine.Stray, error) { return nil, errNotYet }
