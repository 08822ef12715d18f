package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// unit is what a figure counts.
type unit struct {
	name  string
	lower bool // less is better
}

// The units.
var (
	perSecond = unit{"/s", false}
	megabytes = unit{"MB/s", false} // 10⁶ bytes a second
	seconds   = unit{"s", true}
	millis    = unit{"ms", true}
	micros    = unit{"µs", true}
	bytesEach = unit{"bytes", true}

	megabytesHeld = unit{"MB", true}
	fraction      = unit{"×", true}
	share         = unit{"×", false}
)

// target is what a figure should reach: a column's value itself, or its ratio
// to another column's. Whether it must be above or below follows from the unit.
type target struct {
	column string
	than   string // "": the value itself
	limit  float64
}

// figure is one line of a table: a work, and how it went in each column.
type figure struct {
	name    string
	unit    unit
	targets []target
	samples map[string][]float64 // by column, one a round; NaN where it was not finished
	failed  map[string]string    // by column: why there is no figure
}

// add records a round's value for a column.
func (f *figure) add(column string, value float64) {
	if f.samples == nil {
		f.samples = map[string][]float64{}
	}
	f.samples[column] = append(f.samples[column], value)
}

// fail records why a column has no value in this round.
func (f *figure) fail(column string, err error) {
	if f.failed == nil {
		f.failed = map[string]string{}
	}
	f.failed[column] = firstLine(err.Error())
	f.add(column, math.NaN())
}

// ratio returns the median ratio of two columns, NaN if there is none.
func (f *figure) ratio(column, than string) float64 {
	return median(ratios(f.samples[column], f.samples[than]))
}

// value is what a target looks at.
func (f *figure) value(t target) float64 {
	if t.than == "" {
		return median(finite(f.samples[t.column]))
	}
	return f.ratio(t.column, t.than)
}

// met says whether a target is reached; what was not measured is not.
func (f *figure) met(t target) bool {
	v := f.value(t)
	if f.unit.lower {
		return v <= t.limit
	}
	return v >= t.limit
}

// section is a table with what must be known to read it.
type section struct {
	title   string
	about   string
	columns []string
	ratios  [][2]string // pairs of columns to divide
	figures []*figure
	notes   []string
}

func (s *section) write(w io.Writer) {
	fmt.Fprintf(w, "## %s\n\n%s\n\n", s.title, strings.TrimSpace(s.about))
	head := append([]string{"work"}, s.columns...)
	for _, r := range s.ratios {
		head = append(head, r[0]+" ÷ "+r[1])
	}
	row(w, append(head, "target", ""))
	rule := make([]string, len(head)+2)
	for i := range rule {
		rule[i] = "---"
		if i > 0 && i < len(head) {
			rule[i] = "--:"
		}
	}
	row(w, rule)
	for _, f := range s.figures {
		row(w, s.cells(f))
	}
	fmt.Fprintln(w)
	for _, n := range append(s.failures(), s.notes...) {
		fmt.Fprintf(w, "- %s\n", n)
	}
	if len(s.notes)+len(s.failures()) > 0 {
		fmt.Fprintln(w)
	}
}

func (s *section) cells(f *figure) []string {
	cells := []string{f.name + ", " + f.unit.name}
	for _, c := range s.columns {
		cells = append(cells, spread(f.samples[c]))
	}
	for _, r := range s.ratios {
		v := f.ratio(r[0], r[1])
		cells = append(cells, times(v))
	}
	var wanted, verdicts []string
	for _, t := range f.targets {
		wanted = append(wanted, f.wanted(t))
		verdicts = append(verdicts, f.verdict(t))
	}
	return append(cells, strings.Join(wanted, "<br>"), strings.Join(verdicts, "<br>"))
}

// failures says why there are gaps in the table.
func (s *section) failures() (out []string) {
	for _, f := range s.figures {
		for _, c := range s.columns {
			if why, bad := f.failed[c]; bad {
				out = append(out, fmt.Sprintf("%s, %s: %s", f.name, c, why))
			}
		}
	}
	return out
}

// wanted says what a target asks for.
func (f *figure) wanted(t target) string {
	sign := "≥"
	if f.unit.lower {
		sign = "≤"
	}
	if t.than == "" {
		return fmt.Sprintf("%s %s %s", sign, number(t.limit), f.unit.name)
	}
	return fmt.Sprintf("%s %s × %s", sign, plain(t.limit), t.than)
}

// found says what a target sees.
func (f *figure) found(t target) string {
	switch v := f.value(t); {
	case math.IsNaN(v):
		return "not measured"
	case t.than != "":
		return times(v)
	default:
		return number(v) + " " + f.unit.name
	}
}

func (f *figure) verdict(t target) string {
	switch v := f.value(t); {
	case math.IsNaN(v):
		return "not measured"
	case f.met(t):
		return "met"
	}
	return "**missed**: " + f.found(t)
}

// spread shows the median, and the least and the most where rounds differ.
func spread(samples []float64) string {
	s := finite(samples)
	if len(s) == 0 {
		return "–"
	}
	low, high := number(slices.Min(s)), number(slices.Max(s))
	if low == high {
		return number(median(s))
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(s)), low, high)
}

func times(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f ×", v)
}

// plain is a limit as people write it: 0.7, 3.
func plain(v float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
}

func row(w io.Writer, cells []string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(cmp.Or(c, " "), "|", `\|`)
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
