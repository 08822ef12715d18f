package daemon_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"holt"
)

// TestHostileAgent: a daemon whose computers' agents are all hostile, on the local engine, so that as much is asked and
// answered in seconds as in a machine in an hour. The same holds as in TestHostileGuest, but for what is beside it.
func TestHostileAgent(t *testing.T) {
	i, seed := newIll(t, home(t))
	i.computers = 1
	t.Setenv(envGuest, hostileFile(t, hostileProgram(t), "long", seed, i.canary, i.secret))
	i.again("")
	ctx := t.Context()
	mallory, began := i.makes()
	end := i.watch()
	over, stop := context.WithTimeout(ctx, 2*time.Duration(i.seconds)*time.Second)
	defer stop()
	var asking sync.WaitGroup
	i.asking(over, &asking)
	asking.Wait()
	i.takesAway()
	i.moments()
	i.tells()
	end()
	i.fits(mallory.ID, time.Since(began))
	i.goes()
	i.close(seed)
	endAll(t, i.process)
}

// moments has it be stopped, forked and restored, and a job be run by one like it, while it lies.
func (i *ill) moments() {
	const it = "mallory"
	for name, do := range map[string]func(context.Context) error{
		"job and its outputs": i.job,
		"snapshot": func(ctx context.Context) error {
			_, err := i.Computers.Snapshot(ctx, it, holt.SnapshotSpec{}, "")
			return err
		},
		"moment diff": func(ctx context.Context) error {
			list, err := i.Moments.List(ctx, it)
			if err == nil && len(list) > 0 {
				_, err = i.Moments.Diff(ctx, string(list[0].ID), it)
			}
			return err
		},
		"restore": func(ctx context.Context) error {
			list, err := i.Moments.List(ctx, it)
			if err == nil && len(list) > 0 {
				_, err = i.Moments.Restore(ctx, string(list[0].ID), holt.MomentRestoreSpec{}, "")
			}
			return err
		},
		"fork": func(ctx context.Context) error {
			_, err := i.Computers.Fork(ctx, it, holt.ComputerForkSpec{Name: "twin"}, "")
			_, no := i.Computers.Delete(i.t.Context(), "twin", "")
			if holt.CodeOf(no) == holt.NotFound {
				no = nil
			}
			return errors.Join(err, no)
		},
		"stop": func(ctx context.Context) error { _, err := i.Computers.Stop(ctx, it, ""); return err },
	} {
		ctx, cancel := context.WithTimeout(i.t.Context(), illPatient)
		began := time.Now()
		err := do(ctx)
		cancel()
		if err != nil {
			i.saw("why "+name+" fails", []byte(err.Error()))
		}
		i.count(name, began, err)
	}
}

// job runs one, takes what it left, and removes it.
func (i *ill) job(ctx context.Context) error {
	j, err := i.Jobs.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}}, "")
	if err != nil {
		return err
	}
	var heard scanned
	err = i.Jobs.Follow(ctx, j.ID, 0, func(e holt.RunEvent) error { _, err := heard.Write(e.Data); return err })
	if err == nil {
		err = i.Jobs.Outputs(ctx, j.ID, io.Writer(&heard))
	}
	i.saw("what a job says", heard.b)
	late := i.t.Context()
	_, no := i.Jobs.Cancel(late, j.ID, "")
	for end := time.Now().Add(illPatient); holt.CodeOf(no) == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if j, no = i.Jobs.Get(late, j.ID); no == nil && j.State.Ended() {
			no = i.Jobs.Delete(late, j.ID, "")
			break
		}
	}
	return errors.Join(err, no)
}
