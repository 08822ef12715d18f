package image

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// Files in the directory of a snapshot that the store knows.
const (
	// SnapshotDisk is the backing file of computers' disks. It is kept as long as its root.
	SnapshotDisk = "disk.qcow2"
	// SnapshotRecord exists if the snapshot is complete.
	SnapshotRecord = "machine.json"
)

const (
	snapshots = "snapshots" // in a root's directory

	mostSnapshots   = 16 // in a store
	cacheShare      = 8  // all snapshots may take 1/cacheShare of the disk
	unusedSnapshot  = 14 * 24 * time.Hour
	snapshotDigits  = 8 // length of the random end of a directory's name
	snapshotInBuild = "snapshot"
)

// Snapshot returns the directory of the snapshot with a key of a root, or "", and records its use.
// A caller that makes an overlay of its disk must hold the root, see [Store.Hold].
func (s *Store) Snapshot(digest, key string) string {
	now := time.Now()
	return s.findSnapshot(digest, key, func(record string) error { return os.Chtimes(record, now, now) })
}

// HasSnapshot reports whether there is a snapshot with a key of a root. It does not count as a use.
func (s *Store) HasSnapshot(digest, key string) bool {
	return s.findSnapshot(digest, key, func(record string) error { _, err := os.Stat(record); return err }) != ""
}

// findSnapshot returns the directory of a snapshot with the key for whose record usable returns nil, or "".
func (s *Store) findSnapshot(digest, key string, usable func(record string) error) string {
	entries, err := os.ReadDir(filepath.Join(s.rootDir(digest), snapshots))
	if err != nil {
		return "" // absent: none was made
	}
	for _, e := range entries {
		dir := filepath.Join(s.rootDir(digest), snapshots, e.Name())
		if strings.HasPrefix(e.Name(), key+"-") && usable(filepath.Join(dir, SnapshotRecord)) == nil {
			return dir
		}
	}
	return ""
}

// Disks returns the possible backing files of disks: the disks of a root's snapshots, and the root. With "" it returns
// all roots.
func (s *Store) Disks(digest string) (snapshotDisks, roots []string) {
	if digest == "" {
		records, err := s.records()
		if err != nil {
			s.log.Warn("list images", "error", err)
		}
		for _, rec := range records {
			roots = append(roots, filepath.Join(s.rootDir(rec.Digest), rootDisk))
		}
		return nil, roots
	}
	entries, err := os.ReadDir(filepath.Join(s.rootDir(digest), snapshots))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("list snapshots", "error", err)
	}
	for _, e := range entries {
		snapshotDisks = append(snapshotDisks, filepath.Join(s.rootDir(digest), snapshots, e.Name(), SnapshotDisk))
	}
	return snapshotDisks, []string{filepath.Join(s.rootDir(digest), rootDisk)}
}

// MakeSnapshot returns the snapshot with a key of a root. If there is none it calls make, which
// makes it as dir/snapshot; dir is removed afterwards. Concurrent calls with the same key,
// also in other processes, wait for the first. A key is a file name.
//
// Errors: those of make, NotFound (the root).
func (s *Store) MakeSnapshot(ctx context.Context, digest, key string, make func(ctx context.Context, dir string) error) (string, error) {
	release, err := s.lock(ctx, "snapshot-"+key, func() {})
	if err != nil {
		return "", err
	}
	defer release()
	if dir := s.Snapshot(digest, key); dir != "" {
		return dir, nil
	}
	t, err := s.newScratch(false)
	if err != nil {
		return "", noSpace(err, s.dir)
	}
	if err = make(ctx, t.dir); err == nil {
		err = s.publishSnapshot(ctx, digest, key, filepath.Join(t.dir, snapshotInBuild))
	}
	if lost := t.remove(); lost != nil {
		s.log.Warn("remove temporary directory of snapshot", "dir", t.dir, "error", lost)
	}
	if err != nil {
		return "", noSpace(err, s.dir)
	}
	s.pruneSnapshots(ctx)
	return s.Snapshot(digest, key), nil
}

func (s *Store) publishSnapshot(ctx context.Context, digest, key, from string) error {
	release, err := s.lock(ctx, digest, func() {})
	if err != nil {
		return err
	}
	defer release()
	if _, err := s.find(digest); err != nil {
		return err
	}
	dir := filepath.Join(s.rootDir(digest), snapshots)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of snapshots: %w", err)
	}
	return publish(from, filepath.Join(dir, key+"-"+strings.ToLower(rand.Text()[:snapshotDigits])))
}

// DropSnapshot removes the snapshot with a key of a root, so that no further machine is resumed
// from it. Its disk is kept while the root is held.
func (s *Store) DropSnapshot(ctx context.Context, digest, key string) error {
	for dir := s.Snapshot(digest, key); dir != ""; dir = s.Snapshot(digest, key) {
		if err := s.dropSnapshot(ctx, digest, dir); err != nil {
			return err
		}
	}
	return nil
}

