package workspace

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// allocated returns how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A guest may write 16 MiB of newlines: that is no text, and the most lines
// that are take a few times their bytes.
func TestTextIsBounded(t *testing.T) {
	f, g := family(t)
	newlines := strings.Repeat("\n", mostLines+1)
	f.put("top", newlines)
	g.put("top", newlines[1:]+"x")
	var b bytes.Buffer
	f.ok(f.w.TextDiff(t.Context(), "auto-1", Live, "/top", &b))
	if b.String() != "Binary files a/top and b/top differ\n" {
		t.Errorf("%.100q", b.String())
	}
	f.says(f.merge(g, MergeOptions{Text: true}), "conflict /top: its bytes were changed on both sides")

	var was []byte
	for i := range mostLines {
		was = append(strconv.AppendInt(was, int64(i+mostText), 10), '\n') // fmt takes half a minute under the race detector
	}
	is := bytes.ReplaceAll(was, []byte("\n"), []byte("x\n"))
	size := uint64(len(is) + mostLines*16) // bytes and headers
	if n := allocated(func() {
		if err := unified(io.Discard, "/f", "/f", &text{data: was}, &text{data: is}); err != nil {
			t.Error(err)
		}
	}); n > 4*size {
		t.Errorf("a diff allocated %d MiB", n>>20)
	}
	if n := allocated(func() {
		if _, ok := merge3(was, is, was); !ok {
			t.Error("no merge")
		}
	}); n > 6*size {
		t.Errorf("a merge allocated %d MiB", n>>20)
	}
}

// The search for the shortest script is given up where lines that are alike
// make it long, and not for a large text with some changes.
func TestTextWorkIsBounded(t *testing.T) {
	long := strings.Repeat("x", mostText/1024)
	marked := func(at int) (lines []string) {
		for i := range 1024 {
			if lines = append(lines, long); i%4 == at {
				lines[i] = fmt.Sprint(long[:len(long)-8], i)
			}
		}
		return lines
	}
	if all := edits(marked(0), marked(2)); len(all) != 1 {
		t.Error(len(all), "edits of texts that take too long")
	}
	var was, is []string
	for i := range mostLines / 4 {
		was = append(was, fmt.Sprintln(i))
		if is = append(is, was[i]); i%(mostLines/200) == 0 {
			is[i] = "changed\n"
		}
	}
	if all := edits(was, is); len(all) != 51 {
		t.Error(len(all), "edits of 51")
	}
}
