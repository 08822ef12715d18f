package computer

import (
	"context"

	"holt"
)

// CreateFor is Create for a job. The job's computer is deleted without a shutdown.
func (s *Store) CreateFor(ctx context.Context, job holt.JobID, spec holt.ComputerSpec) (holt.Computer, error) {
	spec, err := s.cfg.check(spec)
	if err != nil {
		return holt.Computer{}, err
	}
	ctx, leave, err := s.shutdown.enter(ctx)
	if err != nil {
		return holt.Computer{}, err
	}
	defer leave()
	return s.createFor(ctx, spec, job, nil)
}

// OfJob returns the computers of a job: at most one, except after a crash.
func (s *Store) OfJob(ctx context.Context, job holt.JobID) ([]holt.Computer, error) {
	all, err := s.table.list(ctx, `WHERE job = ?1 AND job <> ''`, job)
	list := make([]holt.Computer, 0, len(all))
	for _, r := range all {
		list = append(list, s.shown(r))
	}
	return list, err
}

// Draining reports whether no machine may start because the daemon is about to end.
func (s *Store) Draining() bool { return s.shutdown.mayStart() != nil }

// CheckComputer fills in the defaults of a spec and refuses what no host supports.
func CheckComputer(spec holt.ComputerSpec) (holt.ComputerSpec, error) { return shape(spec) }

// check is CheckComputer for this host.
func (c *Config) check(spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	spec, err := shape(spec)
	if err != nil {
		return spec, err
	}
	e, err := c.Engines.named(spec.Engine)
	if err == nil {
		err = c.checkNetwork(e, spec.Network)
	}
	if err == nil && spec.SecretsOf != "" {
		err = c.hasNetworks(e)
	}
	return spec, err
}

// CheckFor is CheckComputer for a job's computer on this host. Errors: InvalidArgument, NotFound
// (the computer whose secrets it uses), Unsupported (a network policy or secrets where the engine
// has no network per computer).
func (s *Store) CheckFor(ctx context.Context, spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	spec, err := s.cfg.check(spec)
	if err == nil && spec.SecretsOf != "" {
		_, err = s.table.find(ctx, spec.SecretsOf)
	}
	return spec, err
}

// CheckRun refuses a run that no guest can start.
func CheckRun(spec holt.RunSpec) error { return checkRun(spec) }
