package daemon

import (
	"context"
	"testing"

	"holt"
)

// TestTurns has one workspace's queries leave a turn to others, and each wait
// end with a turn or with who waits.
func TestTurns(t *testing.T) {
	var all turns
	given, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(ids ...holt.WorkspaceID) func() {
		t.Helper()
		end, err := all.take(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	waits := func(ids ...holt.WorkspaceID) {
		t.Helper()
		if _, err := all.take(given, ids); err == nil {
			t.Errorf("%v has a turn", ids)
		}
	}
	first, second := take("a"), take("a", "a", "c")
	waits("a")
	waits("b", "a")
	third := take("b", "c")
	waits("c")
	fourth := take("d")
	waits("e")
	later := make(chan func())
	for range 2 {
		go func() {
			end, err := all.take(t.Context(), []holt.WorkspaceID{"a"})
			if err != nil {
				t.Error(err)
			}
			later <- end
		}()
	}
	first()
	end := <-later
	waits("a")
	second()
	(<-later)()
	for _, end := range []func(){end, third, fourth} {
		end()
	}
	if all.n != 0 || len(all.of) != 0 {
		t.Errorf("left: %d, %v", all.n, all.of)
	}
}
