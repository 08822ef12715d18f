package daemon

import (
	"context"
	"os"

	"holt"
	"holt/access"
	"holt/audit"
	"holt/computer"
	"holt/server"
	"holt/warden"
)

// Computers returns the computers.
func (d *Daemon) Computers() *computer.Store { return d.computers }

// Workspaces returns the registry of workspaces.
func (d *Daemon) Workspaces() *Workspaces { return d.workspaces }

// Archive returns the archive of the workspaces.
func (d *Daemon) Archive() *Archive { return d.archive }

// Tokens returns the API tokens.
func (d *Daemon) Tokens() *access.Tokens { return d.tokens }

// Audit returns the log of what is done through the doors, which each of them writes to.
func (d *Daemon) Audit() *audit.Log { return d.audit }

// Nouns returns all that the doors speak of, behind the [warden], which asks of each call whether its actor may.
func (d *Daemon) Nouns() server.Nouns {
	return warden.Around(server.Nouns{
		Computers: computers{d.computers, d.computers.Memory()}, Moments: d.computers.Moments(), Runs: d.computers.Runs(), Terminals: d.computers.Terminals(), Ports: d.computers.Ports(), Services: d.computers.Services(), Files: d.computers.Files(),
		Workspaces: d.workspaces, WorkspaceFiles: d.workspaces.Files(), History: d.workspaces.History(), Archive: d.archive,
		Images: d.computers.Templates(), Schedules: d.schedules, Jobs: d.jobs, Networks: d.computers.Networks(), Limits: d.computers.TenantLimits(), Stats: stats{d}, Secrets: d.computers.Secrets(), Tokens: tokens{d.tokens, d.keys}, Audit: d.audit, Daemon: d,
	})
}

// computers are the computers as the API shows them, with what keeps their memory.
type computers struct {
	*computer.Store
	*computer.Memory
}

// Health says that the daemon answers, and what it is.
func (d *Daemon) Health(ctx context.Context) (holt.Health, error) {
	all, err := d.computers.List(ctx)
	if err != nil {
		return holt.Health{}, err
	}
	h := holt.Health{
		Status: "ok", Version: d.cfg.Version, PID: os.Getpid(), DataDir: d.cfg.DataDir,
		Engine: d.engine.Name(), StartedAt: d.started,
	}
	for _, c := range all {
		if c.State == holt.ComputerRunning {
			h.Running++
		}
	}
	return h, nil
}
