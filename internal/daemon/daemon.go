package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/audit"
	"holt/internal/authz"
	"holt/internal/computer"
	"holt/internal/door/preview"
	"holt/internal/door/sshd"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
	"holt/internal/event"
	"holt/internal/guest/mount"
	"holt/internal/image"
	"holt/internal/job"
	"holt/internal/metric"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/store/flock"
	"holt/internal/upload"
	"holt/internal/workspace"
)

// Config says where a daemon keeps its things and what it runs machines with.
type Config struct {
	DataDir     string
	ImageDir    string // default: DataDir/images
	Engine      string // "auto" (the default), "qemu" or "local"
	GuestBinary []byte // the guest agent, put into images and run by the local engine
	TCP         bool   // it will be reached over TCP: a first token is made, and put into a file, if no admin has one
	Version     string // of holt
	Log         *slog.Logger
	Metrics     *metric.Registry // gets the daemon's; nil: nothing is counted

	Previews preview.Place                                            // where previews are; zero: *.localhost, at the listener
	TXT      func(ctx context.Context, name string) ([]string, error) // looks up the records that say whose a domain is; nil: by the host's resolver
	Hosts    []string                                                 // names by which the API is reached over TCP, besides IP addresses and localhost; no computer gets one

	Archive   ArchiveConfig
	Workspace workspace.Options // what every workspace is opened with; the daemon sets Log, Archive, Space and Quota itself
	Keep      workspace.Retention    // which automatic checkpoints stay; zero: the last 200, and one a day for 30 days

	// SnapshotCache is how many bytes the snapshots may take that nobody asked for, and
	// all together as far as they are in the archive; 0: an eighth of the disk.
	SnapshotCache int64

	// Renew is how long after Open templates are booted in the background that nobody has booted
	// since they were built, or whose snapshots are out of date; 0: never.
	Renew time.Duration

	// Network is the program, with its first arguments, that calls [network.Serve] with its last: the process
	// that is a machine's network. None: machines have a network device, and nobody at its other end.
	Network []string

	// Keeper is the program, with its first arguments, that calls [mount.Keep] with the one before its last. None:
	// mounts on the host end with this process.
	Keeper []string

	// HostMemory is what memory the host has, and what programs can still have of it, bytes; nil: as the kernel says, if
	// the engine's machines have memory of their own.
	HostMemory func() (total, available int64)
	Overcommit float64 // how many times the memory that is available may be promised; 0: once

	Limits computer.Limits                     // zero fields take the engine's defaults
	Wrap   func(machine.Engine) machine.Engine // tests: what runs machines instead
	Fail   func(point string) error            // tests: called at each step of creating and deleting, packing and collecting
}

// Daemon is everything one data directory holds, opened.
type Daemon struct {
	cfg        Config
	log        *slog.Logger
	started    time.Time
	lock       *os.File
	db         *db.DB
	keys       *computer.Keys
	archive    *Archive
	images     *image.Store
	groups     *cgroup.Tree // nil: machines are not bounded, for
	unbound    error        // this reason
	engine     machine.Engine
	workspaces *Workspaces
	computers  *computer.Store
	jobs       *job.Store
	tokens     *access.Tokens
	audit      *audit.Log
	schedules  *schedule.Store
	previews   *preview.Store
	events     *event.Store
	uploads    *upload.Store
	reach      *reach // nil: machines have no networks
	gate       *sshd.Gate
	meters     meters
	readiness  readiness
	own        atomic.Pointer[func(holt.ComputerID) http.Handler] // see Own
	done       chan struct{}                                      // closed by Down
	downs      chan struct{}                                      // holds a token while Down works
}

