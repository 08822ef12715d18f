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
	"slices"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/workspace"
)

// HostOptions configure a mount on the host. The zero value mounts read-write.
type HostOptions struct {
	// ReadOnly is for a second mount beside a guest's or another host mount: it
	// cannot change files, and caches nothing, so that it shows changes by the
	// other mount. A file that is removed while it is open returns ENOENT there.
	ReadOnly bool
	Writer   workspace.Writer // writer of the changes
	Notifier *Notifier        // announces changes by the API to the kernel; nil: it changes nothing
	Keeper   *Keeper          // keeps the mount after the end of this process; nil: the mount ends with it
	ID       [16]byte         // unique id of the mount and its keeper; zero: a random one
	Log      *slog.Logger     // nil discards
}

// HostMount is a workspace mounted on a directory of the host.
type HostMount struct {
	kept   *Kept
	dir    string
	dev    uint32 // minor number of the mount's device, which identifies its connection
	server *server
	left   atomic.Bool // set by Leave
	log    *slog.Logger
	done   chan struct{}
}

// Host mounts ws on dir, an existing directory, and serves it until Unmount, or
// until another program unmounts it. ctx limits only the mounting. As root it
// mounts by itself, for every user; other users need fusermount3 and mount only
// for themselves. The mount is nosuid, nodev and noatime.
//
// It returns InvalidArgument when dir is not a directory, Conflict when the
// workspace is mounted read-write already, Unsupported when this host cannot
// mount.
//
// This process must not use the mount itself: if it were killed while one of its
// threads waits for another, it could never end.
func Host(ctx context.Context, ws *workspace.Workspace, dir string, opt HostOptions) (*HostMount, error) {
	dir, err := mountDir(dir)
	if err != nil {
		return nil, err
	}
	t := hostTree(ws, &opt)
	end := func() error { return nil }
	if opt.ID == [16]byte{} {
		opt.ID = NewID()
	}
	if !opt.ReadOnly {
		if t.epoch, end, err = hostEpoch(ws, opt.ID); err != nil {
			return nil, err
		}
	}
	if err = opt.Notifier.complete(nil); err == nil { // its kernel has nothing cached
		var m *HostMount
		if m, err = mountHost(ctx, past{t}, dir, opt); err == nil {
			m.start(ws, t, end)
			return m, nil
		}
	}
	return nil, errors.Join(err, end())
}

// NewID returns the id of a new mount.
func NewID() (id [16]byte) {
	rand.Read(id[:]) // never fails
	return id
}

// Resume serves a mount of ws that its keeper holds, from where the previous
// process left it; requests have waited in the meantime. The workspace must have
// been opened with the mount's id, [Kept.ID], as a continued epoch. It owns kept,
// and ends the mount if it fails.
//
// It returns NotFound or Unsupported when the mount cannot be continued.
func Resume(ctx context.Context, ws *workspace.Workspace, kept *Kept, opt HostOptions) (*HostMount, error) {
	t := hostTree(ws, &opt)
	end := func() error { return nil }
	for _, e := range ws.Epochs() {
		if e.ID == kept.ID() {
			t.epoch, end = e.Epoch, func() error { return ws.EndEpoch(e.Epoch) }
		}
	}
	m, err := func() (*HostMount, error) {
		if mi, ok, err := findMount(kept.dir); err != nil || !ok || mi.minor != kept.device() {
			return nil, errors.Join(holt.Errorf(holt.NotFound, "the workspace is not mounted on %s any more", kept.dir), err)
		}
		if !opt.ReadOnly {
			if t.epoch == 0 {
				return nil, holt.Errorf(holt.NotFound, "the workspace has no record of the mount on %s", kept.dir)
			}
			if err := catchUp(ctx, ws, opt.Notifier); err != nil {
				return nil, err
			}
		}
		return serveHost(past{t}, kept, opt)
	}()
	if err != nil {
		return nil, errors.Join(err, kept.End(), end())
	}
	m.start(ws, t, end)
	return m, nil
}

// start starts to serve ws.
func (m *HostMount) start(ws *workspace.Workspace, t *tree, end func() error) {
	m.server.agreed = func(terms terms) { t.longXattr = terms.longXattr }
	m.server.agreed(m.server.terms) // the terms of a continued mount
	m.server.ack = func(watermark uint64) { ws.Acknowledge(t.epoch, watermark) }
	go m.run(ws, t.notifier, end)
}

// hostTree returns the handler of a host mount's requests, and sets the defaults of opt.
func hostTree(ws *workspace.Workspace, opt *HostOptions) *tree {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Notifier == nil {
		opt.Notifier = &Notifier{}
	}
	t := &tree{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		ws:            ws.Tree(), identity: !opt.ReadOnly, valid: forever, readOnly: opt.ReadOnly, log: opt.Log,
		notifier: opt.Notifier,
		writers:  slices.Repeat([]workspace.Writer{opt.Writer}, maxServed),
	}
	if opt.ReadOnly {
		t.valid = 0
	}
	return t
}

// mountDir returns dir as it will appear in mountinfo.
func mountDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "mount on %s: %w", dir, err).
			WithHint("use an existing directory; if a killed holt left a dead mount there, unmount it")
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return "", holt.Errorf(holt.InvalidArgument, "mount on %s: it is not a directory", dir)
	}
	return abs, nil
}

// hostEpoch opens an epoch for a read-write mount, and returns the function that ends it.
func hostEpoch(ws *workspace.Workspace, id [16]byte) (workspace.Epoch, func() error, error) {
	for _, e := range ws.Epochs() {
		return 0, nil, holt.Errorf(holt.Conflict, "the workspace is mounted read-write by a %s already", e.Kind).
			WithHint("mount it read-only, or end the other mount first")
	}
	epoch, _, err := ws.BeginEpoch(id, workspace.HostMount)
	if err != nil {
		return 0, nil, fmt.Errorf("begin the epoch of a mount: %w", err)
	}
	return epoch, func() error { return ws.EndEpoch(epoch) }, nil
}

