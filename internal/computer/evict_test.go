package computer

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
)

// Storing needs room for what the archive does not have yet, and for no more.
func TestRoomForWhatIsNotThere(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	first := w.take(holt.SnapshotManual)
	w.archiver.keepRound(ctx)
	second := w.take(holt.SnapshotManual)
	dir, need := w.snapshots.path(second.ID), archive.Allocated(w.disks.path(second.disk))
	for _, name := range []string{machine.MemoryFile, machine.StateFile, inventoryFile, machine.RecordFile} {
		need += archive.Allocated(filepath.Join(dir, name))
	}
	free := int64(archive.SpareBytes)
	w.archiver.archive.PackDir, w.archiver.archive.Free = dir, func(string) (int64, error) { return free, nil }
	w.archiver.keepRound(ctx)
	if w.row(second.ID).Archived {
		t.Error("stored where there is no room for it")
	}
	free += need
	w.archiver.keepRound(ctx)
	if !w.row(second.ID).Archived {
		t.Error("not stored where there is room for what is new, but none for the disk beneath")
	}
	w.ok(w.archiver.archive.Chunks.Remove(ctx, string(first.ID), "memory.00001"))
	n, err := w.archiver.archive.Missing(ctx, string(first.ID), filepath.Join(w.snapshots.path(first.ID), machine.MemoryFile), machine.MemoryFile)
	if err != nil || n == 0 || n > keptMemory-keptStrip {
		t.Errorf("of a file without its last strip %d bytes are missing: %v", n, err)
	}
}

// Memory is not fetched where that would fill the disk: not a byte of it.
func TestFetchLooksForRoom(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	m := w.take(holt.SnapshotManual)
	w.archiver.keepRound(t.Context())
	about, err := w.archiver.archive.About(t.Context(), string(m.ID))
	w.ok(err)
	most := int64(0)
	for _, n := range about.Files[0].Data { // the others are here
		most += n
	}
	free := most + archive.FetchSpareBytes - 1
	w.archiver.archive.Free = func(string) (int64, error) { return free, nil }
	w.archiver.archive.Fail = func(point string) error {
		if point == "fetch/file" && free < most+archive.FetchSpareBytes {
			t.Error("fetched without room")
		}
		return nil
	}
	if _, err := w.archiver.use(t.Context(), m); holt.CodeOf(err) != holt.OutOfSpace || w.here(m) {
		t.Error("no room here:", err)
	}
	free++
	done, err := w.archiver.use(t.Context(), m)
	w.ok(err)
	if !w.here(m) {
		t.Error("it did not come back")
	}
	done()
}

// Whoever waits for a fetch gets the memory when the one that began it has left.
func TestFetchOutlivesItsCaller(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	m := w.take(holt.SnapshotManual)
	w.archiver.keepRound(t.Context())
	ctx, leave := context.WithCancel(t.Context())
	got := make(chan error, 1)
	first := true
	w.archiver.archive.Fail = func(point string) error {
		if point != "fetch/file" || !first {
			return nil
		}
		first = false
		go func() {
			done, err := w.archiver.use(context.Background(), m)
			if err == nil {
				done()
			}
			got <- err
		}()
		for users := 0; users < 2; runtime.Gosched() {
			w.archiver.mu.Lock()
			users = w.archiver.users[m.ID]
			w.archiver.mu.Unlock()
		}
		for range 1000 { // it is about to wait
			runtime.Gosched()
		}
		leave()
		return nil
	}
	if _, err := w.archiver.use(ctx, m); err == nil {
		t.Error("it has left, and has the memory")
	}
	w.ok(<-got)
	if !w.here(m) {
		t.Error("it did not come back")
	}
}

// The initramfs beside a snapshot goes to the archive and comes back from there with the rest. It counts
// as the snapshot's only where nobody else has it.
func TestInitramfsGoesWithTheSnapshot(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	m := w.take(holt.SnapshotManual)
	initrd, other := filepath.Join(w.snapshots.path(m.ID), machine.InitrdFile), filepath.Join(t.TempDir(), "made")
	w.ok(os.WriteFile(other, make([]byte, 1<<20), 0o600))
	w.ok(os.Link(other, initrd))
	shared := w.snapshots.allocated(m.ID)
	w.ok(os.Remove(other))
	if alone := w.snapshots.allocated(m.ID); shared != m.Bytes || alone < m.Bytes+1<<20 {
		t.Errorf("a snapshot of %d bytes has %d with a file that others have too, and %d with one of its own", m.Bytes, shared, alone)
	}
	w.archiver.keepRound(ctx)
	back := t.TempDir()
	_, err := w.archiver.archive.Fetch(ctx, string(m.ID), back)
	w.ok(err)
	if st, err := os.Stat(filepath.Join(back, machine.InitrdFile)); err != nil || st.Size() != 1<<20 {
		t.Errorf("from the archive came %v, %v", st, err)
	}
}
