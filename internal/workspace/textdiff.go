package workspace

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// What is larger is not compared by lines: a line takes 16 bytes besides its own.
const (
	mostText  = 16 << 20 // bytes
	mostLines = 1 << 20
)

// TextDiff writes what differs between two states of a file as a unified diff
// with three lines of context; nothing if its bytes are the same. Files that
// are not text (a NUL in their first 8000 bytes, as Git decides) and those
// above 16 MiB or 1,048,576 lines are only named. NotFound if path is a file in neither state.
func (w *Workspace) TextDiff(ctx context.Context, from, to, path string, out io.Writer) error {
	return w.textDiff(ctx, from, to, path, path, out)
}

// textDiff compares what was at one path with what is at another.
func (w *Workspace) textDiff(ctx context.Context, from, to, was, is string, out io.Writer) error {
	paths, err := cleanPaths([]string{was, is})
	if err != nil {
		return err
	}
	var old, new *text
	err = w.between(ctx, "compare text", from, to, func(tx *db.Tx, a, b snapshot) error {
		if old, err = readText(w.tree, point{tx, a.version}, paths[0]); err == nil {
			new, err = readText(w.tree, point{tx, b.version}, paths[1])
		}
		return err
	})
	switch {
	case err != nil:
		return diskError("compare text", err)
	case old == nil && new == nil:
		return holt.Errorf(holt.NotFound, "%s is not a file in either state", paths[1])
	}
	return unified(out, paths[0], paths[1], old, new)
}

// text is a file's content for a diff; nil where there is no such file.
type text struct {
	data   []byte
	binary bool
}

func readText(t *Tree, p point, path string) (*text, error) {
	e, err := p.walk(path)
	if err != nil || e.ino == 0 {
		return nil, err
	}
	in, err := p.inode(e.ino)
	if err != nil || in == nil || !in.isFile() {
		return nil, err
	}
	if in.size > mostText {
		return &text{data: []byte(fmt.Sprint(in.ino, in.data)), binary: true}, nil
	}
	parts, err := p.extents(in.ino, 0, in.size)
	if err != nil {
		return nil, err
	}
	x := &text{data: make([]byte, in.size)}
	if err := t.fill(x.data, 0, parts); err != nil {
		return nil, errors.Join(err, syscall.EIO)
	}
	x.binary = !isText(x.data)
	return x, nil
}

// isText tells whether bytes are compared by lines.
func isText(b []byte) bool {
	return len(b) <= mostText && bytes.IndexByte(b[:min(8000, len(b))], 0) < 0 && bytes.Count(b, []byte("\n")) <= mostLines
}

// unified writes the diff of two texts.
func unified(out io.Writer, was, is string, old, new *text) error {
	names := [2]string{quoteName("a" + was), quoteName("b" + is)}
	for i, x := range []**text{&old, &new} {
		if *x == nil {
			names[i], *x = "/dev/null", &text{}
		}
	}
	if bytes.Equal(old.data, new.data) && names[0] != "/dev/null" && names[1] != "/dev/null" {
		return nil
	}
	if old.binary || new.binary {
		_, err := fmt.Fprintf(out, "Binary files %s and %s differ\n", names[0], names[1])
		return err
	}
	a, b := splitLines(old.data), splitLines(new.data)
	if _, err := fmt.Fprintf(out, "--- %s\n+++ %s\n", names[0], names[1]); err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 64<<10)
	for _, h := range hunks(edits(a, b), len(a)) {
		h.write(w, a, b)
	}
	return w.Flush()
}

// quoteName writes a name as Git does in a diff (core.quotePath): as it is, or
// as a C string if it holds a control character, a quote, a backslash or a byte
// above 0x7e. So no name can pass for a header or a line of the diff.
func quoteName(name string) string {
	const letters = "abtnvfr" // of 0x07 to 0x0d
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c >= 0x07 && c <= 0x0d:
			b.WriteByte('\\')
			b.WriteByte(letters[c-0x07])
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c > 0x7e:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() == len(name) {
		return name
	}
	return `"` + b.String() + `"`
}

// splitLines returns lines with their newlines: pieces of one copy of the text.
func splitLines(b []byte) []string {
	lines := make([]string, 0, bytes.Count(b, []byte("\n"))+1)
	for line := range strings.Lines(string(b)) {
		lines = append(lines, line)
	}
	return lines
}

// edit replaces lines a0..a1 of one text by b0..b1 of the other.
type edit struct{ a0, a1, b0, b1 int }

