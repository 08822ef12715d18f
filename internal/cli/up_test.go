package cli

import "testing"

// A cache of nothing is no cache, and not the default one.
func TestArchiveCache(t *testing.T) {
	for said, want := range map[string]int64{"0": -1, "none": -1, "0G": -1, "3M": 3 << 20, "10G": 10 << 30} {
		f := upFlags{engine: "local", keepLast: 2, cache: said}
		opt, err := f.options(Place{})
		if err != nil || opt.ArchiveCache != want {
			t.Errorf("--archive-cache %s is %d (%v), want %d", said, opt.ArchiveCache, err, want)
		}
	}
}
