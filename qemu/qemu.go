// Package qemu is the engine that runs machines as QEMU processes. See [Engine].
package qemu

import (
	"context"
	"log/slog"

	"holt"
	"holt/machine"
)

// Options says which QEMU runs machines and how.
type Options struct {
	Binary    string               // default: qemu-system-x86_64 from PATH
	ImgBinary string               // default: qemu-img from PATH
	CacheDir  string               // where the verdict of [Probe] is kept; default: it is not kept
	Accel     machine.Acceleration // default: what [Probe] finds
	Log       *slog.Logger         // nil: slog.Default
}

// Verdict is what QEMU on this host can do.
type Verdict struct {
	Binary      string               `json:"binary"`       // resolved path
	Version     string               `json:"version"`      // as "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"
	MachineType string               `json:"machine_type"` // the pinned q35, as "pc-q35-7.2"
	Accel       machine.Acceleration `json:"accel"`
	Reason      string               `json:"reason"` // a sentence: why this acceleration
}

// Engine runs machines as QEMU processes that outlive the daemon.
type Engine struct{ opt Options }

var errNotYet = holt.Errorf(holt.Unsupported, "not built yet")

// Probe looks at QEMU and at KVM: processor flags, then a boot of a tiny
// program with a deadline of 3 s in a process that is killed. Unsupported if
// QEMU is not installed.
func Probe(ctx context.Context, opt Options) (Verdict, error) { return Verdict{}, errNotYet }

// Open probes and returns an engine.
func Open(ctx context.Context, opt Options) (*Engine, error) { return nil, errNotYet }

// Verdict is what Open found.
func (e *Engine) Verdict() Verdict { return Verdict{} }

// Name is qemu-kvm or qemu-tcg.
func (e *Engine) Name() string { return "" }

// Capabilities implements [machine.Engine].
func (e *Engine) Capabilities() machine.Capabilities { return machine.Capabilities{} }

// CreateDisk makes a qcow2 overlay.
func (e *Engine) CreateDisk(ctx context.Context, path string, base machine.Base, sizeMB int) error {
	return errNotYet
}

// Start implements [machine.Engine].
func (e *Engine) Start(ctx context.Context, spec machine.Spec) (machine.Machine, error) {
	return nil, errNotYet
}

// Adopt implements [machine.Engine].
func (e *Engine) Adopt(ctx context.Context, dir string) (machine.Machine, error) {
	return nil, errNotYet
}

// Strays implements [machine.Engine].
func (e *Engine) Strays(root string) ([]machine.Stray, error) { return nil, errNotYet }
