// Package metric keeps counters, gauges and histograms, and writes them in the text format
// of Prometheus (exposition format 0.0.4).
//
// It sends nothing, keeps nothing over a restart, and knows nothing of holt. The
// official client is not used, since it would add eight modules and protocol buffers
// for one page of text; the test reads that page with the official parser.
//
// Format: a [Registry] has families, each with a name, a help text and a kind. Values that
// change with events are [Counters], [Gauges] or [Histograms]; values that are read on
// demand are [Sample]s of a collector.
//
// Invariants: names of families and labels are constants; an invalid one panics when the family is
// made. Values of labels may be any bytes: they are escaped, and clipped to [MostLabel]
// bytes. A family has at most [MostSeries] series; further ones are counted in
// a series with the value "other" for all labels, so that a caller who chooses
// values of labels cannot fill the memory of the daemon.
//
// Lock order: a registry's lock, then a family's. Collectors are called without either.
package metric

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// ContentType is the content type of [Registry.Write].
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

const (
	// MostSeries is the maximum number of series of a family.
	MostSeries = 1000
	// MostLabel is the maximum length of a label's value, bytes.
	MostLabel = 120
)

var nameRE = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Kind is the type of a family.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Desc is a family's name and meaning.
type Desc struct {
	Name   string // ends with its unit; that of a counter with _total
	Help   string // one line
	Kind   Kind
	Labels []string
}

func (d Desc) check() {
	if !nameRE.MatchString(d.Name) || d.Help == "" || strings.HasSuffix(d.Name, "_total") != (d.Kind == Counter) {
		panic(fmt.Sprintf("metric: %q is no name of a %s with a help", d.Name, d.Kind))
	}
	for _, l := range d.Labels {
		if !nameRE.MatchString(l) || l == "le" {
			panic(fmt.Sprintf("metric: %s has a label %q", d.Name, l))
		}
	}
}

// Sample is one value of a collector, with the values of its Desc's labels.
type Sample struct {
	Desc   *Desc
	Values []string
	Value  float64
}

// Registry is a set of families. The zero Registry is ready to use. A nil Registry accepts
// families and writes none.
type Registry struct {
	mu       sync.Mutex
	families []*family
	collect  []func() []Sample
}

// family has all series of one Desc.
type family struct {
	Desc
	bounds []float64 // of a histogram

	mu     sync.Mutex
	series map[string]*series
}

// series is one combination of label values.
type series struct {
	values  []string
	value   float64
	buckets []uint64
	count   uint64
}

func (r *Registry) add(d Desc, bounds []float64) *family {
	d.check()
	f := &family{Desc: d, bounds: bounds, series: map[string]*series{}}
	if r == nil {
		return f
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.families {
		if other.Name == d.Name {
			panic("metric: two families have the name " + d.Name)
		}
	}
	r.families = append(r.families, f)
	if len(d.Labels) == 0 {
		f.at(nil) // written as 0 from the start
	}
	return f
}

// Collect adds a collector, which Write calls. Samples of one Desc are one family.
func (r *Registry) Collect(fn func() []Sample) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect = append(r.collect, fn)
}

// at returns the series of these values. f.mu is held, or f is not shared yet.
func (f *family) at(values []string) *series {
	if len(values) != len(f.Labels) {
		panic(fmt.Sprintf("metric: %s has %d labels, not %d", f.Name, len(f.Labels), len(values)))
	}
	clipped := make([]string, len(values))
	for i, v := range values {
		clipped[i] = clip(v)
	}
	key := strings.Join(clipped, "\xff")
	s := f.series[key]
	if s == nil && len(f.series) >= MostSeries {
		for i := range clipped {
			clipped[i] = "other"
		}
		key = strings.Join(clipped, "\xff")
		s = f.series[key]
	}
	if s == nil {
		s = &series{values: clipped}
		if f.Kind == Histogram {
			s.buckets = make([]uint64, len(f.bounds))
		}
		f.series[key] = s
	}
	return s
}

// clip makes a label's value valid UTF-8 and at most MostLabel bytes long.
func clip(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD")
	for len(v) > MostLabel {
		_, n := utf8.DecodeLastRuneInString(v[:MostLabel+1])
		v = v[:MostLabel+1-n]
	}
	return v
}

// Counters is a family of values that only increase.
type Counters struct{ f *family }

