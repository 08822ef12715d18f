package computer

import (
	"context"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/image"
)

// Create makes and starts a computer, and returns once its guest agent answers and its workspace is
// mounted. key is the idempotency key, or "". A create that fails, or whose caller leaves, is
// undone.
//
// Errors: InvalidArgument (a bad name, shape, or a disk smaller than the image), NotFound (template
// or workspace), AlreadyExists (the name), Conflict (the workspace is in use), TooMany (see
// [table.admit]), OutOfSpace, Unavailable.
func (s *Store) Create(ctx context.Context, spec holt.ComputerSpec, key string) (holt.Computer, error) {
	spec, err := s.cfg.check(spec)
	if err != nil {
		return holt.Computer{}, err
	}
	ctx, leave, err := s.shutdown.enter(ctx)
	if err != nil {
		return holt.Computer{}, err
	}
	defer leave()
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Computer]{
		Key: key, Method: "computer.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Computer, error) {
			return s.createFor(ctx, spec, "", claim)
		},
		Again: s.Get,
	})
}

func (s *Store) createFor(ctx context.Context, spec holt.ComputerSpec, job holt.JobID, claim *idempotency.Claim) (holt.Computer, error) {
	img, engine, err := s.cfg.pickFor(ctx, spec)
	if err != nil {
		return holt.Computer{}, err
	}
	if spec.DiskSizeMB < img.MinDiskMB {
		return holt.Computer{}, holt.Errorf(holt.InvalidArgument, "a root disk of %d MiB is too small for the template %s", spec.DiskSizeMB, spec.Template).
			WithHint("give at least %d MiB", img.MinDiskMB)
	}
	r, err := draft(ctx, s, spec, img, engine)
	if err != nil {
		return holt.Computer{}, err
	}
	r.Job = job
	unlock, err := s.machines.lock(ctx, r.ID)
	if err != nil {
		return holt.Computer{}, err
	}
	defer unlock()
	m := &transition{s: s, r: r, img: img, claim: claim}
	steps := append(m.steps(), step{"shape", m.enlarge, nothing}, step{"settle", m.settle, nothing})
	if err := m.forward(ctx, "create", steps); err != nil {
		if m.stuck != nil {
			m.markFailed(ctx, m.stuck)
		}
		return holt.Computer{}, err
	}
	s.log.InfoContext(ctx, "computer created", "computer", r.ID, "name", r.Name, "boot_ms", r.BootMS)
	return s.shown(*r), nil
}

// draft is the record of a new computer.
func draft(ctx context.Context, s *Store, spec holt.ComputerSpec, img image.Image, engine machine.Engine) (*record, error) {
	r := &record{
		Computer: holt.Computer{
			ID: holt.NewComputerID(), Name: spec.Name, Template: img.Template, State: holt.ComputerCreating,
			Engine: engine.Name(), CPUs: spec.CPUs, MemoryMB: spec.MemoryMB, DiskSizeMB: spec.DiskSizeMB, WorkspaceSizeMB: spec.WorkspaceSizeMB,
			CreatedAt: time.Now().UTC(), IdleTimeout: spec.IdleTimeout, Tenant: holt.TenantOf(ctx),
		},
		image: img.Digest, network: spec.Network,
	}
	if spec.SecretsOf != "" {
		from, err := s.table.find(ctx, spec.SecretsOf)
		if err != nil {
			return nil, err
		}
		r.secretsOf = from.ID
	}
	if engine.Capabilities().RootDisk {
		r.disk = holt.NewDiskID()
	}
	if spec.Workspace != "" {
		var err error
		r.workspaceID, r.Workspace, err = s.cfg.Workspaces.Find(ctx, spec.Workspace)
		return r, err
	}
	r.workspaceID, r.owned = holt.NewWorkspaceID(), true
	if spec.Name != "" && s.cfg.taken(ctx, spec.Name) {
		// The computer of that name, if there is one, is the better reason.
		if _, err := s.table.find(ctx, spec.Name); err == nil {
			return r, nil
		}
		return nil, holt.Errorf(holt.AlreadyExists, "a workspace named %q already exists, and no computer has that name", spec.Name).
			WithHint("use it with --workspace %s, or choose another name", spec.Name)
	}
	return r, nil
}

// settle records that the computer runs.
func (m *transition) settle(ctx context.Context) error {
	now := time.Now().UTC()
	m.r.State, m.r.Reason, m.r.StartedAt = holt.ComputerRunning, "", &now
	m.r.Engine = m.engine().Name()
	if !m.live.launched.IsZero() { // by a daemon before this one
		m.r.BootMS = now.Sub(m.live.launched).Milliseconds()
	}
	return m.s.table.save(ctx, *m.r)
}

func nothing(context.Context) error { return nil }

// markFailed records that the computer is incomplete and could not be undone.
func (m *transition) markFailed(ctx context.Context, reason error) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	m.r.State, m.r.Reason = holt.ComputerFailed, reason.Error()
	if err := m.s.table.save(late, *m.r); err != nil {
		m.s.log.ErrorContext(ctx, "record failed computer", "computer", m.r.ID, "err", err)
	}
}
