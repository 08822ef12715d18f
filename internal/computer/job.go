package computer

import (
	"context"

	"holt"
)

// CreateFor is Create for a job, whose computer is thrown away when it is
// deleted: nothing in it is asked to end.
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

// OfJob returns the computers of a job: one at most, but for what a killed daemon left.
func (s *Store) OfJob(ctx context.Context, job holt.JobID) ([]holt.Computer, error) {
	all, err := s.table.list(ctx, `WHERE job = ?1 AND job <> ''`, job)
	list := make([]holt.Computer, 0, len(all))
	for _, r := range all {
		list = append(list, s.shown(r))
	}
	return list, err
}

// Draining says whether no machine may start, since the daemon is about to end.
func (s *Store) Draining() bool { return s.shutdown.mayStart() != nil }

// CheckComputer refuses what can never be a computer anywhere, and says which shape it is with its defaults.
func CheckComputer(spec holt.ComputerSpec) (holt.ComputerSpec, error) { return shape(spec) }

// check refuses what can never be a computer here, see [CheckComputer].
func (c *Config) check(spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	spec, err := shape(spec)
	if err == nil {
		err = c.checkNetwork(spec.Network)
	}
	if err == nil && spec.SecretsOf != "" {
		err = c.hasNetworks()
	}
	return spec, err
}

// CheckFor refuses what can never be a job's computer here, and returns it with its defaults. Errors:
// InvalidArgument, NotFound (the computer whose secrets it is to have), Unsupported (a network policy or
// secrets where computers share the host's network).
func (s *Store) CheckFor(ctx context.Context, spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	spec, err := s.cfg.check(spec)
	if err == nil && spec.SecretsOf != "" {
		_, err = s.table.find(ctx, spec.SecretsOf)
	}
	return spec, err
}

// CheckRun refuses what can never be a run.
func CheckRun(spec holt.RunSpec) error { return checkRun(spec) }