// Open opens a data directory, undoes what a killed daemon left half-done, and
// takes its machines and mounts over.
//
// Errors: Conflict when another daemon serves it, Unsupported when the engine
// cannot work here, OutOfSpace, Forbidden.
func Open(ctx context.Context, cfg Config) (*Daemon, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil || cfg.DataDir == "" {
		return nil, holt.Errorf(holt.InvalidArgument, "a daemon needs a data directory")
	}
	cfg.DataDir = dir
	if cfg.ImageDir == "" {
		cfg.ImageDir = filepath.Join(dir, "images")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Log = slog.New(holt.LogRequests(cfg.Log.Handler()))
	if cfg.Keep == (workspace.Retention{}) {
		cfg.Keep = workspace.Retention{Last: 200, Days: 30}
	}
	d := &Daemon{cfg: cfg, log: cfg.Log, started: time.Now().UTC(), done: make(chan struct{}), downs: make(chan struct{}, 1), meters: newMeters(cfg.Metrics)}
	for _, part := range []func(context.Context) error{
		d.openLock, d.openControl, d.openAudit, d.openArchive, d.openImages, d.openEngine, d.openWorkspaces, d.openComputers, d.openMounts, d.openJobs, d.openTokens, d.openGate, d.openPreviews, d.openSchedules, d.openUploads,
	} {
		if err := part(ctx); err != nil {
			return nil, errors.Join(described(err), d.Close())
		}
	}
	d.collect(cfg.Metrics)
	d.log.InfoContext(ctx, "daemon is up", "data_dir", dir, "engine", d.engine.Name(), "pid", os.Getpid())
	return d, nil
}

func (d *Daemon) openLock(context.Context) (err error) {
	d.lock, err = lockDir(d.cfg.DataDir)
	return err
}

func (d *Daemon) openControl(ctx context.Context) (err error) {
	if d.db, err = openControl(ctx, filepath.Join(d.cfg.DataDir, controlFile)); err != nil {
		return err
	}
	d.keys = computer.NewKeys(d.db)
	d.events, err = event.Open(ctx, d.db, d.log)
	return err
}

func (d *Daemon) openAudit(context.Context) (err error) {
	d.audit, err = audit.Open(filepath.Join(d.cfg.DataDir, "audit"), d.log)
	return err
}

func (d *Daemon) openImages(context.Context) (err error) {
	d.images, err = image.Open(d.cfg.ImageDir, image.Options{GuestBinary: d.cfg.GuestBinary, Log: d.log})
	return err
}

func (d *Daemon) openEngine(ctx context.Context) (err error) {
	books := computer.Books{DB: d.db, Disks: filepath.Join(d.cfg.DataDir, "disks"), Images: d.images}
	if d.engine, err = openEngine(ctx, d.cfg, d.openGroups(), books); err == nil && d.cfg.Wrap != nil {
		d.engine = d.cfg.Wrap(d.engine)
	}
	return err
}

func (d *Daemon) openWorkspaces(ctx context.Context) (err error) {
	base := d.cfg.Workspace
	base.Disk = d.meters.disk(base.Disk)
	base.Log, base.Archive = d.log, d.archive.Archive
	d.workspaces, err = openWorkspaces(ctx, d.db, d.keys, filepath.Join(d.cfg.DataDir, "workspaces"), base)
	if err == nil {
		d.workspaces.shelf.noted = d.noted
		if d.cfg.Keeper != nil {
			d.workspaces.mounts.keeper = &mount.Keeper{Command: d.cfg.Keeper, Dir: filepath.Join(d.cfg.DataDir, "mounts")}
		}
		err = d.workspaces.mounts.find(ctx)
	}
	if err == nil {
		d.archive.start(d.workspaces)
	}
	return err
}

func (d *Daemon) openComputers(ctx context.Context) (err error) {
	d.computers, err = computer.Open(ctx, computer.Config{
		DB: d.db, Keys: d.keys, Dir: filepath.Join(d.cfg.DataDir, "computers"), Disks: filepath.Join(d.cfg.DataDir, "disks"),
		Snapshots: filepath.Join(d.cfg.DataDir, "snapshots"), SnapshotCache: d.cfg.SnapshotCache, Archive: d.archive.Archive, ArchiveDir: d.archive.place, Templates: filepath.Join(d.cfg.DataDir, "templates"),
		Engine: d.engine, Images: d.images, Networks: d.networks(),
		Workspaces: guestSpaces{d.workspaces}, Serve: d.serveFiles, Writer: writerOf, Schedules: schedule.Belongings{DB: d.db}, Keep: d.cfg.Keep, Renew: d.cfg.Renew, Limits: d.cfg.Limits, HostMemory: d.cfg.HostMemory, Overcommit: d.cfg.Overcommit, Log: d.log, Observe: d.meters.observer(), Fail: d.cfg.Fail,
	})
	if err == nil {
		d.workspaces.setComputers(d.computers)
	}
	return err
}

// serveFiles answers a guest's file requests.
func (d *Daemon) serveFiles(ctx context.Context, ws *workspace.Workspace, conn net.Conn, writer func(string) workspace.Writer) error {
	return mount.Guest(ctx, ws, conn, mount.GuestOptions{Writer: writer, Notifier: d.workspaces.shelf.kernels.of(ws), Observe: d.meters.file, Log: d.log})
}

func (d *Daemon) openMounts(ctx context.Context) error { return d.workspaces.mounts.remount(ctx) }

// openGate opens the door of SSH clients; what it listens at comes later.
func (d *Daemon) openGate(context.Context) (err error) {
	d.gate, err = sshd.Open(sshd.Options{
		DB: d.db, DataDir: d.cfg.DataDir, Tokens: d.tokens, Log: d.log, Record: d.recordSSH,
		Computers: authz.Sessions(computers{d.computers, d.computers.Memory()}, sessions{d.computers.Sessions(), d.computers}),
	})
	return err
}

// Close lets go of everything in reverse order. Machines keep running; what is
// asked of host mounts waits for the next daemon.
func (d *Daemon) Close() error {
	d.readiness.end()
	var errs []error
	if d.uploads != nil {
		d.uploads.Close()
	}
	if d.gate != nil {
		errs = append(errs, d.gate.Close())
	}
	if d.schedules != nil {
		errs = append(errs, d.schedules.Close())
	}
	if d.workspaces != nil {
		errs = append(errs, d.workspaces.mounts.leave())
	}
	if d.jobs != nil {
		d.jobs.Close()
	}
	if d.computers != nil {
		errs = append(errs, d.computers.Close())
	}
	if d.reach != nil {
		d.reach.close()
	}
	if d.archive != nil {
		d.archive.stop()
	}
	if d.workspaces != nil {
		errs = append(errs, d.workspaces.close())
	}
	if d.archive != nil {
		errs = append(errs, d.archive.close())
	}
	if d.audit != nil {
		errs = append(errs, d.audit.Close())
	}
	if d.events != nil {
		d.events.Close()
	}
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.lock != nil {
		errs = append(errs, flock.Close(d.lock))
	}
	return errors.Join(errs...)
}

// Done is closed when Down has ended everything: the process should end too.
func (d *Daemon) Done() <-chan struct{} { return d.done }