// hostOptions returns protocolOptions for a mount in the host's own kernel.
func hostOptions(opt HostOptions) *fuse.MountOptions {
	o := protocolOptions(opt.Log)
	o.PanicHandler = func(r any) fuse.Status {
		opt.Log.Error("a request to a host mount failed because of a bug", "panic", r, "stack", string(debug.Stack()))
		return fuse.EIO
	}
	if opt.ReadOnly {
		// Pages are cached until the file's time or size changes, or it is opened
		// again. Times have a resolution of up to 10 ms: after two changes within that
		// time that keep the size, a file that stays open may show the first.
		o.ExplicitDataCacheControl = false
		o.ExtraCapabilities &^= fuse.CAP_EXPLICIT_INVAL_DATA | fuse.CAP_CACHE_SYMLINKS | fuse.CAP_NO_OPENDIR_SUPPORT
	}
	return o
}

// mountHost mounts fs on dir.
func mountHost(ctx context.Context, fs fuse.RawFileSystem, dir string, opt HostOptions) (*HostMount, error) {
	mem, err := newMemory(opt.ID)
	if err != nil {
		return nil, err
	}
	fd, err := openMount(ctx, dir, opt.ReadOnly)
	if err != nil {
		mem.close()
		return nil, holt.Errorf(holt.Unsupported, "mount on %s: %w", dir, err).
			WithHint("check with holt doctor whether this host has FUSE; without root, install fusermount3")
	}
	kept, err := keep(ctx, opt.Keeper, dir, fd, mem)
	if err != nil {
		return nil, errors.Join(err, End(dir))
	}
	m, err := serveHost(fs, kept, opt)
	if err != nil {
		return nil, errors.Join(err, kept.End())
	}
	return m, nil
}

// keep starts a keeper for a mount, if k is not nil. It owns fd and mem, even if it fails.
func keep(ctx context.Context, k *Keeper, dir string, fd int, mem *memory) (*Kept, error) {
	if mi, ok, err := findMount(dir); err == nil && ok {
		mem.word(atDevice).Store(uint64(mi.minor))
	}
	if k != nil {
		id, err := mem.id(), k.start(dir, fd, mem)
		unix.Close(fd)
		mem.close()
		if err != nil {
			return nil, err
		}
		return k.Find(ctx, dir, id)
	}
	unix.SetNonblock(fd, true)
	dev, err := agent.NewFuseDevice(fd)
	if err != nil {
		mem.close()
		return nil, err
	}
	return &Kept{dir: dir, dev: dev, mem: mem}, nil
}

// serveHost serves a mount with fs.
func serveHost(fs fuse.RawFileSystem, kept *Kept, opt HostOptions) (*HostMount, error) {
	server, err := newServer(fs, hostOptions(opt), kept.dev, kept.mem, opt.Log)
	if err != nil {
		return nil, err
	}
	m := &HostMount{kept: kept, dir: kept.dir, dev: kept.device(), server: server, log: opt.Log, done: make(chan struct{})}
	server.began = m.readAhead
	return m, nil
}

// readAheadKB is the kernel's read-ahead for sequential readers, KiB. FUSE's
// default is 128. A request of 1 MiB costs little more than one of 128 KiB, and
// with several in flight the disk reads while others are answered: an uncached
// file is read 1.5 times as fast with 8 MiB as with 2.
const readAheadKB = "8192"

// readAhead increases the kernel's read-ahead. Only root may do that.
func (m *HostMount) readAhead() {
	name := fmt.Sprintf("/sys/class/bdi/0:%d/read_ahead_kb", m.dev)
	if err := os.WriteFile(name, []byte(readAheadKB), 0); err != nil && os.Geteuid() == 0 {
		m.log.Debug("cannot increase read-ahead", "dir", m.dir, "err", err)
	}
}

// run serves until the mount is gone, and then ends its epoch, or until Leave. ws may be nil.
func (m *HostMount) run(ws *workspace.Workspace, n *Notifier, end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		n.begin()
		err := n.run(ctx, 1, func(c Change) error {
			if err := m.server.notify(c); err != nil {
				return err
			}
			err := n.taken(1)
			if err == nil && ws != nil && n.Told() {
				ws.MarkNotified(n.Told)
			}
			return err
		})
		if err != nil {
			m.log.Warn("host mount accepts no more change notifications", "dir", m.dir, "err", err)
		}
	}()
	m.server.serve()
	cancel()
	<-notified
	if !m.left.Load() {
		if m.server.broken { // its keeper holds it: its users would wait for ever
			if err := m.kept.abort(); err != nil {
				m.log.Error("cannot end a host mount", "dir", m.dir, "err", err)
			}
		}
		if err := end(); err != nil {
			m.log.Error("cannot end the epoch of a host mount", "dir", m.dir, "err", err)
		}
	}
	m.kept.close()
	close(m.done)
}

// Leave leaves the mount to its keeper and to the next process that resumes it.
// Requests in progress are answered; new ones wait. A mount without a keeper
// ends.
func (m *HostMount) Leave() error {
	if m.kept.conn == nil {
		return m.Unmount()
	}
	m.left.Store(true)
	err := m.server.leave()
	<-m.done
	return err
}

func (m *HostMount) Dir() string { return m.dir }

// Done is closed when the mount is gone, for any reason.
func (m *HostMount) Done() <-chan struct{} { return m.done }
