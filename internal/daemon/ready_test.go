package daemon_test

import (
	"bytes"
	"strings"
	"testing"

	"holt"
	"holt/internal/metric"
)

// TestReady: a daemon is ready once it is open, and is not from the snapshot that it ends; its metrics say so, too.
func TestReady(t *testing.T) {
	registry := new(metric.Registry)
	cfg := config(t, t.TempDir())
	cfg.Metrics = registry
	d := open(t, cfg)
	defer d.Close()
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := func() string {
		var b bytes.Buffer
		if err := registry.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if p := page(); !strings.Contains(p, "\nholt_ready 1\n") || !strings.Contains(p, "holt_build_info{") {
		t.Errorf("it says %s", p)
	}
	if _, err := d.Down(t.Context(), holt.DownSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := d.Ready(t.Context()); holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("a daemon that ends is ready: %v", err)
	}
	if p := page(); !strings.Contains(p, "\nholt_ready 0\n") {
		t.Errorf("it says %s", p)
	}
}
