// Package daemon wires the nouns together: it opens them in order, closes
// them in reverse, and keeps the registry of workspaces and host mounts.
package daemon

import (
	"context"
	"log/slog"
	"time"

	"holt"
	"holt/access"
	"holt/computer"
)

// Config says where a daemon keeps its things and what it runs machines with.
type Config struct {
	DataDir     string
	ImageDir    string       // default: DataDir/images
	Engine      string       // "auto" (the default), "qemu" or "local"
	GuestBinary []byte       // the guest agent, put into images and run by the local engine
	TCP         bool         // a first token is made if there is none
	Log         *slog.Logger // nil: slog.Default
}

// Daemon is everything one data directory holds, opened.
type Daemon struct{}

// Open opens the data directory and takes its machines over again.
func Open(ctx context.Context, cfg Config) (*Daemon, error) {
	return nil, holt.Errorf(holt.Unsupported, "not built yet")
}

// Close lets go of everything in reverse order; machines keep running.
func (d *Daemon) Close() error { return nil }

// Computers returns the computers.
func (d *Daemon) Computers() *computer.Store { return nil }

// Workspaces returns the registry of workspaces.
func (d *Daemon) Workspaces() *Workspaces { return nil }

// Tokens returns the API tokens.
func (d *Daemon) Tokens() *access.Tokens { return nil }

// FirstToken returns the secret of the token made by this Open, or "".
func (d *Daemon) FirstToken() string { return "" }

// Down stops all computers (mode "stop"; "pause" is Unsupported for now),
// unmounts all host mounts, and makes Done ready.
func (d *Daemon) Down(ctx context.Context, mode string) error { return nil }

// Done is closed when Down has finished: the process should end.
func (d *Daemon) Done() <-chan struct{} { return nil }

// Workspaces is the registry of workspaces and their host mounts.
type Workspaces struct{}

// QueryLimits bounds a query; zero fields take the defaults.
type QueryLimits struct {
	Rows int
	Time time.Duration
}

// Create makes an empty workspace. key is the idempotency key, or "".
func (w *Workspaces) Create(ctx context.Context, name, key string) (holt.Workspace, error) {
	return holt.Workspace{}, holt.Errorf(holt.Unsupported, "not built yet")
}

// Get returns a workspace by name or id.
func (w *Workspaces) Get(ctx context.Context, ref string) (holt.Workspace, error) {
	return holt.Workspace{}, holt.Errorf(holt.Unsupported, "not built yet")
}

// List returns all workspaces, oldest first.
func (w *Workspaces) List(ctx context.Context) ([]holt.Workspace, error) { return nil, nil }

// Delete removes a workspace that nothing uses.
func (w *Workspaces) Delete(ctx context.Context, ref, key string) error { return nil }

// Check recomputes everything the workspace says about itself.
func (w *Workspaces) Check(ctx context.Context, ref string) (holt.CheckReport, error) {
	return holt.CheckReport{}, nil
}

// Query runs one SQL SELECT over the workspace.
func (w *Workspaces) Query(ctx context.Context, ref, sql string, limits QueryLimits) (holt.QueryResult, error) {
	return holt.QueryResult{}, nil
}

// Mount mounts a workspace at a host directory; read-write only when no
// computer and no other mount has it so.
func (w *Workspaces) Mount(ctx context.Context, ref, dir string, readOnly bool) (holt.Mount, error) {
	return holt.Mount{}, nil
}

// Unmount ends the host mount at dir.
func (w *Workspaces) Unmount(ctx context.Context, dir string) error { return nil }
