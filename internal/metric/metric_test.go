package metric

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// parse parses a page with Prometheus' parser.
func parse(t testing.TB, r *Registry) map[string]*dto.MetricFamily {
	t.Helper()
	var page bytes.Buffer
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page.Bytes()))
	if err != nil {
		t.Fatalf("%v\n%s", err, page.String())
	}
	return families
}

// TestPageIsReadByPrometheus: the official parser reads every kind with its values.
func TestPageIsReadByPrometheus(t *testing.T) {
	r := new(Registry)
	calls := r.Counters("calls_total", "Calls.", "op", "status")
	calls.Add(2, "list", "200")
	calls.Add(-5, "list", "200") // ignored: counters do not decrease
	calls.Add(1, "get", "404")
	open := r.Gauges("open", "What is open,\nover two lines \\.")
	open.Add(3)
	open.Add(-1)
	took := r.Histograms("took_seconds", "Time.", []float64{0.1, 1, 10}, "op")
	for _, v := range []float64{0.1, 0.05, 5, 100} { // a bound belongs to its bucket
		took.Observe(v, "list")
	}
	state := Desc{"things", "Things by state.", Gauge, []string{"state"}}
	r.Collect(func() []Sample {
		return []Sample{{&state, []string{"on"}, 1}, {&state, []string{"off"}, math.Inf(1)}}
	})
	got := parse(t, r)
	if n := len(got["calls_total"].Metric); n != 2 {
		t.Errorf("%d series of calls", n)
	}
	if v := got["calls_total"].Metric[1].Counter.GetValue(); v != 2 {
		t.Errorf("calls are %v", v)
	}
	if v := got["open"].Metric[0].Gauge.GetValue(); v != 2 {
		t.Errorf("open is %v", v)
	}
	if help := got["open"].GetHelp(); help != "What is open,\nover two lines \\." {
		t.Errorf("help is %q", help)
	}
	h := got["took_seconds"].Metric[0].Histogram
	if h.GetSampleCount() != 4 || math.Abs(h.GetSampleSum()-105.15) > 1e-9 {
		t.Errorf("histogram has %d, %v", h.GetSampleCount(), h.GetSampleSum())
	}
	var counts []uint64
	for _, b := range h.Bucket {
		counts = append(counts, b.GetCumulativeCount())
	}
	if fmt.Sprint(counts) != "[2 2 3 4]" {
		t.Errorf("buckets are %v", counts)
	}
	if len(got["things"].Metric) != 2 {
		t.Errorf("things are %v", got["things"])
	}
}

// TestHostileLabels: no value of a label breaks the page or exceeds its maximum length.
func TestHostileLabels(t *testing.T) {
	r := new(Registry)
	c := r.Counters("calls_total", "Calls.", "who")
	hostile := []string{`a"} 1e9`, "two\nlines 1", `back\slash\n`, "\xff\xfe not UTF-8", "", "\x00", strings.Repeat("long ", 1000), strings.Repeat("ü", 100) + "x", "{}=,\t"}
	for _, who := range hostile {
		c.Add(1, who)
	}
	got := parse(t, r)
	if len(got) != 1 || len(got["calls_total"].Metric) != len(hostile) {
		t.Fatalf("%d families; %d series", len(got), len(got["calls_total"].Metric))
	}
	seen := map[string]bool{}
	for _, m := range got["calls_total"].Metric {
		is := m.Label[0].GetValue()
		seen[is] = true
		if len(is) > MostLabel {
			t.Errorf("a label has %d bytes", len(is))
		}
	}
	for _, who := range hostile[:3] {
		if !seen[who] {
			t.Errorf("%q is missing: %v", who, seen)
		}
	}
}

// TestSeriesAreBounded: a caller that chooses values of labels cannot fill the memory.
func TestSeriesAreBounded(t *testing.T) {
	r := new(Registry)
	c := r.Counters("calls_total", "Calls.", "who", "what")
	const calls = 5 * MostSeries
	for i := range calls {
		c.Add(1, fmt.Sprint(i), "x")
	}
	got := parse(t, r)["calls_total"].Metric
	if len(got) != MostSeries+1 {
		t.Errorf("%d series", len(got))
	}
	var sum float64
	for _, m := range got {
		sum += m.Counter.GetValue()
	}
	if sum != calls {
		t.Errorf("%v of %d calls are counted", sum, calls)
	}
}

// TestProcess: the figures of this process are plausible.
func TestProcess(t *testing.T) {
	r := new(Registry)
	began := time.Now().Add(-time.Hour)
	r.Process(began)
	got := parse(t, r)
	for name, least := range map[string]float64{
		"go_goroutines": 2, "go_threads": 2, "process_open_fds": 3, "process_max_fds": 10, "process_resident_memory_bytes": 1 << 20,
		"go_memstats_heap_alloc_bytes": 1 << 16, "process_start_time_seconds": float64(began.Unix()),
	} {
		if got[name] == nil || got[name].Metric[0].Gauge.GetValue() < least {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if got["process_cpu_seconds_total"] == nil {
		t.Error("no processor time")
	}
}

// TestBadNamesPanic: an invalid family panics.
func TestBadNamesPanic(t *testing.T) {
	for what, make := range map[string]func(*Registry){
		"counter without _total": func(r *Registry) { r.Counters("calls", "Calls.") },
		"gauge with _total":      func(r *Registry) { r.Gauges("calls_total", "Calls.") },
		"dash":                   func(r *Registry) { r.Gauges("a-b", "A.") },
		"label le":               func(r *Registry) { r.Gauges("a", "A.", "le") },
		"no help":                func(r *Registry) { r.Gauges("a", "") },
		"twice":                  func(r *Registry) { r.Gauges("a", "A."); r.Gauges("a", "A.") },
		"bounds that fall":       func(r *Registry) { r.Histograms("a", "A.", []float64{2, 1}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", what)
				}
			}()
			make(new(Registry))
		}()
	}
}

// TestConcurrent is for the race detector: it counts and writes concurrently.
func TestConcurrent(t *testing.T) {
	r := new(Registry)
	c, h := r.Counters("calls_total", "Calls.", "op"), r.Histograms("took_seconds", "Time.", Seconds(), "op")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				c.Add(1, fmt.Sprint(i%7))
				h.Observe(0.01, "x")
				if i%100 == 0 {
					if err := r.Write(io.Discard); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if v := parse(t, r)["took_seconds"].Metric[0].Histogram.GetSampleCount(); v != 2000 {
		t.Errorf("%d are counted", v)
	}
}

// TestNilRegistry: families of a nil registry count.
func TestNilRegistry(t *testing.T) {
	var r *Registry
	r.Counters("calls_total", "Calls.").Add(1)
	r.Process(time.Now())
}

// FuzzLabels fuzzes values of labels and help texts.
func FuzzLabels(f *testing.F) {
	f.Add("a", "b")
	f.Add("\"\\\n", "\xff")
	f.Fuzz(func(t *testing.T, value, help string) {
		if help == "" {
			help = "x"
		}
		r := new(Registry)
		r.Gauges("a", strings.ToValidUTF8(help, "?"), "l").Set(1, value)
		got := parse(t, r)
		if len(got) != 1 || len(got["a"].Metric) != 1 {
			t.Errorf("%q gives %v", value, got)
		}
	})
}
