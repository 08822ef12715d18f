package computer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/computer/archive"
	"holt/internal/engine/machine"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

// keptWorld is a store with snapshots that no machine took, and its archive.
type keptWorld struct {
	*Store
	t     *testing.T
	packs chunk.Store
	r     *record
	began time.Time
	n     int
	want  map[holt.SnapshotID][]byte // their memory
}

// layered is an engine whose disks lie over a template's.
type layered struct {
	stuckEngine
	base string
}

func (e *layered) DiskBase(context.Context, string) (machine.Base, error) {
	return machine.Base{Path: e.base, Format: "qcow2"}, nil
}

// forgetful are workspaces without checkpoints.
type forgetful struct{ Workspaces }

func (forgetful) Forget(context.Context, holt.WorkspaceID, string) error { return nil }

// The size of the snapshots' memory, bytes, most of it holes, and what one part has of that.
const keptMemory, keptStrip = 5 << 20, 4 << 20

// keeps makes one with a computer. All of its snapshots together have room for cache bytes.
func keeps(t *testing.T, packs chunk.Store, cache int64) *keptWorld {
	t.Helper()
	_, d := openKeys(t)
	a, err := chunk.Open(context.Background(), t.TempDir(), chunk.Options{Store: packs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		report, err := a.Check(context.Background(), "", true)
		if err != nil || len(report.Problems) > 0 {
			t.Errorf("check of the archive: %v %v", report.Problems, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	w := &keptWorld{t: t, packs: packs, want: map[holt.SnapshotID][]byte{}, began: time.Unix(1e9, 0)}
	w.Store = newStore(t.Context(), Config{
		DB: d, Disks: filepath.Join(dir, "disks"), Snapshots: filepath.Join(dir, "snapshots"), SnapshotCache: cache, Archive: a,
		Engines: Engines{Default: &layered{base: filepath.Join(dir, "base.qcow2")}}, Workspaces: forgetful{}, Log: slog.New(slog.DiscardHandler),
	})
	w.ok(os.WriteFile(filepath.Join(dir, "base.qcow2"), []byte("a template's"), 0o600))
	w.archiver.archive.Strip = keptStrip
	w.ok(w.disks.tidy(t.Context()))
	w.r = &record{Computer: holt.Computer{ID: holt.NewComputerID(), Name: "einstein", State: holt.ComputerRunning}, workspaceID: holt.NewWorkspaceID(), image: "digest"}
	w.ok(w.table.insert(t.Context(), w.r, nil, func(string) bool { return false }, nothingWith))
	return w
}

func (w *keptWorld) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// take makes a snapshot with a disk over the one before's. Its memory is the one
// before's with a few other pages.
func (w *keptWorld) take(kind holt.SnapshotKind) snapshot {
	w.t.Helper()
	w.n++
	rng := rand.New(rand.NewPCG(7, uint64(w.n)))
	b := make([]byte, keptMemory)
	copy(b, w.want[w.r.snapshot])
	pages := 3
	if w.r.snapshot == "" {
		pages = 100
	}
	for range pages {
		at := rng.IntN(keptMemory/archive.PageBytes) * archive.PageBytes
		for i := range archive.PageBytes / 2 {
			b[at+i] = byte(rng.Uint32())
		}
	}
	b[len(b)-1] = 1
	m := snapshot{Snapshot: holt.Snapshot{ID: holt.NewSnapshotID(), Kind: kind, ComputerID: w.r.ID, Parent: w.r.snapshot, CPUs: 1, MemoryMB: len(b) >> 20,
		CreatedAt: w.began.Add(time.Duration(w.n) * time.Second)}, workspace: w.r.workspaceID, disk: holt.NewDiskID()}
	w.ok(os.WriteFile(w.disks.path(m.disk), bytes.Repeat([]byte{byte(w.n)}, 100_000), 0o600))
	w.ok(w.cfg.DB.Write(w.t.Context(), func(tx *db.Tx) error { return w.disks.insert(tx, m.disk, w.r.disk, w.r) }))
	w.ok(w.snapshots.insert(w.t.Context(), w.disks, *w.r, m, nil))
	dir := w.snapshots.path(m.ID)
	w.ok(os.MkdirAll(dir, 0o700))
	for name, content := range map[string]string{machine.StateFile: strings.Repeat("state", 50_000), machine.RecordFile: "{}", inventoryFile: "{}"} {
		w.ok(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	f, err := os.Create(filepath.Join(dir, machine.MemoryFile))
	w.ok(err)
	w.ok(f.Truncate(int64(len(b))))
	w.ok(archive.WriteSparse(f, b, 0))
	w.ok(f.Close())
	w.r.disk, w.r.snapshot = m.disk, m.ID
	w.ok(w.snapshots.ready(w.t.Context(), w.table, m, *w.r))
	w.want[m.ID] = b
	return w.row(m.ID)
}

func (w *keptWorld) row(id holt.SnapshotID) snapshot {
	w.t.Helper()
	m, err := w.snapshots.get(w.t.Context(), id)
	w.ok(err)
	return m
}

// here says whether a snapshot's memory is on this disk, and fails if it is not the right one.
func (w *keptWorld) here(m snapshot) bool {
	w.t.Helper()
	left, err := filepath.Glob(filepath.Join(w.snapshots.path(m.ID), "*"+archive.Fetching))
	if err != nil || len(left) > 0 {
		w.t.Errorf("left half-fetched: %q %v", left, err)
	}
	b, err := os.ReadFile(filepath.Join(w.snapshots.path(m.ID), machine.MemoryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	w.ok(err)
	if !bytes.Equal(b, w.want[m.ID]) {
		w.t.Errorf("the memory of %s is another", m.ID)
	}
	return true
}

func (w *keptWorld) spaces(want ...string) {
	w.t.Helper()
	got, err := w.archiver.archive.Chunks.Spaces(w.t.Context())
	w.ok(err)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("the archive has %q, want %q", got, want)
	}
}

// Snapshots that stay go to the archive, with their disks and what they are, each page and disk
// once; their memory goes from this disk when it takes too much, and comes back when it is needed.
func TestSnapshotsGoToTheArchive(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	ctx := t.Context()
	first, forked, second := w.take(holt.SnapshotManual), w.take(holt.SnapshotOfFork), w.take(holt.SnapshotManual)
	w.archiver.keepRound(ctx)
	w.spaces(string(first.ID), string(second.ID), string(first.disk), string(forked.disk), string(second.disk))
	if w.here(first) || w.here(second) || !w.here(forked) {
		t.Error("what is stored is here, or what is not stored has gone")
	}
	one, two := w.row(first.ID), w.row(second.ID)
	if !one.Archived || !two.Archived || w.row(forked.ID).Archived || one.Bytes > 1<<20 || two.ArchivedBytes > one.ArchivedBytes/4 || two.ArchivedBytes == 0 {
		t.Errorf("%+v, %+v", one.Snapshot, two.Snapshot)
	}
	about, err := w.archiver.archive.About(ctx, string(second.ID))
	if err != nil || about.Snapshot.ID != second.ID || about.Workspace != w.r.workspaceID || !slices.Equal(about.Disks, []holt.DiskID{second.disk, forked.disk, first.disk}) {
		t.Errorf("%+v %v", about, err)
	}
	if about, err := w.archiver.archive.About(ctx, string(first.disk)); err != nil || len(about.Files) != 2 || about.Files[0].Name != baseFile || about.Files[0].Size != 12 {
		t.Errorf("%+v %v", about, err)
	}
	if about, err := w.archiver.archive.About(ctx, string(second.disk)); err != nil || about.Disk != second.disk || about.Image != "digest" {
		t.Errorf("%+v %v", about, err)
	}
	done, err := w.archiver.use(ctx, first) // as it was found before it was stored
	w.ok(err)
	w.archiver.evict(ctx, 0)
	if !w.here(first) {
		t.Error("memory that is used has gone")
	}
	if bytes := w.row(first.ID).Bytes; bytes > 2<<20 {
		t.Errorf("what came back takes %d bytes", bytes)
	}
	done()
	w.archiver.keepRound(ctx)
	if w.here(first) {
		t.Error("memory that nobody uses is here")
	}
	if _, err := w.snapshots.markDeleting(ctx, first.ID, nil); err != nil {
		t.Error(err)
	}
	w.cfg.Fail = func(point string) error {
		if point == "snapshot/files" {
			return errors.New("planned")
		}
		return nil
	}
	if _, err := w.snapshotter.removeSnapshot(ctx, first); err == nil {
		t.Error("a delete was not cut off")
	}
	w.cfg.Fail = nil
	w.ok(os.WriteFile(filepath.Join(w.snapshots.path(second.ID), machine.MemoryFile+archive.Fetching), []byte("half"), 0o600))
	w.ok(w.snapshotter.tidySnapshots(ctx)) // the next daemon
	w.here(second)
	w.spaces(string(second.ID), string(first.disk), string(forked.disk), string(second.disk))
	w.ok((&transition{s: w.Store, r: w.r}).dropSnapshots(ctx))
	w.ok(w.table.erase(ctx, w.r.ID))
	_, err = w.disks.collect(ctx)
	w.ok(err)
	w.spaces()
}

// The longest unused memory goes first, and no more than has to; what a computer is paused
// at is stored only when there is no room for it.
func TestMemoryGoesInOrder(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	first, second, paused := w.take(holt.SnapshotManual), w.take(holt.SnapshotManual), w.take(holt.SnapshotOfPause)
	w.r.State = holt.ComputerPaused
	w.ok(w.table.save(ctx, *w.r))
	w.archiver.keepRound(ctx)
	if !w.here(first) || !w.here(second) || w.row(paused.ID).Archived {
		t.Error("there is room, and something has gone")
	}
	done, err := w.archiver.use(ctx, first)
	w.ok(err)
	done()
	w.cfg.SnapshotCache = w.row(first.ID).Bytes + w.row(second.ID).Bytes + w.row(paused.ID).Bytes - 1
	w.archiver.keepRound(ctx)
	if !w.here(first) || w.here(second) || w.row(paused.ID).Archived {
		t.Error("not the longest unused has gone")
	}
	w.cfg.SnapshotCache = 1
	w.archiver.keepRound(ctx)
	if w.here(first) || w.here(paused) || !w.row(paused.ID).Archived {
		t.Error("what a computer is paused at takes what it should not")
	}
}

// Storing that fails or ends anywhere is finished by the next, and nothing goes
// from this disk before.
func TestStoringIsCutOff(t *testing.T) {
	broken := errors.New("planned")
	stride := 1
	if testing.Short() {
		stride = 3
	}
	for steps := 0; ; steps += stride {
		w := keeps(t, &chunk.Memory{}, 1)
		m := w.take(holt.SnapshotManual)
		left := steps
		w.archiver.archive.Fail = func(string) error {
			if left--; left < 0 {
				return broken
			}
			return nil
		}
		w.cfg.Fail = w.archiver.archive.Fail
		w.archiver.keepRound(t.Context())
		if left >= 0 {
			if steps < 6 {
				t.Error("only", steps, "steps")
			}
			return
		}
		if !w.here(m) {
			t.Errorf("cut off at step %d, and its memory has gone", steps)
		}
		w.archiver.archive.Fail, w.cfg.Fail = nil, nil
		w.archiver.keepRound(t.Context())
		if w.here(m) || !w.row(m.ID).Archived {
			t.Errorf("cut off at step %d, and not stored by the next", steps)
		}
		done, err := w.archiver.use(t.Context(), m)
		w.ok(err)
		if !w.here(m) {
			t.Error("it did not come back")
		}
		done()
	}
}

// A snapshot that is deleted while it is stored leaves nothing.
func TestDeletedWhileStored(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	m := w.take(holt.SnapshotManual)
	at, deleted := make(chan struct{}), make(chan error, 1)
	w.archiver.archive.Fail = func(point string) error {
		if point == "keep/strip" {
			select {
			case <-at:
			default:
				close(at)
			}
		}
		return nil
	}
	go func() {
		<-at
		_, err := w.snapshots.markDeleting(context.Background(), m.ID, nil)
		if err == nil {
			_, err = w.snapshotter.removeSnapshot(context.Background(), m)
		}
		deleted <- err
	}()
	w.archiver.keepRound(t.Context())
	w.ok(<-deleted)
	w.archiver.keepRound(t.Context())
	names, err := w.archiver.archive.Chunks.Names(t.Context(), string(m.ID))
	if err != nil || len(names) > 0 {
		t.Error("left in the archive:", names, err)
	}
}

// A snapshot can be deleted while the archiver waits for a merge of other disks to end.
func TestDeletedDuringAMerge(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1)
	m := w.take(holt.SnapshotManual)
	at, deleted, kept := make(chan struct{}), make(chan error, 1), make(chan struct{})
	w.cfg.Fail = func(point string) error {
		if point == "keep/still" {
			close(at)
		}
		return nil
	}
	w.disks.still.Lock()
	go func() {
		defer close(kept)
		w.archiver.keepRound(context.Background())
	}()
	<-at
	go func() {
		_, err := w.snapshots.markDeleting(context.Background(), m.ID, nil)
		if err == nil {
			_, err = w.snapshotter.removeSnapshot(context.Background(), m)
		}
		deleted <- err
	}()
	select {
	case err := <-deleted:
		w.disks.still.Unlock()
		w.ok(err)
	case <-time.After(2 * time.Minute):
		w.disks.still.Unlock()
		t.Error("a delete waits for a merge")
		w.ok(<-deleted)
	}
	<-kept
	names, err := w.archiver.archive.Chunks.Names(t.Context(), string(m.ID))
	if err != nil || len(names) > 0 {
		t.Error("left in the archive:", names, err)
	}
}

// What the archive has of a stopped computer's disk goes with the snapshot that it was frozen
// with, if the computer writes to it again: what is stored later is what it has then.
func TestThawedDiskIsStoredAnew(t *testing.T) {
	w := keeps(t, &chunk.Memory{}, 1<<40)
	ctx := t.Context()
	before := w.take(holt.SnapshotOfFork)
	present := w.take(holt.SnapshotManual)
	w.archiver.keepRound(ctx)
	w.spaces(string(present.ID), string(before.disk), string(present.disk))
	_, err := w.snapshots.markDeleting(ctx, present.ID, nil) // the restore is undone: the computer's disk is this one still
	w.ok(err)
	_, err = w.snapshotter.removeSnapshot(ctx, present)
	w.ok(err)
	w.spaces(string(before.disk))
	w.ok(os.WriteFile(w.disks.path(present.disk), bytes.Repeat([]byte("changed"), 20_000), 0o600))
	chain, err := w.disks.chain(ctx, present.disk)
	w.ok(err)
	_, err = w.disks.store(ctx, chain[0], "", "digest")
	w.ok(err)
	space := string(chain[0].space)
	about, err := w.archiver.archive.About(ctx, space)
	if err != nil || about.Files[0].Size != 140_000 {
		t.Errorf("%+v %v", about, err)
	}
	got := make([]byte, 7)
	w.ok(w.archiver.archive.Chunks.ReadAt(ctx, space, diskFile+".00000", got, 0))
	if string(got) != "changed" {
		t.Errorf("the archive has %q of it", got)
	}
}

// Memory whose bytes in the archive were changed does not come back, half or wrong; put
// back, it does. What the archive has lost before is stored again.
func TestDamagedMemory(t *testing.T) {
	dir := t.TempDir()
	packs, err := chunk.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := keeps(t, packs, 1)
	m := w.take(holt.SnapshotManual)
	w.archiver.keepRound(t.Context())
	saved := map[string][]byte{}
	w.ok(filepath.WalkDir(filepath.Join(dir, "pack"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		w.ok(err)
		saved[path] = slices.Clone(b)
		for i := 100; i < len(b)-100; i += 1000 {
			b[i] ^= 1
		}
		return os.WriteFile(path, b, 0o600)
	}))
	if _, err := w.archiver.use(t.Context(), m); holt.CodeOf(err) != holt.Corrupt || !strings.Contains(err.Error(), string(m.ID)) {
		t.Error("damaged memory:", err)
	}
	if w.here(m) {
		t.Error("damaged memory is here")
	}
	for path, b := range saved {
		w.ok(os.WriteFile(path, b, 0o600))
	}
	w.archiver.archive.Fail = func(point string) error {
		if point == "fetch/file" {
			return unix.ENOSPC
		}
		return nil
	}
	if _, err := w.archiver.use(t.Context(), m); holt.CodeOf(err) != holt.OutOfSpace || w.here(m) {
		t.Error("no room here:", err)
	}
	w.archiver.archive.Fail = nil
	done, err := w.archiver.use(t.Context(), m)
	w.ok(err)
	w.ok(w.archiver.archive.Chunks.Remove(t.Context(), string(m.ID), "memory.00001"))
	done()
	w.archiver.evict(t.Context(), 0)
	if !w.here(m) || w.row(m.ID).Archived {
		t.Fatal("the only copy has gone")
	}
	w.archiver.keepRound(t.Context())
	if w.here(m) || !w.row(m.ID).Archived {
		t.Error("it was not stored again")
	}
	w.ok(w.archiver.archive.Chunks.Drop(t.Context(), string(m.ID)))
	if _, err := w.archiver.use(t.Context(), m); holt.CodeOf(err) != holt.Corrupt {
		t.Error("what nobody has:", err)
	}
}

// A store without room keeps nothing, and this disk everything, until there is some.
func TestStoreIsFull(t *testing.T) {
	far := &chunk.Fault{Under: &chunk.Memory{}}
	w := keeps(t, far, 1)
	m := w.take(holt.SnapshotManual)
	far.SetHook(func(call, name string) chunk.Failure {
		if call == "put" && strings.HasPrefix(name, "pack/") {
			return chunk.Failure{Err: holt.Errorf(holt.OutOfSpace, "planned")}
		}
		return chunk.Failure{}
	})
	w.archiver.keepRound(t.Context())
	if !w.here(m) || w.row(m.ID).Archived {
		t.Error("it is stored where there is no room")
	}
	w.spaces()
	far.SetHook(nil)
	w.archiver.archive.PackDir = t.TempDir()
	if err := w.archiver.archive.CheckRoom(1 << 60); holt.CodeOf(err) != holt.OutOfSpace {
		t.Error("more than any disk has:", err)
	}
	w.archiver.keepRound(t.Context())
	if w.here(m) || !w.row(m.ID).Archived {
		t.Error("it is not stored")
	}
}

// A snapshot whose way into the archive broke just behind the store does not come back there once it is
// deleted.
func TestDeletedWhileCutOff(t *testing.T) {
	far, broken := &chunk.Fault{Under: &chunk.Memory{}}, errors.New("planned")
	w := keeps(t, far, 1<<40)
	m := w.take(holt.SnapshotManual)
	far.SetHook(func(call, name string) chunk.Failure {
		if call == "put" && strings.HasPrefix(name, "space/"+string(m.ID)) {
			return chunk.Failure{Err: broken, Late: true}
		}
		return chunk.Failure{}
	})
	if err := w.archiver.store(t.Context(), m); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	far.SetHook(nil)
	w.ok(w.archiver.archive.Drop(t.Context(), string(m.ID)))
	_, err := w.cfg.Archive.Collect(t.Context(), time.Now().Add(time.Hour))
	w.ok(err)
	if names, err := w.cfg.Archive.Spaces(t.Context()); err != nil || slices.Contains(names, string(m.ID)) {
		t.Errorf("the archive has %v, %v", names, err)
	}
}