// These bound the search for the shortest script: beyond them what is left in
// the middle is one replacement, which is right but not the shortest.
const (
	mostSteps = 2000    // lines of the script: the search keeps four times their square, bytes
	mostWork  = 1 << 30 // of comparing lines: their bytes, and lineWork for each
	lineWork  = 32
)

// edits returns what makes a into b, in order (Myers, "An O(ND) difference
// algorithm and its variations", 1986, the greedy form).
func edits(a, b []string) []edit {
	lo := 0
	for lo < len(a) && lo < len(b) && a[lo] == b[lo] {
		lo++
	}
	ea, eb := len(a), len(b)
	for ea > lo && eb > lo && a[ea-1] == b[eb-1] {
		ea, eb = ea-1, eb-1
	}
	if lo == ea && lo == eb {
		return nil
	}
	found := shortest(a[lo:ea], b[lo:eb])
	for i := range found {
		found[i] = edit{found[i].a0 + lo, found[i].a1 + lo, found[i].b0 + lo, found[i].b1 + lo}
	}
	return found
}

func shortest(a, b []string) []edit {
	n, m := len(a), len(b)
	most := min(n+m, mostSteps)
	v := make([]int32, 2*most+3)
	var trace [][]int32
	work := 0
	for d := 0; d <= most; d++ {
		// Only -d..d is used: a step's copy costs its own size.
		trace = append(trace, slices.Clone(v[most+1-d-1:most+1+d+2]))
		for k := -d; k <= d; k += 2 {
			x := int(v[most+1+k-1]) + 1
			if k == -d || k != d && v[most+1+k-1] < v[most+1+k+1] {
				x = int(v[most+1+k+1])
			}
			for x < n && x-k < m {
				work += lineWork + min(len(a[x]), len(b[x-k]))
				if a[x] != b[x-k] {
					break
				}
				x++
			}
			if work > mostWork {
				return []edit{{0, n, 0, m}}
			}
			if v[most+1+k] = int32(x); x >= n && x-k >= m {
				return backtrack(trace, n, m)
			}
		}
	}
	return []edit{{0, n, 0, m}}
}

// backtrack reads the script out of what each step had reached.
func backtrack(trace [][]int32, x, y int) (found []edit) {
	for d := len(trace) - 1; d > 0; d-- {
		v := func(k int) int { return int(trace[d][d+1+k]) }
		k := x - y
		prev := k - 1
		if k == -d || k != d && v(k-1) < v(k+1) {
			prev = k + 1
		}
		px := v(prev)
		py := px - prev
		one := edit{px, px + 1, py, py}
		if prev == k+1 {
			one = edit{px, px, py, py + 1}
		}
		if n := len(found); n > 0 && found[n-1].a0 == one.a1 && found[n-1].b0 == one.b1 {
			found[n-1].a0, found[n-1].b0 = one.a0, one.b0
		} else {
			found = append(found, one)
		}
		x, y = px, py
	}
	slices.Reverse(found)
	return found
}

// hunk is a run of edits that are near each other, with their context.
type hunk struct {
	edits []edit
	a0    int // with context
	a1    int
}

const contextLines = 3

func hunks(all []edit, lines int) (out []hunk) {
	for _, e := range all {
		a0, a1 := max(0, e.a0-contextLines), min(lines, e.a1+contextLines)
		if n := len(out); n > 0 && a0 <= out[n-1].a1 {
			out[n-1].edits, out[n-1].a1 = append(out[n-1].edits, e), a1
		} else {
			out = append(out, hunk{[]edit{e}, a0, a1})
		}
	}
	return out
}

// write leaves it to the writer to say what goes wrong.
func (h hunk) write(w *bufio.Writer, a, b []string) {
	first, last := h.edits[0], h.edits[len(h.edits)-1]
	b0, b1 := first.b0-(first.a0-h.a0), last.b1+(h.a1-last.a1)
	fmt.Fprintf(w, "@@ -%s +%s @@\n", rangeOf(h.a0, h.a1), rangeOf(b0, b1))
	lines := func(mark byte, lines []string) {
		for _, l := range lines {
			w.WriteByte(mark)
			w.WriteString(l)
			if l[len(l)-1] != '\n' {
				w.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	at := h.a0
	for _, e := range h.edits {
		lines(' ', a[at:e.a0])
		lines('-', a[e.a0:e.a1])
		lines('+', b[e.b0:e.b1])
		at = e.a1
	}
	lines(' ', a[at:h.a1])
}

// rangeOf writes lines from..to as a unified diff does: from 1, and an empty
// range by the line before it.
func rangeOf(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
