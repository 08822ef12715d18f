package agent

import (
	"fmt"
	"os"
	"testing"

	"holt"
)

// A directory is listed in pages, each from the offset behind the previous one.
func TestListPages(t *testing.T) {
	c := startGuest(t).client(t)
	dir := t.TempDir()
	const files = 3000
	for i := range files {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, most := range []int{700, files, files + 1} {
		seen := map[holt.OSString]int{}
		pages, at := 0, int64(0)
		for {
			n := 0
			err := c.List(t.Context(), dir, at, most, func(f holt.FileInfo, after int64) error {
				seen[f.Name]++
				at = after
				n++
				return nil
			})
			if err != nil || n > most {
				t.Fatalf("%d of at most %d entries, %v", n, most, err)
			}
			if pages++; n < most {
				break
			}
		}
		if len(seen) != files || pages != files/most+1 {
			t.Errorf("listed %d of %d in %d pages of %d", len(seen), files, pages, most)
		}
		for name, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", name, n)
			}
		}
	}
	err := c.List(t.Context(), dir, 0, 0, nil)
	wantCode(t, "more than none", err, holt.Corrupt) // the agent sends all, as to a host that knows of no pages
	wantCode(t, "an offset that cannot be", c.List(t.Context(), dir, -1, 10, nil), holt.InvalidArgument)
}

// A guest cannot send more entries than requested.
func TestListLimit(t *testing.T) {
	list := []holt.FileInfo{{Name: "a", Kind: "file"}, {Name: "b", Kind: "file"}}
	c := scripted(t, acknowledge(1), data(1, answered(t, nil, nil)), data(1, answered(t, list, nil)))
	err := c.List(t.Context(), "/home/agent", 0, 1, func(holt.FileInfo, int64) error { return nil })
	wantCode(t, "two entries for one", err, holt.Corrupt)
}
