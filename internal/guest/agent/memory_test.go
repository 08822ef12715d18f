package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	for text, want := range map[string]int64{
		"MemTotal:        1000 kB\nMemFree:          10 kB\nMemAvailable:     600 kB\n": 400 << 10,
		"MemTotal: 10 kB\nMemAvailable: 20 kB\n":                                        0,
		"nonsense":                                                                      0,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := memoryUsed(path); got != want {
			t.Errorf("%q: %d, not %d", text, got, want)
		}
	}
	if got := memoryUsed(path + "x"); got != 0 {
		t.Errorf("of no file: %d", got)
	}
}
