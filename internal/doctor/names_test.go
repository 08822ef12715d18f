package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// TestNames: the finding says how the host resolves names of previews, and how to fix it.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   holt.Verdict
		do     string
	}{
		{"echo '::1             STREAM 3000-holt.localhost'", holt.VerdictOK, ""},
		{"exit 2", holt.VerdictWarn, "libnss-myhostname"},
		{"echo '192.0.2.7       STREAM 3000-holt.localhost'", holt.VerdictWarn, "nsswitch.conf"},
	} {
		getent := filepath.Join(t.TempDir(), "getent")
		if err := os.WriteFile(getent, []byte("#!/bin/sh\n"+c.answer+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		h := host{look: func(string) (string, error) { return getent, nil }}
		if f := h.names(t.Context(), Options{}); f.Verdict != c.want || !strings.Contains(f.Do, c.do) || c.do == "" && f.Do != "" {
			t.Errorf("%s: %+v", c.answer, f)
		}
	}
}
