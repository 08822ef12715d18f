package agent

import (
	"context"
	"io"
	"net"
	"time"

	"holt"
)

// Hello is how a guest agent introduces itself.
type Hello struct {
	Protocol  int       `json:"protocol"`
	Version   string    `json:"version"`  // of the agent's build
	Instance  string    `json:"instance"` // random, of this agent process; runs are lost with it
	BootID    string    `json:"boot_id"`  // of the guest's kernel
	Hostname  string    `json:"hostname"`
	UptimeMS  int64     `json:"uptime_ms"` // of the guest, milliseconds
	Now       time.Time `json:"now"`       // the guest's clock
	Workspace bool      `json:"workspace"` // the workspace is mounted and the host serves it
	Runs      int       `json:"runs"`      // running now
}

// Identity is what makes a machine itself; zero fields are left as they are.
type Identity struct {
	Hostname string      `json:"hostname,omitempty"` // a DNS label
	Now      time.Time   `json:"now,omitzero"`       // sets the clock
	Entropy  []byte      `json:"entropy,omitempty"`  // at most 512 bytes; the kernel's generator is reseeded
	Hosts    []HostEntry `json:"hosts,omitempty"`    // holt's block in /etc/hosts is replaced by these
}

// HostEntry is one line of /etc/hosts.
type HostEntry struct {
	Address string   `json:"address"`
	Names   []string `json:"names"`
}

// FileEvent is one change seen by Watch.
type FileEvent struct {
	Kind FileEventKind `json:"kind"`
	Path string        `json:"path"`
	From string        `json:"from,omitempty"` // for rename: the old path
	Dir  bool          `json:"dir,omitempty"`
}

// FileEventKind says what a [FileEvent] is.
type FileEventKind string

// The kinds of file events. A rename out of the watched tree is a remove, one
// into it a create.
const (
	FileCreated  FileEventKind = "create"
	FileWritten  FileEventKind = "write"
	FileRemoved  FileEventKind = "remove"
	FileRenamed  FileEventKind = "rename"
	FileChanged  FileEventKind = "attrib"   // mode, owner or times
	FileOverflow FileEventKind = "overflow" // events were lost or directories are not watched: look for yourself
)

// Throughput is what Measure found.
type Throughput struct {
	IntoGuest  float64 // MB/s, 10⁶ bytes
	OutOfGuest float64 // MB/s
}

// Client is the host's side of one guest's control channel. Its methods may be
// called concurrently. Their errors are *holt.Error: the guest's own, or
// Unavailable when the channel has ended, or Timeout when ctx has.
type Client struct{}

var errSkeleton = holt.Errorf(holt.Unsupported, "not built yet")

// NewClient speaks to the guest over conn, a session made by channel.Dial. It
// owns conn.
func NewClient(conn net.Conn) (*Client, error) { return nil, errSkeleton }

// Close ends the channel. Runs go on.
func (c *Client) Close() error { return nil }

// Done is closed when the channel has ended.
func (c *Client) Done() <-chan struct{} { return nil }

// Hello asks who answers.
func (c *Client) Hello(ctx context.Context) (Hello, error) { return Hello{}, errSkeleton }

// Measure moves bytes each way and times them.
func (c *Client) Measure(ctx context.Context, into, out int64) (Throughput, error) {
	return Throughput{}, errSkeleton
}

// Configure gives the machine its identity.
func (c *Client) Configure(ctx context.Context, id Identity) error { return errSkeleton }

// Freeze flushes and freezes the root file system until Thaw or until limit has
// passed (zero: 10 s; at most 60 s).
func (c *Client) Freeze(ctx context.Context, limit time.Duration) error { return errSkeleton }

// Thaw ends a freeze; it is no error if there is none.
func (c *Client) Thaw(ctx context.Context) error { return errSkeleton }

// Shutdown begins a clean power-off and returns.
func (c *Client) Shutdown(ctx context.Context) error { return errSkeleton }

// DialPort connects to an address in the guest: network tcp or unix. The
// connection has CloseWrite.
func (c *Client) DialPort(ctx context.Context, network, address string) (net.Conn, error) {
	return nil, errSkeleton
}

// StartRun starts a run. Repeated with the same id it returns that run.
func (c *Client) StartRun(ctx context.Context, id holt.RunID, spec holt.RunSpec) (holt.Run, error) {
	return holt.Run{}, errSkeleton
}

// GetRun returns a run as it is now.
func (c *Client) GetRun(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return holt.Run{}, errSkeleton
}

// Runs lists the runs the guest remembers, oldest first.
func (c *Client) Runs(ctx context.Context) ([]holt.Run, error) { return nil, errSkeleton }

// FollowRun calls event with the run's output from offset on, and at last with
// its exit, after which it returns nil.
func (c *Client) FollowRun(ctx context.Context, id holt.RunID, offset int64, event func(holt.RunEvent) error) error {
	return errSkeleton
}

// RunInput opens the run's standard input. Close ends the input; a channel that
// breaks does not.
func (c *Client) RunInput(ctx context.Context, id holt.RunID) (io.WriteCloser, error) {
	return nil, errSkeleton
}

// SignalRun sends a signal by name (SIGTERM or TERM) to every process of a run,
// also to those that outlived it.
func (c *Client) SignalRun(ctx context.Context, id holt.RunID, signal string) error {
	return errSkeleton
}

// ReadFile copies up to n bytes (negative: all) from offset of a file to w and
// returns how many.
func (c *Client) ReadFile(ctx context.Context, path string, offset, n int64, w io.Writer) (int64, error) {
	return 0, errSkeleton
}

// WriteFile writes a file whole or not at all: a temporary file beside it is
// renamed over it. user owns it ("": root).
func (c *Client) WriteFile(ctx context.Context, path string, mode uint32, user string, r io.Reader) error {
	return errSkeleton
}

// Stat describes a file; it does not follow a symlink at the end of path.
func (c *Client) Stat(ctx context.Context, path string) (holt.FileInfo, error) {
	return holt.FileInfo{}, errSkeleton
}

// List calls entry for each entry of a directory, in no order.
func (c *Client) List(ctx context.Context, path string, entry func(holt.FileInfo) error) error {
	return errSkeleton
}

// Mkdir makes a directory, owned by user ("": root); with parents it also makes
// missing parents and is content with what is there.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, user string, parents bool) error {
	return errSkeleton
}

// Remove removes a file or an empty directory; with recursive a whole tree, and
// what is not there is no error.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error { return errSkeleton }

// Rename renames a file, replacing what is there.
func (c *Client) Rename(ctx context.Context, from, to string) error { return errSkeleton }

// Watch calls event for each change under path until ctx ends. ready, if not
// nil, is called when nothing that happens from then on is missed.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(FileEvent) error) error {
	return errSkeleton
}
