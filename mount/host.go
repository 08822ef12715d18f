package mount

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt"
	"holt/workspace"
)

// HostOptions say how to mount on the host. The zero value mounts read-write.
type HostOptions struct {
	// ReadOnly is for a second mount beside a guest's or another host's: nothing
	// can be changed, and nothing is cached, so that it shows what the other one
	// does. A file that is removed while it is open there is gone (ENOENT).
	ReadOnly bool
	Writer   workspace.Writer // whom changes are attributed to
	Notifier *Notifier        // brings what the API changes to the kernel; nil: it changes nothing
	Log      *slog.Logger     // nil discards
}

// HostMount is a workspace mounted on a directory of the host.
type HostMount struct {
	dir    string
	dev    uint32 // minor number of the mount's device: the name of its connection
	server *fuse.Server
	log    *slog.Logger
	done   chan struct{}
}

// Host mounts ws on dir, an existing directory, and serves it until Unmount,
// or until someone else unmounts it. ctx bounds the mounting only. As root it
// mounts by itself and for every user; others need fusermount3 and mount for
// themselves. The mount is nosuid, nodev and noatime.
//
// It returns InvalidArgument when dir is not a directory, Conflict when the
// workspace is mounted read-write already, Unsupported when this host cannot
// mount.
//
// This process must not use the mount itself: if it were killed while one of
// its threads waits for another, neither could ever end.
func Host(ctx context.Context, ws *workspace.Workspace, dir string, opt HostOptions) (*HostMount, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := mountDir(dir)
	if err != nil {
		return nil, err
	}
	t := &tree{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		ws:            ws.Tree(), valid: forever, log: opt.Log,
		writers: []workspace.Writer{opt.Writer},
	}
	end := func() error { return nil }
	if opt.ReadOnly {
		t.readOnly, t.valid = true, 0
	} else if t.epoch, end, err = hostEpoch(ws); err != nil {
		return nil, err
	}
	if opt.Notifier == nil {
		opt.Notifier = &Notifier{}
	}
	t.notifier = opt.Notifier
	m, err := serveHost(ctx, past{t}, dir, opt.ReadOnly, hostOptions(opt), opt.Log)
	if err != nil {
		end()
		return nil, err
	}
	t.longXattr = m.server.KernelSettings().Flags64()&fuse.CAP_SETXATTR_EXT != 0
	go m.run(opt.Notifier, end)
	return m, nil
}

// mountDir returns dir as mountinfo will name it.
func mountDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "mount on %s: %w", dir, err).
			WithHint("name an existing directory; if a killed holt left a dead mount there, unmount it")
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return "", holt.Errorf(holt.InvalidArgument, "mount on %s: it is not a directory", dir)
	}
	return abs, nil
}

// hostEpoch opens an epoch for a read-write mount, and returns what ends it.
func hostEpoch(ws *workspace.Workspace) (workspace.Epoch, func() error, error) {
	for _, e := range ws.Epochs() {
		return 0, nil, holt.Errorf(holt.Conflict, "the workspace is mounted read-write by a %s already", e.Kind).
			WithHint("mount it read-only, or end the other mount first")
	}
	var id [16]byte
	rand.Read(id[:]) // never fails, see crypto/rand
	epoch, _, err := ws.BeginEpoch(id, workspace.HostMount)
	if err != nil {
		return 0, nil, fmt.Errorf("begin the epoch of a mount: %w", err)
	}
	return epoch, func() error { return ws.EndEpoch(epoch) }, nil
}

// hostOptions are protocolOptions as a mount of the host's own kernel needs them.
func hostOptions(opt HostOptions) *fuse.MountOptions {
	o := protocolOptions(opt.Log)
	o.PanicHandler = func(r any) fuse.Status {
		opt.Log.Error("a request to a host mount met a defect", "panic", r, "stack", string(debug.Stack()))
		return fuse.EIO
	}
	if opt.ReadOnly {
		// Pages live until the file's time or size moves, or it is opened again.
		o.ExplicitDataCacheControl = false
		o.ExtraCapabilities &^= fuse.CAP_EXPLICIT_INVAL_DATA | fuse.CAP_CACHE_SYMLINKS | fuse.CAP_NO_OPENDIR_SUPPORT
	}
	return o
}

// serveHost mounts fs on dir.
func serveHost(ctx context.Context, fs fuse.RawFileSystem, dir string, readOnly bool, opt *fuse.MountOptions, log *slog.Logger) (*HostMount, error) {
	fd, err := openMount(ctx, dir, readOnly)
	if err != nil {
		return nil, holt.Errorf(holt.Unsupported, "mount on %s: %w", dir, err).
			WithHint("holt doctor says whether this host has FUSE; without root fusermount3 must be installed")
	}
	server, err := fuse.NewServer(fs, fmt.Sprintf("/dev/fd/%d", fd), opt) // it owns fd
	if err != nil {
		return nil, errors.Join(holt.Errorf(holt.Unsupported, "mount on %s: %w", dir, err), detach(dir))
	}
	m := &HostMount{dir: dir, server: server, log: log, done: make(chan struct{})}
	if mi, ok, err := findMount(dir); err == nil && ok {
		m.dev = mi.minor
		m.readAhead()
	}
	return m, nil
}

// readAheadKB is how far a kernel reads ahead of a sequential reader, KiB. FUSE
// alone gets to 128; a request of 1 MiB costs little more than one of 128 KiB,
// and several at a time let the disk read while others are being answered: a
// cold file is read half as fast again with 8 MiB as with 2.
const readAheadKB = "8192"

// readAhead has the kernel read further ahead. Only root may ask for it.
func (m *HostMount) readAhead() {
	name := fmt.Sprintf("/sys/class/bdi/0:%d/read_ahead_kb", m.dev)
	if err := os.WriteFile(name, []byte(readAheadKB), 0); err != nil && os.Geteuid() == 0 {
		m.log.Debug("large reads ahead are not possible", "dir", m.dir, "err", err)
	}
}

// run serves until the mount is gone, then ends its epoch.
func (m *HostMount) run(n *Notifier, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		n.begin()
		err := n.run(ctx, 1, func(c Change) error {
			if err := m.notify(c); err != nil {
				return err
			}
			return n.taken(1)
		})
		if err != nil {
			m.log.Warn("host mount takes in no more changes", "dir", m.dir, "err", err)
		}
	}()
	m.server.Serve()
	cancel()
	<-notified
	if err := end(); err != nil {
		m.log.Error("the epoch of a host mount could not be ended", "dir", m.dir, "err", err)
	}
	close(m.done)
}

// notify hands a change to the kernel, which may wait for the file's lock.
func (m *HostMount) notify(c Change) error {
	var status fuse.Status
	if c.Name == "" {
		status = m.server.InodeNotify(uint64(c.Ino), 0, -1)
	} else {
		status = m.server.EntryNotify(uint64(c.Ino), c.Name)
	}
	if status == fuse.OK || status == fuse.ENOENT { // ENOENT: it knew nothing of it
		return nil
	}
	return syscall.Errno(status)
}

// Dir returns the directory it is mounted on.
func (m *HostMount) Dir() string { return m.dir }

// Done is closed when the mount is gone, whoever ended it.
func (m *HostMount) Done() <-chan struct{} { return m.done }
