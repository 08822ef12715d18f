package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each copy of a machine has a generation of its own, and restarts the units that ask for it.
func TestGeneration(t *testing.T) {
	root, restarts := t.TempDir(), 0
	restart := func(context.Context) error { restarts++; return errors.New("a unit has failed") }
	unit := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, "etc/systemd/system", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]bool{}
	next := func(number, restarted int) {
		t.Helper()
		if err := newGeneration(t.Context(), slog.New(slog.DiscardHandler), root, restart); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(root, generationFile))
		var got int
		var id string
		if _, scan := fmt.Sscanf(string(b), "%d %32s\n", &got, &id); err != nil || scan != nil || got != number || len(id) != 32 || ids[id] {
			t.Errorf("generation %d is %q: %v %v", number, b, err, scan)
		}
		if ids[id] = true; restarts != restarted {
			t.Errorf("units were restarted %d times, want %d", restarts, restarted)
		}
	}
	next(1, 0)
	unit("web.service", "[Service]\nExecStart=true\n")
	if err := os.Symlink("/dev/zero", filepath.Join(root, "etc/systemd/system/odd.service")); err != nil {
		t.Fatal(err)
	}
	next(2, 0)
	unit("web.service", "[Unit]\n"+inFork+"\n")
	next(3, 1) // that one fails is no reason to hand out no fork
	unit("web.service", "")
	unit("holt-fork.target.wants/seed.service", "")
	next(4, 2)
	if b, err := os.ReadFile(filepath.Join(root, forkUnit)); err != nil || !strings.HasPrefix(string(b), "[Unit]\n") {
		t.Errorf("%q %v", b, err)
	}
}
