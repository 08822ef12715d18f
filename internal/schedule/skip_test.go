package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	"holt"
	"holt/internal/store/db"
)

// TestUnreadable: a schedule with an unreadable row or an unknown time zone does not affect others, neither while the
// daemon runs nor when it starts. It is listed, and can be repaired or deleted.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "einstein")
		s := w.open()
		for _, name := range []string{"garbled", "nowhere", "sound"} {
			w.add("einstein", name, "0 * * * *", "1m", nil)
		}
		ctx := t.Context()
		w.ok(w.d.WriteSync(ctx, func(tx *db.Tx) error {
			if err := tx.Exec(`UPDATE schedule SET spec = '{' WHERE name = 'garbled'`); err != nil {
				return err
			}
			return tx.Exec(`UPDATE schedule SET zone = 'Nowhere/Atall' WHERE name = 'nowhere'`)
		}))
		time.Sleep(90 * time.Minute) // 01:30
		w.wants("sound", "01:00 exited")
		w.wants("garbled")
		w.ok(s.Close())
		s = w.open()
		time.Sleep(time.Hour) // 02:30
		w.wants("sound", "01:00 exited", "02:00 exited")
		if all, err := s.List(ctx, "einstein"); err != nil || len(all) != 3 {
			t.Errorf("%+v %v", all, err)
		}
		fired, err := s.Run(ctx, "garbled", "")
		if err != nil || fired.State != holt.FiringFailed || fired.Reason == "" {
			t.Errorf("manual run: %+v %v", fired, err)
		}
		off := false
		if _, err := s.Update(ctx, "garbled", holt.ScheduleChange{KeepAwake: &off}, ""); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("updated without a command: %v", err)
		}
		spec := holt.RunSpec{Command: "1m"}
		_, err = s.Update(ctx, "garbled", holt.ScheduleChange{Spec: &spec}, "")
		w.ok(err)
		w.ok(s.Delete(ctx, "nowhere", ""))
		time.Sleep(time.Hour) // 03:30
		w.wants("sound", "01:00 exited", "02:00 exited", "03:00 exited")
		if got := w.tells("garbled"); len(got) == 0 || got[len(got)-1] != "03:00 exited" {
			t.Errorf("after the repair: %q", got)
		}
		w.ok(s.Close())
	})
}
