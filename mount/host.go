package mount

import (
	"context"
	"log/slog"

	"holt"
	"holt/workspace"
)

// HostOptions say how to mount on the host. The zero value mounts read-write.
type HostOptions struct {
	ReadOnly bool             // a second mount: nothing is cached, nothing can be changed
	Writer   workspace.Writer // whom changes are attributed to
	Log      *slog.Logger     // nil discards
}

// HostMount is a workspace mounted on a directory of the host.
type HostMount struct {
	done chan struct{}
}

// Host mounts ws on dir, an existing directory, and serves it until Unmount,
// or until someone else unmounts it. ctx bounds the mounting only.
func Host(ctx context.Context, ws *workspace.Workspace, dir string, opt HostOptions) (*HostMount, error) {
	return nil, holt.Errorf(holt.Unsupported, "mount workspace: not built yet")
}

// Dir returns the directory it is mounted on.
func (m *HostMount) Dir() string { return "" }

// Done is closed when the mount is gone, whoever ended it.
func (m *HostMount) Done() <-chan struct{} { return m.done }

// Unmount ends the mount within a few seconds, busy or not: what still uses it
// gets ENOTCONN.
func (m *HostMount) Unmount() error { return nil }

// Clear unmounts what a killed daemon left on dir: a FUSE mount that answers
// ENOTCONN. It does nothing when dir holds no dead mount.
func Clear(dir string) error { return nil }
