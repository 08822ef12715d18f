package daemon

import (
	"context"
	"io"
	"os"

	"holt"
	"holt/internal/access"
	"holt/internal/archive"
	"holt/internal/artifact"
	"holt/internal/audit"
	"holt/internal/authz"
	"holt/internal/computer"
	"holt/internal/control"
	"holt/internal/door/preview"
	"holt/internal/door/s3"
	"holt/internal/door/sshd"
	"holt/internal/idempotency"
	"holt/internal/job"
	"holt/internal/nouns"
	"holt/internal/workspaces"
)

// Computers returns the computers.
func (d *Daemon) Computers() *computer.Store { return d.computers }

// Workspaces returns the workspaces.
func (d *Daemon) Workspaces() *workspaces.Store { return d.workspaces }

// Archive returns the archive.
func (d *Daemon) Archive() *archive.Archive { return d.archive }

// Tokens returns the API tokens.
func (d *Daemon) Tokens() *access.Tokens { return d.tokens }

// Audit returns the audit log, which each door writes to.
func (d *Daemon) Audit() *audit.Log { return d.audit }

// Authorizer checks the right of each call.
func (d *Daemon) Authorizer() *authz.Checker { return authz.New(d.Nouns()) }

// Nouns returns all that the doors call, without a check of rights.
func (d *Daemon) Nouns() nouns.Set {
	set := nouns.Set{
		Computers: computers{d.computers, d.computers.Memory()}, Snapshots: d.computers.Snapshots(), Runs: d.computers.Runs(), Terminals: d.computers.Terminals(), Ports: d.computers.Ports(), Services: d.computers.Services(), Files: d.computers.Files(),
		Workspaces: d.workspaces, WorkspaceFiles: d.workspaces.Files(), History: d.workspaces.History(), Archive: d.archive,
		Images: d.computers.Templates(), Schedules: d.schedules, Jobs: d.jobs, Networks: d.computers.Networks(), Limits: d.computers.TenantLimits(), Stats: stats{d}, Secrets: d.computers.Secrets(), SSH: d.gate, SSHKeys: sshKeys{d.gate.Keys(), d.keys}, S3Keys: control.S3Keys{S3Keys: d.s3keys, Calls: d.keys}, Previews: d.previews, Events: d.events, Uploads: d.uploads, Artifacts: d.artifacts, ArtifactFiles: d.artifacts.Files(), Audit: d.audit, Daemon: d,
	}
	control.Fill(&set, d.db, d.keys, d.tokens)
	return set
}

// computers are the computers as the API has them.
type computers struct {
	*computer.Store
	*computer.Memory
}

// S3 returns what the door of clients of S3 needs: the keys, and the objects with checks of rights.
func (d *Daemon) S3() (*access.S3Keys, s3.Objects) {
	return d.s3keys, authz.Objects(d.Nouns(), artifact.Objects{Store: d.artifacts})
}

// Actor returns a computer as the caller of its own requests.
func (d *Daemon) Actor(ctx context.Context, id holt.ComputerID) (holt.Actor, error) {
	c, err := d.computers.Get(ctx, string(id))
	return holt.Actor{Computer: id, Name: c.Name, Tenant: c.Tenant}, err
}

// SSH returns the door of SSH clients.
func (d *Daemon) SSH() *sshd.Gate { return d.gate }

// sshKeys are the keys of SSH clients as the API has them.
type sshKeys struct {
	*sshd.Keys
	calls *idempotency.Keys
}

func (k sshKeys) Add(ctx context.Context, spec holt.SSHKeySpec, key string) (holt.SSHKey, error) {
	return idempotency.Once(ctx, k.calls, idempotency.Call[holt.SSHKey]{
		Key: key, Method: "ssh-key.add", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.SSHKey, error) {
			return k.Keys.AddBound(ctx, spec, claim.Bind)
		},
		Again: k.Keys.Get,
	})
}

func (k sshKeys) Delete(ctx context.Context, ref, key string) (holt.SSHKey, error) {
	return idempotency.Once(ctx, k.calls, idempotency.Call[holt.SSHKey]{
		Key: key, Method: "ssh-key.delete", Request: ref, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.SSHKey, error) { return k.Keys.Delete(ctx, ref) },
	})
}

// sessions are the computers as the SSH door uses them.
type sessions struct {
	*computer.Sessions
	store *computer.Store
}

func (s sessions) Get(ctx context.Context, ref string) (holt.Computer, error) {
	return s.store.Get(ctx, ref)
}

// Health says that the daemon is alive, and which it is.
func (d *Daemon) Health(ctx context.Context) (holt.Health, error) {
	all, err := d.computers.List(ctx)
	if err != nil {
		return holt.Health{}, err
	}
	h := holt.Health{
		Status: "ok", Version: d.cfg.Version, PID: os.Getpid(), DataDir: d.cfg.DataDir,
		Engine: d.engines.Default.Name(), StartedAt: d.started,
	}
	for _, c := range all {
		if c.State == holt.ComputerRunning {
			h.Running++
		}
	}
	return h, nil
}

// Jobs returns the jobs.
func (d *Daemon) Jobs() *job.Store { return d.jobs }

// Previews returns the previews.
func (d *Daemon) Previews() *preview.Store { return d.previews }

// uploaded are the files of computers, or of workspaces, as uploads write them.
type uploaded struct {
	writer
	known func(ctx context.Context, ref string) (id string, err error)
}

func (u uploaded) Known(ctx context.Context, ref string) (string, error) { return u.known(ctx, ref) }

type writer interface {
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
}
