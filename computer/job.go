package computer

import (
	"context"

	"holt"
)

// JobSchema says which computers belong to a job.
const JobSchema = `
ALTER TABLE computer ADD COLUMN job TEXT NOT NULL DEFAULT ''; -- id of the job that it is for
CREATE INDEX computer_job ON computer (job) WHERE job <> '';
`

// CreateFor is Create for a job, whose computer is thrown away when it is
// deleted: nothing in it is asked to end.
func (s *Store) CreateFor(ctx context.Context, job holt.JobID, spec holt.ComputerSpec) (holt.Computer, error) {
	spec, err := shape(spec)
	if err != nil {
		return holt.Computer{}, err
	}
	ctx, leave, err := s.gate.enter(ctx)
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
func (s *Store) Draining() bool { return s.gate.mayStart() != nil }

// CheckComputer refuses what can never be a computer, and says which shape it is with its defaults.
func CheckComputer(spec holt.ComputerSpec) (holt.ComputerSpec, error) { return shape(spec) }

// CheckRun refuses what can never be a run.
func CheckRun(spec holt.RunSpec) error { return checkRun(spec) }
