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

// A clock is wrong only where no slowness of the answer explains what it said.
func TestWrongClock(t *testing.T) {
	asked := time.Unix(1e9, 0)
	for says, wrong := range map[time.Time]bool{
		{}:                                    false, // it has none of its own
		asked:                                 false,
		asked.Add(-clockError / 2):            false,
		asked.Add(-clockError/2 - 1):          true,
		asked.Add(time.Minute):                false, // the answer took that long
		asked.Add(time.Minute + clockError/2): false,
		asked.Add(time.Minute + clockError):   true,
		asked.Add(-24 * time.Hour):            true,
	} {
		if wrongClock(says, asked, asked.Add(time.Minute)) != wrong {
			t.Errorf("a clock that says %v, asked at %v: wrong is not %v", says, asked, wrong)
		}
	}
}
