package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestPace: background work rests while processes wait for a processor, and as long as it works if the kernel
// does not count that.
func TestPace(t *testing.T) {
	p := pace{pressure: filepath.Join(t.TempDir(), "cpu")}
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		total  string        // in the file; "" for none
		worked time.Duration // since start
		want   time.Duration
	}{
		{"", 8 * time.Millisecond, 8 * time.Millisecond},
		{"5000000", 8 * time.Millisecond, 0},
		{"5000800", 8 * time.Millisecond, 0}, // 10 %
		{"5000801", 8 * time.Millisecond, 24 * time.Millisecond},
		{"5090000", time.Hour, 0},
		{"6000000", time.Hour, 3 * time.Second},
		{"nonsense", 8 * time.Millisecond, 8 * time.Millisecond},
	} {
		if c.total != "" {
			line := fmt.Sprintf("some avg10=1.00 avg60=0.00 avg300=0.00 total=%s\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n", c.total)
			if err := os.WriteFile(p.pressure, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p.since, p.waited = start, 5*time.Second
		if got := p.due(start.Add(c.worked)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if err := (&pace{}).rest(t.Context()); err != nil {
		t.Error(err)
	}
}
