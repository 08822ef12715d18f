package workspace

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt/internal/store/journal"
)

// Power goes soon after a workspace was made, before anything was synced: of three
// segments the second may then be lost and the third not. The index has to know
// by then that the first is all there was, or that looks like lost segments.
func TestPowerLossAfterCreate(t *testing.T) {
	disk := journal.NewFaultDisk()
	f := newFixture(t, quiet(Options{Disk: disk, SegmentSize: 1 << 16}))
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprint(i))
		f.put(names[i], strings.Repeat("x", 20_000))
	}
	if n := len(f.t.journal.Segments()); n < 3 {
		t.Fatalf("%d segments", n)
	}
	for seed := range uint64(64) {
		g := &fixture{T: t, dir: filepath.Join(t.TempDir(), "image"), opt: quiet(Options{}), c: f.c}
		image(t, f.t, f.dir, g.dir, disk, rand.New(rand.NewPCG(seed, 0)))
		g.open()
		if got := g.list(""); !slices.Equal(got, names[:len(got)]) {
			t.Errorf("seed %d: %q", seed, got)
		}
		g.put("after", "recovery")
		g.check()
		g.ok(g.w.Close())
	}
}
