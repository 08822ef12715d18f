package httpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"holt"
)

// TestTicketsSwept: tickets that have expired leave room, and are looked for once a second, not by each who finds none.
func TestTicketsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all tickets
		put := func(life time.Duration) error {
			_, err := all.put(ticket{maker: "one", whose: "team-a", expires: time.Now().Add(life)})
			return err
		}
		fill := func(life time.Duration) {
			t.Helper()
			for range mostTicketsOf {
				if err := put(life); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(time.Second / 2)
		if err := put(time.Second); holt.CodeOf(err) != holt.TooMany {
			t.Error("one too many:", err)
		}
		time.Sleep(sweepTickets - time.Millisecond)
		if err := put(time.Second); holt.CodeOf(err) != holt.TooMany {
			t.Error("they were looked for again at once:", err)
		}
		time.Sleep(time.Millisecond)
		fill(time.Second / 2)
		time.Sleep(sweepTickets)
		fill(time.Second / 2)
		if len(all.set) != mostTicketsOf || len(all.of) != 2 {
			t.Errorf("%d are there, in %v", len(all.set), all.of)
		}
	})
}
