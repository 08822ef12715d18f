package daemon

import (
	"context"
	"io"
	"path/filepath"

	"holt"
	"holt/internal/access"
	"holt/internal/archive"
	"holt/internal/artifact"
	"holt/internal/audit"
	"holt/internal/authz"
	"holt/internal/computer"
	"holt/internal/door/preview"
	"holt/internal/door/sshd"
	"holt/internal/engine/cgroup"
	"holt/internal/event"
	"holt/internal/guest/mount"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/job"
	"holt/internal/schedule"
	"holt/internal/store/flock"
	"holt/internal/upload"
	"holt/internal/workspace"
	"holt/internal/workspaces"
)

// dir returns a path in the data directory.
func (d *Daemon) dir(name string) string { return filepath.Join(d.cfg.DataDir, name) }

// closing makes a step of Close of a function that cannot fail.
func closing(end func()) func() error {
	return func() error { end(); return nil }
}

func (d *Daemon) openLock(context.Context) error {
	lock, err := lockDir(d.cfg.DataDir)
	if err != nil {
		return err
	}
	d.onClose(func() error { return flock.Close(lock) })
	return nil
}

func (d *Daemon) openEvents(ctx context.Context) (err error) {
	d.keys = idempotency.New(d.db)
	if d.events, err = event.Open(ctx, d.db, d.log); err == nil {
		d.onClose(closing(d.events.Close))
	}
	return err
}

func (d *Daemon) openAudit(context.Context) (err error) {
	if d.audit, err = audit.Open(d.dir("audit"), d.log); err == nil {
		d.onClose(d.audit.Close)
	}
	return err
}

func (d *Daemon) openArchive(ctx context.Context) (err error) {
	d.archive, err = archive.Open(ctx, archive.Config{DB: d.db, Keys: d.keys, Dir: d.dir("archive"), Place: d.cfg.Archive, Fail: d.cfg.Fail, Log: d.log})
	if err == nil {
		d.onClose(d.archive.Close)
	}
	return err
}

func (d *Daemon) openImages(context.Context) (err error) {
	d.images, err = image.Open(d.cfg.ImageDir, image.Options{GuestBinary: d.cfg.GuestBinary, Log: d.log})
	return err
}

func (d *Daemon) openEngines(ctx context.Context) (err error) {
	ledger := computer.DiskLedger{DB: d.db, Disks: d.dir("disks"), Images: d.images}
	if d.engines, err = openEngines(ctx, d.cfg, d.openGroups(), ledger); err != nil || d.cfg.Wrap == nil {
		return err
	}
	d.engines.Default = d.cfg.Wrap(d.engines.Default)
	for i, e := range d.engines.Others {
		d.engines.Others[i] = d.cfg.Wrap(e)
	}
	return nil
}

// openGroups opens the control groups that bound machines, and removes those of machines that ended while no
// daemon ran. If the host has none, machines are not bounded.
func (d *Daemon) openGroups() *cgroup.Tree {
	if d.groups, d.unbound = cgroup.Open(); d.unbound != nil {
		d.log.Warn("computers are not bounded", "err", d.unbound)
	}
	d.groups.Sweep()
	return d.groups
}

func (d *Daemon) openWorkspaces(ctx context.Context) (err error) {
	base := d.cfg.Workspace
	base.Disk = d.meters.disk(base.Disk)
	base.Log, base.Archive = d.log, d.archive.Archive
	cfg := workspaces.Config{DB: d.db, Keys: d.keys, Dir: d.dir("workspaces"), Workspace: base, Checkpoint: d.checkpoint, Observe: d.meters.file}
	if d.cfg.Keeper != nil {
		cfg.Keeper = &mount.Keeper{Command: d.cfg.Keeper, Dir: d.dir("mounts")}
	}
	if d.workspaces, err = workspaces.Open(ctx, cfg); err != nil {
		return err
	}
	d.onClose(d.workspaces.Close)
	d.archive.Start(d.workspaces)
	d.onClose(closing(d.archive.Stop))
	return nil
}

// checkpoint makes an event of a checkpoint that was taken or deleted.
func (d *Daemon) checkpoint(id holt.WorkspaceID, c workspace.Checkpoint, deleted bool) {
	kind := holt.EventCheckpointCreated
	if deleted {
		kind = holt.EventCheckpointDeleted
	}
	d.events.Checkpoint(kind, id, c.Name, c.Reason)
}

func (d *Daemon) openComputers(ctx context.Context) (err error) {
	d.computers, err = computer.Open(ctx, computer.Config{
		DB: d.db, Keys: d.keys, Dir: d.dir("computers"), Disks: d.dir("disks"),
		Snapshots: d.dir("snapshots"), SnapshotCache: d.cfg.SnapshotCache, Archive: d.archive.Archive, ArchiveDir: d.archive.Dir(), Templates: d.dir("templates"),
		Engines: d.engines, Images: d.images, Networks: d.networks(),
		Workspaces: workspaces.ForComputers{Store: d.workspaces}, Serve: d.workspaces.ServeGuest, Writer: workspaces.WriterOf, Schedules: schedule.Belongings{DB: d.db}, Keep: d.cfg.Keep, Renew: d.cfg.Renew, Limits: d.cfg.Limits, HostMemory: d.cfg.HostMemory, Overcommit: d.cfg.Overcommit, Log: d.log, Observe: d.meters.observer(), Fail: d.cfg.Fail,
	})
	if err != nil {
		return err
	}
	d.onClose(d.computers.Close)
	d.workspaces.SetComputers(d.computers)
	return nil
}

