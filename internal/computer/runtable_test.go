package computer

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"holt"
	"holt/internal/store/db"
)

const (
	keepRuns = 100
	mostRuns = 1000
)

func openRuns(t *testing.T) runTable {
	t.Helper()
	d, err := db.Open(filepath.Join(t.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return runTable{d, slog.New(slog.DiscardHandler), endedRuns{last: keepRuns, young: 24 * time.Hour, most: mostRuns}}
}

// ended puts n ended runs of a computer on record, a millisecond apart; the last
// ended at the given time. Their ids are PREFIX1 to PREFIXn.
func (t runTable) ended(test *testing.T, id holt.ComputerID, prefix string, n, background int, last time.Time) {
	test.Helper()
	err := t.d.Write(test.Context(), func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM i WHERE n < ?3)
			INSERT INTO run (id, computer, spec, state, background, started, ended)
			SELECT ?2 || n, ?1, '{}', 'exited', ?4, 1, ?5 - (?3 - n) * 1000000 FROM i`,
			id, prefix, n, background, last.UnixNano())
	})
	if err != nil {
		test.Fatal(err)
	}
}

// A run took what it took by the guest's clock, however that stands to the host's.
func TestRunTook(t *testing.T) {
	table := openRuns(t)
	for id, tt := range map[holt.RunID]struct {
		clock, took, want time.Duration // how far the guest's clock is ahead, and what it says
	}{
		"run_behind": {-2 * time.Second, time.Second, time.Second},
		"run_ahead":  {time.Hour, time.Second, time.Second},
		"run_back":   {0, -time.Second, 0},
		"run_long":   {0, time.Hour, time.Minute}, // which cannot be: it began a minute ago
		"run_ages":   {0, 1<<63 - 1, time.Minute},
	} {
		began := time.Now().Add(-time.Minute).UTC()
		if err := table.insert(t.Context(), holt.Run{ID: id, ComputerID: "cmp_x", State: holt.RunRunning, StartedAt: began}, nil); err != nil {
			t.Fatal(err)
		}
		start := began.Add(tt.clock)
		end := start.Add(tt.took)
		table.exited("cmp_x", holt.Run{ID: id, State: holt.RunExited, StartedAt: start, EndedAt: &end})
		run, err := table.get(t.Context(), id)
		if err != nil || run.EndedAt == nil {
			t.Fatal(run, err)
		}
		if got := run.EndedAt.Sub(run.StartedAt); got < tt.want || got > tt.want+tt.want/10 {
			t.Errorf("%s took %v, want %v", id, got, tt.want)
		}
	}
}

// count returns how many runs of a computer have an id that begins with
// prefix, and the first of them.
func (t runTable) count(test *testing.T, id holt.ComputerID, prefix string) (n int, first string) {
	test.Helper()
	err := t.d.Read(test.Context(), func(tx *db.Tx) error {
		return tx.Query(`SELECT id FROM run WHERE computer = ? AND id GLOB ? || '*' ORDER BY seq DESC`, []any{id, prefix}, func(row *db.Row) error {
			n, first = n+1, row.Text(0)
			return nil
		})
	})
	if err != nil {
		test.Fatal(err)
	}
	return n, first
}

// TestEndedRunsAreBounded: a computer's ended runs do not grow for ever, and
// neither short ones push out one that left processes, nor those of one
// computer another's.
func TestEndedRunsAreBounded(t *testing.T) {
	table := openRuns(t)
	now := time.Now()
	const id, other = holt.ComputerID("cmp_a"), holt.ComputerID("cmp_b")
	end := func() []holt.RunID { // one more run ends
		t.Helper()
		run := holt.Run{ID: holt.NewRunID(), ComputerID: id, State: holt.RunRunning, StartedAt: now.Add(-time.Minute)}
		if err := table.insert(t.Context(), run, nil); err != nil {
			t.Fatal(err)
		}
		run.State = holt.RunExited
		gone := table.exited(id, run)
		if got, err := table.get(t.Context(), run.ID); err != nil || got.State != holt.RunExited {
			t.Fatalf("the run that has just ended: %+v %v", got, err)
		}
		return gone
	}
	want := func(prefix string, n int, first string) {
		t.Helper()
		if got, at := table.count(t, id, prefix); got != n || at != first {
			t.Errorf("%d runs %s from %s on, want %d from %s on", got, prefix, at, n, first)
		}
	}
	table.ended(t, other, "other", keepRuns+50, 0, now.Add(-48*time.Hour))
	table.ended(t, id, "served", 5, 1, now.Add(-72*time.Hour))
	table.ended(t, id, "old", keepRuns+50, 0, now.Add(-48*time.Hour))
	if gone := end(); len(gone) != 51 || gone[0] != "old1" {
		t.Errorf("%d are gone: %.3v…", len(gone), gone)
	}
	want("old", keepRuns-1, "old52") // and the one that has just ended
	table.ended(t, id, "day", keepRuns+50, 0, now.Add(-time.Hour))
	end()
	want("old", 0, "")
	want("day", keepRuns+50, "day1") // a day is not over
	table.ended(t, id, "many", mostRuns, 0, now.Add(-time.Minute))
	end()
	want("day", 0, "")
	want("many", mostRuns-3, "many4") // and the three that have just ended
	want("served", 5, "served1")
	table.ended(t, id, "served-", mostRuns, 1, now.Add(-time.Minute))
	end()
	want("served", mostRuns, "served-1")
	if n, _ := table.count(t, other, "other"); n != keepRuns+50 {
		t.Errorf("another computer has %d runs", n)
	}
	if gone := end(); len(gone) > 1 {
		t.Errorf("again, %d are gone", len(gone))
	}
}
