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

// HostOptions say how to mount on the host. The zero value mounts read-write.
type HostOptions struct {
	// ReadOnly is for a second mount beside a guest's or another host's: nothing
	// can be changed, and nothing is cached, so that it shows what the other one
	// does. A file that is removed while it is open there is gone (ENOENT).
	ReadOnly bool
	Writer   workspace.Writer // whom changes are attributed to
	Notifier *Notifier        // brings what the API changes to the kernel; nil: it changes nothing
	Keeper   *Keeper          // has the mount outlive this process; nil: it ends with it
	ID       [16]byte         // of the mount and its keeper, used for no other; zero: a random one
	Log      *slog.Logger     // nil discards
}

// HostMount is a workspace mounted on a directory of the host.
type HostMount struct {
	kept   *Kept
	dir    string
	dev    uint32 // minor number of the mount's device: the name of its connection
	server *server
	left   atomic.Bool // by Leave
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
	if err = opt.Notifier.complete(nil); err == nil { // its kernel knows nothing yet
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
	rand.Read(id[:]) // never fails, see crypto/rand
	return id
}

// Resume serves a mount of ws that its keeper has kept, from where the process
// before left it: what was asked meanwhile has waited. The workspace must have
// been opened with the mount's id, [Kept.ID], as one that goes on. It owns kept,
// and ends the mount when it fails.
//
// It returns NotFound or Unsupported when the mount cannot go on.
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
				return nil, holt.Errorf(holt.NotFound, "the workspace does not know the mount on %s any more", kept.dir)
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

// start begins to serve ws.
func (m *HostMount) start(ws *workspace.Workspace, t *tree, end func() error) {
	m.server.agreed = func(terms terms) { t.longXattr = terms.longXattr }
	m.server.agreed(m.server.terms) // of a mount that goes on
	m.server.ack = func(watermark uint64) { ws.Acknowledge(t.epoch, watermark) }
	go m.run(ws, t.notifier, end)
}

// hostTree returns what answers a host mount's requests, and fills what opt leaves open.
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

// hostOptions are protocolOptions as a mount of the host's own kernel needs them.
func hostOptions(opt HostOptions) *fuse.MountOptions {
	o := protocolOptions(opt.Log)
	o.PanicHandler = func(r any) fuse.Status {
		opt.Log.Error("a request to a host mount met a defect", "panic", r, "stack", string(debug.Stack()))
		return fuse.EIO
	}
	if opt.ReadOnly {
		// Pages live until the file's time or size moves, or it is opened again. Times move in ticks of
		// up to 10 ms: of two changes within one, which keep the size, a file that stays open may show the first.
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
			WithHint("holt doctor says whether this host has FUSE; without root fusermount3 must be installed")
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

// keep has a mount kept, if somebody is to. It owns fd and mem, also when it fails.
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

// run serves until the mount is gone, then ends its epoch, or until it is left
// to the next process. ws is nil for none.
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
			m.log.Warn("host mount takes in no more changes", "dir", m.dir, "err", err)
		}
	}()
	m.server.serve()
	cancel()
	<-notified
	if !m.left.Load() {
		if m.server.broken { // its keeper holds it: what uses it would wait for ever
			if err := m.kept.abort(); err != nil {
				m.log.Error("a host mount could not be ended", "dir", m.dir, "err", err)
			}
		}
		if err := end(); err != nil {
			m.log.Error("the epoch of a host mount could not be ended", "dir", m.dir, "err", err)
		}
	}
	m.kept.close()
	close(m.done)
}

// Leave leaves the mount to its keeper, and to the process that resumes it.
// What is being answered is answered; what is asked from now on waits. A mount
// without a keeper ends.
func (m *HostMount) Leave() error {
	if m.kept.conn == nil {
		return m.Unmount()
	}
	m.left.Store(true)
	err := m.server.leave()
	<-m.done
	return err
}

// Dir returns the directory it is mounted on.
func (m *HostMount) Dir() string { return m.dir }

// Done is closed when the mount is gone, whoever ended it.
func (m *HostMount) Done() <-chan struct{} { return m.done }
