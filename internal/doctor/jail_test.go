package doctor

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"holt"
)

// TestJail: the finding has the user that machines run as, and what to do if that is root.
func TestJail(t *testing.T) {
	there := t.TempDir()
	for _, c := range []struct {
		name  string
		uid   int
		fails error
		want  holt.Verdict
		says  string
	}{
		{"root with jails", 0, nil, holt.VerdictOK, "in jails"},
		{"root without", 0, errors.New("show /srv: invalid argument"), holt.VerdictWarn, "(show /srv: invalid argument): QEMU and computers' networks run as root"},
		{"a user", 1000, errors.New("never asked"), holt.VerdictOK, "run as user id 1000 too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := fakeHost(t, nil)
			h.uid = c.uid
			var shown []string
			f := h.jail(t.Context(), Options{DataDir: filepath.Join(there, "not", "yet"), ImageDir: there, Jail: func(_ string, dirs ...string) error {
				shown = dirs
				return c.fails
			}})
			if f.Verdict != c.want || !strings.Contains(f.Found, c.says) || (f.Verdict == holt.VerdictOK) != (f.Do == "") {
				t.Errorf("got %+v", f)
			}
			if c.uid == 0 && (len(shown) != 2 || shown[0] != there || shown[1] != there) {
				t.Errorf("tried with %q", shown)
			}
		})
	}
}
