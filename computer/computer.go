// Package computer is the central noun: a Linux machine with two disks, its
// life, its runs and its files.
package computer

import (
	"context"
	"io"

	"holt"
)

// Store is the set of computers of one daemon.
type Store struct{}

// Change says what Update changes. Nil fields stay as they are.
type Change struct {
	Name     *string `json:"name,omitempty"`
	CPUs     *int    `json:"cpus,omitempty" doc:"takes effect at the next start"`
	MemoryMB *int    `json:"memory_mb,omitempty" doc:"MiB; takes effect at the next start"`
}

var errNotYet = holt.Errorf(holt.Unsupported, "not built yet")

// Create makes and starts a computer and returns once its guest agent answers
// and its workspace is mounted. key is the idempotency key, or "". A create
// that fails leaves nothing.
func (s *Store) Create(ctx context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error) {
	return holt.Computer{}, errNotYet
}

// Get returns a computer by name or id.
func (s *Store) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return holt.Computer{}, errNotYet
}

// List returns all computers, oldest first.
func (s *Store) List(ctx context.Context) ([]holt.Computer, error) { return nil, errNotYet }

// Update renames a computer or changes its shape for the next start.
func (s *Store) Update(ctx context.Context, ref string, change Change) (holt.Computer, error) {
	return holt.Computer{}, errNotYet
}

// Delete ends the machine and removes its root disk, and the workspace that
// was made with it.
func (s *Store) Delete(ctx context.Context, ref, key string) error { return errNotYet }

// Start boots a stopped computer; a running one is left as it is.
func (s *Store) Start(ctx context.Context, ref, key string) (holt.Computer, error) {
	return holt.Computer{}, errNotYet
}

// Stop shuts a computer down and keeps both disks; a stopped one is left as it is.
func (s *Store) Stop(ctx context.Context, ref, key string) (holt.Computer, error) {
	return holt.Computer{}, errNotYet
}

// Logs writes the last n bytes of the machine's console to w, whole lines.
func (s *Store) Logs(ctx context.Context, ref string, n int64, w io.Writer) error { return errNotYet }

// Runs returns the runs of all computers.
func (s *Store) Runs() *Runs { return &Runs{s} }

// Files returns the files of all computers.
func (s *Store) Files() *Files { return &Files{s} }

// Runs is the commands that were run in computers.
type Runs struct{ s *Store }

// Start runs a command; a stopped computer is started first. It returns as
// soon as the command runs.
func (r *Runs) Start(ctx context.Context, ref string, spec holt.RunSpec, key string) (holt.Run, error) {
	return holt.Run{}, errNotYet
}

// Get returns a run.
func (r *Runs) Get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return holt.Run{}, errNotYet
}

// List returns the runs of a computer, newest first, at most limit (0: 100).
func (r *Runs) List(ctx context.Context, ref string, limit int) ([]holt.Run, error) {
	return nil, errNotYet
}

// Follow calls emit with the run's output from offset on, as it comes, and at
// last with its exit. It goes on across restarts of the channel to the guest.
// It returns the error of emit if that fails.
func (r *Runs) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	return errNotYet
}

// Input returns the standard input of a run that was started with Stdin.
// Closing it is the end of file.
func (r *Runs) Input(ctx context.Context, id holt.RunID) (io.WriteCloser, error) {
	return nil, errNotYet
}

// Signal sends a signal, as "SIGTERM" or "TERM", to all processes of a run.
func (r *Runs) Signal(ctx context.Context, id holt.RunID, signal string) (holt.Run, error) {
	return holt.Run{}, errNotYet
}

// Files is the files of computers. Paths are absolute paths in the guest. In
// a stopped computer what lies under /home/agent can be read.
type Files struct{ s *Store }

// Read writes n bytes of a file from offset on to w (n < 0: to its end).
func (f *Files) Read(ctx context.Context, ref, path string, offset, n int64, w io.Writer) error {
	return errNotYet
}

// WriteOptions says how a file is written.
type WriteOptions struct {
	Mode uint32 // permission bits; 0: 0644
	User string // Linux user who owns it; "": agent
}

// Write replaces a file's content with what r yields, atomically.
func (f *Files) Write(ctx context.Context, ref, path string, opt WriteOptions, r io.Reader) (holt.FileInfo, error) {
	return holt.FileInfo{}, errNotYet
}

// Stat describes a file, not following a symlink.
func (f *Files) Stat(ctx context.Context, ref, path string) (holt.FileInfo, error) {
	return holt.FileInfo{}, errNotYet
}

// List returns the entries of a directory by name.
func (f *Files) List(ctx context.Context, ref, path string) ([]holt.FileInfo, error) {
	return nil, errNotYet
}

// Mkdir makes a directory and its parents.
func (f *Files) Mkdir(ctx context.Context, ref, path string, opt WriteOptions) (holt.FileInfo, error) {
	return holt.FileInfo{}, errNotYet
}

// Remove removes a file or an empty directory, or with recursive a whole tree.
func (f *Files) Remove(ctx context.Context, ref, path string, recursive bool) error {
	return errNotYet
}

// Rename moves a file within the computer.
func (f *Files) Rename(ctx context.Context, ref, from, to string) error { return errNotYet }
