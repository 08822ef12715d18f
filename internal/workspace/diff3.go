package workspace

import (
	"bytes"
	"slices"
)

// merge3 merges two texts that came from one: what only one side changed is
// taken from there. False where both changed the same lines, or lines with
// none between them that neither changed, in different ways.
func merge3(base, ours, theirs []byte) ([]byte, bool) {
	b := splitLines(base)
	sides := [2]script{{lines: splitLines(ours)}, {lines: splitLines(theirs)}}
	for i := range sides {
		sides[i].edits = edits(b, sides[i].lines)
	}
	var out bytes.Buffer
	out.Grow(max(len(ours), len(theirs)))
	at := 0 // lines of base that are done
	for {
		lo, hi, found := conflictRange(&sides)
		if !found {
			break
		}
		appendLines(&out, b[at:lo])
		ours, mine := sides[0].take(lo, hi)
		theirs, yours := sides[1].take(lo, hi)
		switch {
		case !yours:
			appendLines(&out, ours)
		case !mine, slices.Equal(ours, theirs):
			appendLines(&out, theirs)
		default:
			return nil, false
		}
		at = hi
	}
	appendLines(&out, b[at:])
	return out.Bytes(), true
}

func appendLines(out *bytes.Buffer, lines []string) {
	for _, l := range lines {
		out.WriteString(l)
	}
}

// script is what made one side from the base, as far as it is not taken yet.
type script struct {
	lines []string
	edits []edit
	moved int // a line of the base that is not edited is moved lines further in lines
}

// conflictRange finds the next lines of the base that an edit replaces, with
// all edits of both sides that overlap or touch.
func conflictRange(sides *[2]script) (lo, hi int, found bool) {
	for _, s := range sides {
		if len(s.edits) > 0 && (!found || s.edits[0].a0 < lo) {
			lo, hi, found = s.edits[0].a0, s.edits[0].a1, true
		}
	}
	for grew := found; grew; {
		grew = false
		for _, s := range sides {
			for _, e := range s.edits {
				if e.a0 > hi {
					break
				}
				if e.a1 > hi {
					hi, grew = e.a1, true
				}
			}
		}
	}
	return lo, hi, found
}

// take returns what stands for lines lo..hi of the base, and whether that is
// something else.
func (s *script) take(lo, hi int) (lines []string, edited bool) {
	from := lo + s.moved
	for len(s.edits) > 0 && s.edits[0].a0 <= hi {
		e := s.edits[0]
		s.edits, edited = s.edits[1:], true
		s.moved += (e.b1 - e.b0) - (e.a1 - e.a0)
	}
	return s.lines[from : hi+s.moved], edited
}
