package workspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/store/journal"
)

// A file of several windows and segments is one with the source's bytes, in the present, in history and in a fork, also when
// the source is gone, the segments are packed, and the index is lost.
func TestAdopt(t *testing.T) {
	for _, most := range []int{mostInGroup, 1, 3} {
		t.Run(fmt.Sprint("extents=", most), func(t *testing.T) { adopts(t, most) })
	}
}

func adopts(t *testing.T, mostInGroup int) {
	p := newPackFixture(t, Options{mostInGroup: mostInGroup})
	rng := rand.New(rand.NewPCG(1, 2))
	big := strings.Repeat(someLines(rng, 300_000), 75) + "end"
	if len(big) < 2*windowSize+journal.MaxData {
		t.Fatal(len(big))
	}
	p.put("old", "before")
	old := p.must("old")
	stored := p.t.journal.End()
	p.adopt("big", big)
	p.adopt("old", big[:100_000])
	if grown := p.t.journal.End() - stored; grown > 64<<10 {
		t.Errorf("the journal grew by %d bytes", grown)
	}
	if now := p.must("old"); now.Ino != old.Ino || now.Size != 100_000 {
		t.Errorf("the file was replaced: %+v, not inode %d", now, old.Ino)
	}
	want := map[string]string{"big": big, "old": big[:100_000]}
	p.holds(want)
	_, err := p.w.Checkpoint(CheckpointOptions{Name: "c"})
	p.ok(err)
	_, err = p.t.Write(p.c, p.must("big").Ino, 5, []byte("changed"))
	p.ok(err)
	p.pack() // also lets go of what nothing refers to
	p.ok(p.unlink("old"))
	_, err = p.archive.Collect(context.Background(), time.Now())
	p.ok(err)
	child := p.fork(ForkOptions{Child: "child", Space: "fork"})
	if got := child.get("big"); got != big[:5]+"changed"+big[12:] {
		t.Error("the fork has other bytes")
	}
	child.check()
	p.ok(p.w.Close())
	p.ok(os.Remove(filepath.Join(p.dir, "index.db")))
	p.open()
	p.held(map[string]map[string]string{"c": want})
	p.holds(map[string]string{"big": big[:5] + "changed" + big[12:]})
	p.check()
}

// What fails leaves the file as it was, and nothing in the archive after the next packing.
func TestAdoptFails(t *testing.T) {
	p := newPackFixture(t, Options{Quota: holt.Quota{Bytes: 1 << 20}})
	p.put("f", "as it was")
	w := p.archive.Create("art_test", "body")
	p.ok(w.Append(context.Background(), 0, make([]byte, 2<<20)))
	_, err := w.Commit(context.Background())
	p.ok(err)
	for _, c := range []struct {
		space  string
		source Source
		code   holt.Code
	}{
		{"art_test", Source{"body", 2 << 20}, holt.OutOfSpace},
		{"art_test", Source{"none", 5}, holt.NotFound},
		{"art_none", Source{"body", 5}, holt.NotFound},
	} {
		_, err := Files{Tree: p.t, Caller: p.c}.Adopt(context.Background(), "/f", holt.WriteSpec{}, c.space, []Source{c.source})
		if holt.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, not %s", c.source, err, c.code)
		}
	}
	p.holds(map[string]string{"f": "as it was"})
	p.pack()
	parts, err := p.archive.Parts(context.Background(), "wsp_test")
	p.ok(err)
	for _, part := range parts {
		if !strings.HasPrefix(part.Name, indexPart) && part.Bytes >= 2<<20 {
			t.Errorf("%s is still there, with %d bytes", part.Name, part.Bytes)
		}
	}
}

// What fails after some of the bytes, while a checkpoint saw the file beside its name, leaves that checkpoint readable.
func TestAdoptStops(t *testing.T) {
	p := newPackFixture(t, Options{mostInGroup: 1})
	p.put("f", "as it was")
	for i := range 3 {
		w := p.archive.Create("art_test", fmt.Sprint(i))
		p.ok(w.Append(context.Background(), 0, []byte(strings.Repeat("bytes", 10_000))))
		_, err := w.Commit(context.Background())
		p.ok(err)
	}
	groups := 0
	p.opt.Fail = func(point string) error {
		if point != "adopt.group" {
			return nil
		}
		if groups++; groups < 2 {
			return nil
		}
		_, err := p.w.Checkpoint(CheckpointOptions{Name: "half"})
		p.ok(err)
		return syscall.EIO
	}
	p.reopen()
	_, err := Files{Tree: p.t, Caller: p.c}.Adopt(context.Background(), "/f", holt.WriteSpec{}, "art_test", []Source{{"0", 50_000}, {"1", 50_000}, {"2", 50_000}})
	if err == nil {
		t.Error("nothing failed")
	}
	p.holds(map[string]string{"f": "as it was"})
	p.ok(p.archive.Drop(context.Background(), "art_test"))
	p.pack()
	_, err = p.archive.Collect(context.Background(), time.Now())
	p.ok(err)
	p.check()
	p.reopen()
	p.check()
}
