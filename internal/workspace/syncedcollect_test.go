package workspace

import (
	"testing"
)

// Before a segment goes, or its part of the archive, the commit that lets go of
// it is synced, with all before it: also if it changes no row, since the archive
// has the bytes that rows refer to.
func TestSegmentsGoAfterASync(t *testing.T) {
	p := newPackFixture(t, Options{})
	reached := map[string]int{}
	p.opt.Fail = func(point string) error {
		if point == "collect.unlink" || point == "pack.forget" {
			reached[point]++
			if n := p.t.index.db.Unsynced(); n != 0 {
				t.Errorf("%s, and power loss can take back %d commits", point, n)
			}
		}
		return nil
	}
	p.reopen()
	for seed := range uint64(3) { // some files go on, some are replaced: segments of both kinds
		p.fill(60, seed)
		p.ok(p.w.Flush())
		if p.t.index.db.Unsynced() == 0 {
			t.Fatal("a flush syncs the index: this test shows nothing")
		}
		p.pack()
	}
	for name := range p.fill(60, 2) {
		p.ok(p.unlink(name))
	}
	p.pack()
	p.put("last", "x")
	p.ok(p.w.Flush())
	p.t.collected = 0
	p.ok(p.t.collect())
	for _, point := range []string{"collect.unlink", "pack.forget"} {
		if reached[point] == 0 {
			t.Error("never reached: ", point)
		}
	}
	p.check()
}