// dropSnapshot removes a snapshot, its record first.
func (s *Store) dropSnapshot(ctx context.Context, digest, dir string) error {
	release, err := s.lock(ctx, digest, func() {})
	if err != nil {
		return err
	}
	defer release()
	users, err := s.held(digest)
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return s.removeWhole(dir)
	}
	if err := os.Remove(filepath.Join(dir, SnapshotRecord)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	for _, e := range entries {
		if e.Name() == SnapshotDisk {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove snapshot: %w", err)
		}
	}
	return nil
}

// snapshot is a snapshot in the store; one without a record has only its disk.
type snapshot struct {
	template, digest, dir string
	used                  time.Time // zero without a record
	bytes                 int64     // allocated
}

// Kept is a complete snapshot. A machine can be resumed from it if host and agent match.
type Kept struct {
	Template string // of the image that it was booted from; its last build may be another image
	Digest   string
	Key      string
	Dir      string
	Used     time.Time
}

// Kept returns the snapshots that were used in the last 14 days, the last used first. It does not
// count as a use.
func (s *Store) Kept() ([]Kept, error) {
	all, err := s.allSnapshots()
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, one := range all {
		if time.Since(one.used) < unusedSnapshot {
			key, _, _ := strings.Cut(filepath.Base(one.dir), "-")
			out = append(out, Kept{Template: one.template, Digest: one.digest, Key: key, Dir: one.dir, Used: one.used})
		}
	}
	slices.SortFunc(out, func(a, b Kept) int { return b.Used.Compare(a.Used) })
	return out, nil
}

// ready returns the shapes of a root's snapshots that have this store's guest binary, if it has
// one. Only a daemon can check that they match its engine.
func (s *Store) ready(rec record) (shapes []holt.Shape) {
	dir := filepath.Join(s.rootDir(rec.Digest), snapshots)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // absent: none was made
	}
	initrd := s.initrdName(rec)
	for _, e := range entries {
		im, err := machine.ReadImage(filepath.Join(dir, e.Name()))
		if err != nil || len(s.opt.GuestBinary) > 0 && filepath.Base(im.Spec.Initrd) != initrd || !slices.Equal(im.Spec.Args, rec.Args) {
			continue
		}
		shapes = append(shapes, holt.Shape{CPUs: im.Spec.CPUs, MemoryMB: im.Spec.MemoryMB})
	}
	slices.SortFunc(shapes, func(a, b holt.Shape) int { return cmp.Or(a.CPUs-b.CPUs, a.MemoryMB-b.MemoryMB) })
	return slices.Compact(shapes)
}

// pruneSnapshots removes snapshots that were not used for unusedSnapshot, and the least recently
// used ones until the others are within the limits. It keeps the most recently used one.
func (s *Store) pruneSnapshots(ctx context.Context) {
	all, err := s.allSnapshots()
	if err != nil {
		s.log.Warn("find old snapshots", "error", err)
		return
	}
	slices.SortFunc(all, func(a, b snapshot) int { return cmp.Or(b.used.Compare(a.used), strings.Compare(a.dir, b.dir)) })
	bytes, most := int64(0), s.snapshotSpace()
	for i, one := range all {
		bytes += one.bytes
		if i == 0 || i < mostSnapshots && bytes <= most && time.Since(one.used) < unusedSnapshot {
			continue
		}
		bytes -= one.bytes
		if err := s.dropSnapshot(ctx, one.digest, one.dir); err != nil {
			s.log.Warn("remove old snapshot", "dir", one.dir, "error", err)
		}
	}
}

func (s *Store) allSnapshots() (all []snapshot, err error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		entries, err := os.ReadDir(filepath.Join(s.rootDir(rec.Digest), snapshots))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			one := snapshot{template: rec.Template, digest: rec.Digest, dir: filepath.Join(s.rootDir(rec.Digest), snapshots, e.Name())}
			if st, err := os.Stat(filepath.Join(one.dir, SnapshotRecord)); err == nil {
				one.used = st.ModTime()
			}
			if one.bytes, err = filesBytes(one.dir); errors.Is(err, fs.ErrNotExist) {
				continue // another process has removed it
			}
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// snapshotBytes returns the disk usage of a root's snapshots, without what cannot be read.
func (s *Store) snapshotBytes(digest string) (bytes int64) {
	dir := filepath.Join(s.rootDir(digest), snapshots)
	entries, _ := os.ReadDir(dir) // absent: none was made
	for _, e := range entries {
		n, _ := filesBytes(filepath.Join(dir, e.Name()))
		bytes += n
	}
	return bytes
}

// filesBytes returns the disk usage of the files in a directory.
func filesBytes(dir string) (bytes int64, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		bytes += allocated(filepath.Join(dir, f.Name()))
	}
	return bytes, err
}

// snapshotSpace returns the maximum disk usage of all snapshots, bytes.
func (s *Store) snapshotSpace() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0
	}
	return int64(st.Blocks) / cacheShare * st.Bsize
}
