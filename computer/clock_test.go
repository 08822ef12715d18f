package computer

import (
	"errors"
	"testing"
	"time"
)

// A clock that is told late is told again, and not for ever.
func TestSetClock(t *testing.T) {
	told := 0
	after := func(late ...time.Duration) func(time.Time) (time.Time, error) {
		told = 0
		return func(now time.Time) (time.Time, error) {
			told++
			return now.Add(-late[min(told, len(late))-1]), nil
		}
	}
	const hour = time.Hour // that no host is as slow as
	if now, err := setClock(time.Now().Add(hour), after(0)); err != nil || told != 0 || time.Until(now) < hour/2 {
		t.Errorf("a clock that is not late was set %d times to %v, %v", told, now, err)
	}
	if now, err := setClock(time.Now().Add(-hour), after(hour, -hour)); err != nil || told != 2 || now.Before(time.Now()) {
		t.Errorf("a clock that was late twice was set %d times to %v, %v", told, now, err)
	}
	if _, err := setClock(time.Now().Add(-hour), after(hour)); err != nil || told != clockTries {
		t.Errorf("a clock that stays late was set %d times, %v", told, err)
	}
	if _, err := setClock(time.Time{}, after(hour)); err != nil || told != 0 {
		t.Errorf("a guest without a clock was told %d times, %v", told, err)
	}
	gone := errors.New("gone")
	if _, err := setClock(time.Now().Add(-hour), func(time.Time) (time.Time, error) { return time.Time{}, gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}
