package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/archive"
	"holt/internal/artifact"
	"holt/internal/audit"
	"holt/internal/computer"
	"holt/internal/door/preview"
	"holt/internal/door/sshd"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
	"holt/internal/event"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/job"
	"holt/internal/metric"
	"holt/internal/schedule"
	"holt/internal/store/db"
	"holt/internal/upload"
	"holt/internal/workspace"
	"holt/internal/workspaces"
)

// Config says where a daemon keeps its files and how it runs machines.
type Config struct {
	DataDir     string
	ImageDir    string // default: DataDir/images
	Engine      string // that computers have by default: "auto" (the default), "qemu", "gvisor" or "local"
	Sandbox     string // the static program whose main calls sandbox.Dispatch; default: this one
	GuestBinary []byte // the guest agent, put into images and run by the local and gvisor engines
	TCP         bool   // clients will connect over TCP: a first token is made and written to a file, if no admin has one
	Version     string // of holt
	Log         *slog.Logger
	Metrics     *metric.Registry // gets the daemon's metrics; nil: nothing is counted

	Previews preview.Place                                            // the address of previews; zero: *.localhost, at the listener
	TXT      func(ctx context.Context, name string) ([]string, error) // looks up the records that prove who owns a domain; nil: by the host's resolver
	Hosts    []string                                                 // names of the API over TCP, besides IP addresses and localhost; no computer can use them as a domain

	Archive   archive.Place
	Workspace workspace.Options   // for every workspace; the daemon sets Log, Archive, Space and Quota itself
	Keep      workspace.Retention // which automatic checkpoints stay; zero: the last 200, and one a day for 30 days

	// SnapshotCache bounds the bytes of automatic snapshots, and of all snapshots that are
	// in the archive; 0: an eighth of the disk.
	SnapshotCache int64

	// Renew is how long after Open the daemon boots templates in the background that were not booted
	// since they were built, or whose snapshots are out of date; 0: never.
	Renew time.Duration

	// Network is the program, with its first arguments, that calls [network.Serve] with its last: the process
	// that is a machine's network. Empty: machines have a network device that is not connected.
	Network []string

	// Keeper is the program, with its first arguments, that calls [mount.Keep] with the one before its last.
	// Empty: mounts on the host end with this process.
	Keeper []string

	// HostMemory returns the memory of the host and how much of it programs can still get, bytes; nil: the
	// kernel's figures, if machines have memory of their own.
	HostMemory func() (total, available int64)
	Overcommit float64 // how many times the available memory may be promised to computers; 0: once

	Limits computer.Limits                     // zero fields: the defaults of the computer's engine
	Wrap   func(machine.Engine) machine.Engine // tests: replaces each engine
	Fail   func(point string) error            // tests: called at each step of creating, deleting, packing and collecting
}

// Daemon is an open data directory.
type Daemon struct {
	cfg        Config
	log        *slog.Logger
	started    time.Time
	db         *db.DB
	keys       *idempotency.Keys
	archive    *archive.Archive
	images     *image.Store
	groups     *cgroup.Tree // nil: machines are not bounded, because of
	unbound    error        // this error
	engines    computer.Engines
	workspaces *workspaces.Store
	computers  *computer.Store
	jobs       *job.Store
	tokens     *access.Tokens
	s3keys     *access.S3Keys
	audit      *audit.Log
	schedules  *schedule.Store
	previews   *preview.Store
	events     *event.Store
	uploads    *upload.Store
	artifacts  *artifact.Store
	reach      *reach // nil: machines have no networks
	gate       *sshd.Gate
	meters     meters
	readiness  readiness
	own        atomic.Pointer[func(holt.ComputerID) http.Handler] // see Own
	done       chan struct{}                                      // closed by Down
	downs      chan struct{}                                      // holds a token during Down
	closers    []func() error                                     // called in reverse by Close
}

// Open opens a data directory. It undoes what a killed daemon left half-done,
// and takes over its machines and mounts.
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
	for _, open := range []func(context.Context) error{
		d.openLock, d.openControl, d.openEvents, d.openAudit, d.openArchive, d.openImages, d.openEngines, d.openWorkspaces, d.openArtifacts, d.openComputers,
		d.openMounts, d.openJobs, d.openTokens, d.openPreviews, d.openSchedules, d.openGate, d.openUploads,
	} {
		if err := open(ctx); err != nil {
			return nil, errors.Join(hosterror.Describe(err), d.Close())
		}
	}
	d.collect(cfg.Metrics)
	d.log.InfoContext(ctx, "daemon is up", "data_dir", dir, "engine", d.engines.Default.Name(), "pid", os.Getpid())
	return d, nil
}

// onClose adds a step to Close, which comes before those that are there.
func (d *Daemon) onClose(step func() error) { d.closers = append(d.closers, step) }

// Close closes everything in the reverse order of opening. Machines keep
// running, and requests to host mounts wait for the next daemon.
func (d *Daemon) Close() error {
	d.readiness.end()
	var errs []error
	for _, step := range slices.Backward(d.closers) {
		errs = append(errs, step())
	}
	d.closers = nil
	return errors.Join(errs...)
}

// Done is closed when Down has ended everything: the process should then end.
func (d *Daemon) Done() <-chan struct{} { return d.done }
