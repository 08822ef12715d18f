package job

import (
	"strings"
	"testing"
	"time"

	"holt"
)

// begun creates a job and waits until its command runs.
func begun(t *testing.T, s *Store, w *world, spec holt.JobSpec) holt.Job {
	t.Helper()
	j := create(t, s, spec)
	eventually(t, "it runs", func() bool {
		now, err := s.Get(t.Context(), j.ID)
		return err == nil && now.RunID != ""
	})
	return j
}

// reopen closes the store and opens another, some time later.
func reopen(t *testing.T, s *Store, id holt.JobID, later time.Duration) *Store {
	t.Helper()
	s.Close()
	r, err := s.table.get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	at := r.StartedAt.Add(-later)
	r.StartedAt = &at
	if err := s.table.save(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	next, err := Open(t.Context(), s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	return next
}

// looked waits until the job's computers have been listed n more times.
func looked(t *testing.T, w *world, more int) {
	t.Helper()
	w.mu.Lock()
	most := w.looks + more
	w.mu.Unlock()
	eventually(t, "they are looked at", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.looks >= most
	})
}

// running reports whether all computers run.
func (w *world) running() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if c.State != holt.ComputerRunning {
			return false
		}
	}
	return true
}

// TestPausedForLong: the time of a job does not advance while its computer is paused for the daemon's end.
func TestPausedForLong(t *testing.T) {
	s, w := open(t)
	j := begun(t, s, w, holt.JobSpec{})
	w.pause("")
	s = reopen(t, s, j.ID, holt.JobTimeout+time.Hour)
	eventually(t, "it is resumed and followed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.hurried {
			t.Fatal("the run is followed for less than an hour, although six are left")
		}
		return w.followed == 2
	})
	looked(t, w, 2)
	w.end(0)
	if j = ended(t, s, j.ID); j.State != holt.JobDone || j.TimedOut || j.Attempts != 1 {
		t.Errorf("%+v", j)
	}
}

// TestDue: a command's time counts while its machine runs. A worker that follows it late gets the earlier end.
func TestDue(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) *time.Time { snapshot := now.Add(d); return &snapshot }
	for _, c := range []struct{ job, machine, followed, want time.Duration }{
		{-2 * time.Hour, -2 * time.Hour, -2 * time.Hour, 4 * time.Hour},
		{-7 * time.Hour, 0, 0, 6 * time.Hour},
		{-9 * time.Hour, -8 * time.Hour, -8 * time.Hour, -2 * time.Hour},
		{-9 * time.Hour, -8 * time.Hour, 0, 0},
	} {
		w := worker{r: record{Job: holt.Job{StartedAt: at(c.job)}, run: holt.RunSpec{TimeoutMS: holt.JobTimeout.Milliseconds()}}}
		if got := w.due(w.countedFrom(holt.Computer{StartedAt: at(c.machine)}), *at(c.followed), now).Sub(now); got != c.want+grace {
			t.Errorf("%+v: after %v", c, got)
		}
	}
}

// TestResumeRefused: a resume that fails temporarily is retried, the command is kept, and the job has the reason.
func TestResumeRefused(t *testing.T) {
	s, w := open(t)
	j := begun(t, s, w, holt.JobSpec{})
	w.pause("")
	full := holt.Errorf(holt.TooMany, "the host has no memory for it")
	w.mu.Lock()
	w.resumes = []error{full, full, holt.Errorf(holt.Unavailable, "the guest does not answer")}
	w.mute = []error{holt.Errorf(holt.Unavailable, "the guest agent does not answer")}
	w.mu.Unlock()
	s = reopen(t, s, j.ID, 0)
	eventually(t, "it says why", func() bool {
		now, err := s.Get(t.Context(), j.ID)
		return err == nil && now.State == holt.JobRunning && strings.Contains(now.Reason, "cannot be resumed yet: ")
	})
	eventually(t, "it goes on", func() bool {
		now, err := s.Get(t.Context(), j.ID)
		return err == nil && now.Reason == "" && w.running()
	})
	w.end(0)
	if j = ended(t, s, j.ID); j.State != holt.JobDone || j.Attempts != 1 || j.Reason != "" {
		t.Errorf("%+v", j)
	}
	if w.created != 1 || w.begun != 1 || len(w.mute) != 0 {
		t.Errorf("%d computers were made and %d commands begun", w.created, w.begun)
	}
}

// TestResumeNever: a resume that fails permanently ends the job.
func TestResumeNever(t *testing.T) {
	s, w := open(t)
	j := begun(t, s, w, holt.JobSpec{})
	w.pause("")
	w.mu.Lock()
	w.resumes = []error{holt.Errorf(holt.Unsupported, "this processor lacks a feature that the memory image needs")}
	w.mu.Unlock()
	s = reopen(t, s, j.ID, 0)
	if j = ended(t, s, j.ID); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != holt.Unsupported {
		t.Errorf("%+v", j)
	}
}

// TestPausedUnderIt: a paused computer of a job is resumed. If a limit or budget paused it, the job fails with that reason.
func TestPausedUnderIt(t *testing.T) {
	for by, says := range map[string]string{"": "", "token ci": "", "limit": "by limit", "budget": "by budget"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s, w := open(t)
			j := begun(t, s, w, holt.JobSpec{})
			w.pausing()
			looked(t, w, 2)
			if w.running() {
				t.Error("the computer is resumed during the pause")
			}
			w.pause(by)
			if says == "" {
				eventually(t, "it is resumed", w.running)
				looked(t, w, 2)
				w.end(0)
				if j = ended(t, s, j.ID); j.State != holt.JobDone || w.begun != 1 {
					t.Errorf("%+v", j)
				}
				return
			}
			eventually(t, "it ends", func() bool {
				now, err := s.Get(t.Context(), j.ID)
				return err == nil && now.State.Ended()
			})
			if j = ended(t, s, j.ID); j.State != holt.JobFailed || j.Error == nil || j.Error.Code != holt.TooMany || j.TimedOut || !strings.Contains(j.Error.Message, says) {
				t.Errorf("%+v", j)
			}
			if computers, _, _ := w.count(); computers > 0 {
				t.Error("the computer of the job is left")
			}
		})
	}
}

// TestPausedForTheEnd: computers that are paused for the daemon's end are not resumed.
func TestPausedForTheEnd(t *testing.T) {
	s, w := open(t)
	begun(t, s, w, holt.JobSpec{})
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	w.pause("")
	looked(t, w, 2)
	if w.running() {
		t.Error("the computer is resumed")
	}
}