// Counters adds a family of counters.
func (r *Registry) Counters(name, help string, labels ...string) Counters {
	return Counters{r.add(Desc{name, help, Counter, labels}, nil)}
}

// Add adds n, which is not negative, to the series of these label values.
func (c Counters) Add(n float64, values ...string) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.at(values).value += max(0, n)
}

// Gauges is a family of values that increase and decrease.
type Gauges struct{ f *family }

// Gauges adds a family of gauges.
func (r *Registry) Gauges(name, help string, labels ...string) Gauges {
	return Gauges{r.add(Desc{name, help, Gauge, labels}, nil)}
}

// Add adds n, which may be negative.
func (g Gauges) Add(n float64, values ...string) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	g.f.at(values).value += n
}

// Set sets the series of these label values to v.
func (g Gauges) Set(v float64, values ...string) {
	g.f.mu.Lock()
	defer g.f.mu.Unlock()
	g.f.at(values).value = v
}

// Histograms is a family that counts values in buckets.
type Histograms struct{ f *family }

// Histograms adds a family with buckets up to and including each of the bounds, which increase.
func (r *Registry) Histograms(name, help string, bounds []float64, labels ...string) Histograms {
	if !slices.IsSorted(bounds) || len(bounds) == 0 {
		panic("metric: the bounds of " + name + " do not increase")
	}
	return Histograms{r.add(Desc{name, help, Histogram, labels}, bounds)}
}

// Observe counts v.
func (h Histograms) Observe(v float64, values ...string) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	s := h.f.at(values)
	s.value += v
	s.count++
	if i, _ := slices.BinarySearch(h.f.bounds, v); i < len(s.buckets) {
		s.buckets[i]++
	}
}

// Seconds are bounds for durations from 50 µs to a minute.
func Seconds() []float64 {
	return []float64{50e-6, 200e-6, 1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60}
}

// Write writes all families, sorted by name.
func (r *Registry) Write(w io.Writer) error {
	r.mu.Lock()
	all, collect := slices.Clone(r.families), slices.Clone(r.collect)
	r.mu.Unlock()
	looked := map[string]*family{}
	for _, fn := range collect {
		for _, s := range fn() {
			f := looked[s.Desc.Name]
			if f == nil {
				s.Desc.check()
				f = &family{Desc: *s.Desc, series: map[string]*series{}}
				looked[s.Desc.Name] = f
				all = append(all, f)
			}
			f.at(s.Values).value += s.Value // samples beyond MostSeries are added up
		}
	}
	slices.SortFunc(all, func(a, b *family) int { return strings.Compare(a.Name, b.Name) })
	out := bufio.NewWriter(w)
	for _, f := range all {
		f.write(out)
	}
	return out.Flush()
}

func (f *family) write(w *bufio.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.series) == 0 {
		return
	}
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.Name, escape(f.Help, false), f.Name, f.Kind)
	keys := make([]string, 0, len(f.series))
	for key := range f.series {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		s := f.series[key]
		if f.Kind != Histogram {
			line(w, f.Name, f.Labels, s.values, "", s.value)
			continue
		}
		var below uint64
		for i, bound := range f.bounds {
			below += s.buckets[i]
			line(w, f.Name+"_bucket", f.Labels, s.values, number(bound), float64(below))
		}
		line(w, f.Name+"_bucket", f.Labels, s.values, "+Inf", float64(s.count))
		line(w, f.Name+"_sum", f.Labels, s.values, "", s.value)
		line(w, f.Name+"_count", f.Labels, s.values, "", float64(s.count))
	}
}

// line writes one line; le is the bound of a bucket, or "".
func line(w *bufio.Writer, name string, labels, values []string, le string, v float64) {
	w.WriteString(name)
	var parts []string
	for i, label := range labels {
		parts = append(parts, label+`="`+escape(values[i], true)+`"`)
	}
	if le != "" {
		parts = append(parts, `le="`+le+`"`)
	}
	if len(parts) > 0 {
		w.WriteString("{" + strings.Join(parts, ",") + "}")
	}
	w.WriteString(" " + number(v) + "\n")
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// escape escapes a help text or the value of a label.
func escape(s string, value bool) string {
	s = strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(s)
	if value {
		s = strings.ReplaceAll(s, `"`, `\"`)
	}
	return s
}
