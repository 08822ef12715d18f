package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A sealed segment that somebody deleted costs the files with bytes in it, and
// nothing else: reading them is EIO, and check names each file and the segment.
func TestLostSegment(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(map[bool]string{true: "while open", false: "while closed"}[running], func(t *testing.T) {
			f := newFixture(t, quiet(Options{SegmentSize: 64 << 10, KeepSegments: -1}))
			f.mkdir("d")
			f.put("d/lost", strings.Repeat("l", 40<<10))
			f.put("d/over", strings.Repeat("o", 10))
			segment := f.lastSegment()
			for _, name := range []string{"d/kept", "more", "most"} { // seals what came before
				f.put(name, strings.Repeat("k", 60<<10))
			}
			f.put("d/over", "now elsewhere")
			f.ok(f.w.Flush())
			if f.lastSegment() == segment {
				t.Fatal("the segment was not sealed")
			}
			if running {
				f.reopen() // no descriptor of it is kept
				f.ok(os.Remove(segment))
			} else {
				f.ok(f.w.Close())
				f.ok(os.Remove(segment))
				f.open()
			}
			for range 2 {
				_, err := f.t.Read(f.must("d/lost").Ino, 0, make([]byte, 100))
				f.want(err, syscall.EIO)
				if f.get("d/kept") != strings.Repeat("k", 60<<10) || f.get("d/over") != "now elsewhere" {
					t.Error("other files changed")
				}
			}
			report, err := f.w.Check(t.Context())
			f.ok(err)
			if len(report.Problems) == 0 {
				t.Fatal("check found nothing")
			}
			for _, p := range report.Problems {
				if !strings.Contains(p, "(/d/lost)") || !strings.Contains(p, filepath.Base(segment)) {
					t.Errorf("check says %q", p)
				}
			}
			f.put("new", "goes on")
			f.put("d/lost", "new content") // what is lost is no longer needed
			f.reopen()
			if f.get("new") != "goes on" || f.get("d/lost") != "new content" {
				t.Error("files written since are not there")
			}
		})
	}
}

// lastSegment returns the segment's file that was made last.
func (f *fixture) lastSegment() string {
	all := f.t.journal.Segments()
	return filepath.Join(f.dir, "journal", fmt.Sprint(all[len(all)-1].ID, ".seg"))
}
