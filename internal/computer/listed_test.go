package computer

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holt"
)

// TestListedAfterFork: what runs is listed after a fork's snapshot was taken, while a verb is at work on the
// computer, and kept when that has ended. A snapshot that has gone is not made again, and nobody waits
// for a computer that goes.
func TestListedAfterFork(t *testing.T) {
	l, _ := stubborn(t)
	l.id = holt.NewComputerID()
	l.ctx, l.cancel = context.WithCancel(t.Context())
	guestOf(t, l)
	s := newStore(t.Context(), Config{Snapshots: t.TempDir(), Engines: Engines{Default: &stuckEngine{}}, Log: slog.New(slog.DiscardHandler)})
	begin := func() (dir string, unlock func()) {
		t.Helper()
		unlock, err := s.machines.lock(t.Context(), l.id)
		if err != nil {
			t.Fatal(err)
		}
		id := holt.NewSnapshotID()
		if err := os.Mkdir(s.snapshots.path(id), 0o700); err != nil {
			t.Fatal(err)
		}
		s.snapshotter.saveInventoryLater(l, id)
		return s.snapshots.path(id), unlock
	}
	waits := func() { // until it was listed, and only the lock is missing
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			s.machines.mu.Lock()
			users := s.machines.set[l.id].users
			s.machines.mu.Unlock()
			if users == 2 {
				return
			}
			if time.Now().After(end) {
				t.Fatal("nobody waits for the lock")
			}
		}
	}
	names := func(dir string) (all []string) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}

	dir, unlock := begin()
	waits()
	if all := names(dir); all != nil {
		t.Errorf("kept while another had the lock: %q", all)
	}
	unlock()
	l.wg.Wait()
	var inv holt.Inventory
	b, err := os.ReadFile(filepath.Join(dir, inventoryFile))
	if err == nil {
		err = json.Unmarshal(b, &inv)
	}
	if err != nil || inv.At.IsZero() || len(inv.Processes) == 0 || !slices.Equal(names(dir), []string{inventoryFile}) {
		t.Errorf("%v, %q, %d processes at %v", err, names(dir), len(inv.Processes), inv.At)
	}

	dir, unlock = begin()
	waits()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
	l.wg.Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of a snapshot that has gone: %v", err)
	}

	dir, unlock = begin()
	waits()
	l.close() // as a pause does, which has the lock
	if all := names(dir); all != nil {
		t.Errorf("kept for a computer that goes: %q", all)
	}
	unlock()
	s.snapshotter.saveInventoryLater(l, holt.NewSnapshotID())
	l.wg.Wait()
}