// openArtifacts opens the artifacts, and continues to store what was published. Computers are opened later: they may delete
// workspaces at once.
func (d *Daemon) openArtifacts(ctx context.Context) (err error) {
	d.artifacts, err = artifact.Open(ctx, artifact.Config{DB: d.db, Keys: d.keys, Archive: d.archive.Archive,
		Workspaces: workspaces.ForArtifacts{Store: d.workspaces}, Computers: published{d}, Address: published{d}.address, Log: d.log, Fail: d.cfg.Fail})
	if err != nil {
		return err
	}
	d.onClose(d.artifacts.Close)
	return d.workspaces.SetArtifacts(ctx, d.artifacts)
}

// published are computers as artifacts are published from them.
type published struct{ d *Daemon }

func (p published) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return p.d.computers.Get(ctx, ref)
}

// address is where the door of previews, which is opened later, answers a link.
func (p published) address(l holt.ArtifactLink, secret string) (url, programURL string, err error) {
	return p.d.previews.LinkURLs(l, secret)
}

func (p published) Run(ctx context.Context, id holt.RunID) (holt.Run, error) {
	return p.d.computers.Runs().Get(ctx, id)
}

func (p published) Stat(ctx context.Context, ref, path string) (holt.FileInfo, error) {
	return p.d.computers.Files().Stat(ctx, ref, path)
}

func (p published) List(ctx context.Context, ref, dir string, page holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	return p.d.computers.Files().List(ctx, ref, dir, page)
}

func (p published) Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error {
	return p.d.computers.Files().Read(ctx, ref, path, off, n, w)
}

func (p published) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	return p.d.computers.Files().Write(ctx, ref, path, spec, r)
}

// openMounts serves the host mounts. The mounts leave before the jobs close, although the jobs open later.
func (d *Daemon) openMounts(ctx context.Context) error {
	d.onClose(func() error {
		if d.jobs != nil {
			d.jobs.Close()
		}
		return nil
	})
	d.onClose(d.workspaces.LeaveMounts)
	return d.workspaces.Remount(ctx)
}

// openJobs opens the jobs and continues those in progress. See openMounts for their end.
func (d *Daemon) openJobs(ctx context.Context) (err error) {
	d.jobs, err = job.Open(ctx, job.Config{
		DB: d.db, Keys: d.keys, Dir: d.dir("jobs"), Computers: computers{d.computers, d.computers.Memory()}, Runs: d.computers.Runs(),
		Workspaces: workspaces.ForJobs{Store: d.workspaces}, Artifacts: d.artifacts, Log: d.log, Fail: d.cfg.Fail,
	})
	return err
}

// openTokens makes the first token, if clients will connect over TCP and no admin has a token.
func (d *Daemon) openTokens(ctx context.Context) error {
	d.tokens = access.New(d.db)
	var err error
	if d.s3keys, err = access.OpenS3Keys(d.tokens, d.dir("s3.key")); err != nil || !d.cfg.TCP {
		return err
	}
	return access.First{Tokens: d.tokens, Dir: d.cfg.DataDir, Fail: d.cfg.Fail, Log: d.log}.Make(ctx)
}

func (d *Daemon) openPreviews(context.Context) (err error) {
	d.previews, err = preview.Open(preview.Config{
		DB: d.db, Keys: d.keys, KeyFile: d.dir("preview.key"), Place: d.cfg.Previews, Hosts: d.cfg.Hosts,
		Computers: d.computers, Ports: d.computers.Ports(), Tokens: d.tokens, Links: d.artifacts, Log: d.log,
		May: authz.Port(computers{d.computers, d.computers.Memory()}), Record: d.audit.Record, TXT: d.cfg.TXT,
	})
	return err
}

// openSchedules opens the schedules, which runs what is due: computers and mounts are open before.
func (d *Daemon) openSchedules(ctx context.Context) (err error) {
	d.schedules, err = schedule.Open(ctx, schedule.Config{DB: d.db, Keys: d.keys, Computers: d.computers.Scheduled(), Log: d.log, Fail: d.cfg.Fail})
	if err == nil {
		d.onClose(d.schedules.Close)
	}
	return err
}

// openGate opens the door of SSH clients. It gets its listener later.
func (d *Daemon) openGate(context.Context) (err error) {
	d.gate, err = sshd.Open(sshd.Options{
		DB: d.db, DataDir: d.cfg.DataDir, Tokens: d.tokens, Log: d.log, Record: d.recordSSH,
		Computers: authz.Sessions(computers{d.computers, d.computers.Memory()}, sessions{d.computers.Sessions(), d.computers}),
	})
	if err == nil {
		d.onClose(d.gate.Close)
	}
	return err
}

func (d *Daemon) openUploads(ctx context.Context) (err error) {
	d.uploads, err = upload.Open(ctx, upload.Config{
		DB: d.db, Keys: d.keys, Dir: d.dir("uploads"), Log: d.log, Fail: d.cfg.Fail,
		Computers: uploaded{d.computers.Files(), func(ctx context.Context, ref string) (string, error) {
			c, err := d.computers.Get(ctx, ref)
			return string(c.ID), err
		}},
		Workspaces: uploaded{d.workspaces.Files(), func(ctx context.Context, ref string) (string, error) {
			id, _, err := d.workspaces.Find(ctx, ref)
			return string(id), err
		}},
	})
	if err == nil {
		d.onClose(closing(d.uploads.Close))
	}
	return err
}
