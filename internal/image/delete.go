package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holt"
)

// holders is the directory of links to the users of a root, in the root's directory.
const holders = "holders"

// Hold records that a disk in dir, an absolute path, uses a root. No process that
// shares this store removes the root while dir exists. There is nothing to release: a
// link to a directory that does not exist does not count.
//
// Errors: NotFound (the root).
func (s *Store) Hold(ctx context.Context, digest, dir string) error {
	release, err := s.lock(ctx, digest, func() {})
	if err != nil {
		return err
	}
	defer release()
	if _, err := s.find(digest); err != nil {
		return err
	}
	links := filepath.Join(s.rootDir(digest), holders)
	link := filepath.Join(links, filepath.Base(dir))
	if to, err := os.Readlink(link); err == nil && to == dir {
		return nil
	}
	err = os.MkdirAll(links, 0o755)
	if err == nil {
		if err = os.Remove(link); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Symlink(dir, link)
	}
	if err == nil {
		err = syncDir(links)
	}
	if err != nil {
		return noSpace(fmt.Errorf("hold image: %w", err), s.dir)
	}
	return nil
}

// held returns the directories with disks that use a root.
func (s *Store) held(digest string) ([]string, error) {
	links := filepath.Join(s.rootDir(digest), holders)
	entries, err := os.ReadDir(links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("find users of image: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		link := filepath.Join(links, e.Name())
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			continue
		} // on any other error the directory may exist
		to, err := os.Readlink(link)
		if err != nil {
			return nil, fmt.Errorf("find users of image: %w", err)
		}
		dirs = append(dirs, to)
	}
	return dirs, nil
}

// Delete removes a template's image, or the image with the given digest, and
// returns it. If a computer's disk uses the image it returns Conflict.
func (s *Store) Delete(ctx context.Context, ref string) (holt.Image, error) {
	rec, err := s.find(ref)
	if err != nil {
		return holt.Image{}, err
	}
	shown := s.wire(rec, false) // before the snapshots are deleted, for Bytes
	_, err = s.drop(ctx, rec, false)
	return shown, err
}

// Prune removes the images that are not of their template's last build and that no
// computer's disk uses, and returns them.
func (s *Store) Prune(ctx context.Context) ([]holt.Image, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	s.pruneSnapshots(ctx)
	gone := []holt.Image{}
	for _, rec := range records {
		shown := s.wire(rec, false) // before the snapshots are deleted, for Bytes
		dropped, err := s.drop(ctx, rec, true)
		switch {
		case holt.CodeOf(err) == holt.Conflict:
		case err != nil:
			return gone, err
		case dropped:
			gone = append(gone, shown)
		}
	}
	return gone, nil
}

// drop removes a root that is not in use. With old it keeps the root of a template's last build.
func (s *Store) drop(ctx context.Context, rec record, old bool) (bool, error) {
	release, err := s.lock(ctx, rec.Template, func() {})
	if err != nil {
		return false, err
	}
	defer release()
	var c current
	err = readJSON(s.templateFile(rec.Template), &c)
	isCurrent := err == nil && c.Digest == rec.Digest
	if old && (isCurrent || err != nil && !errors.Is(err, fs.ErrNotExist)) {
		return false, nil
	}
	free, err := s.lock(ctx, rec.Digest, func() {}) // see the lock order
	if err != nil {
		return false, err
	}
	defer free()
	dirs, err := s.held(rec.Digest)
	if err != nil {
		return false, err
	}
	if len(dirs) > 0 {
		hint := "delete those computers first"
		if id, err := holt.ParseComputerID(filepath.Base(dirs[0])); err == nil { // the computer may be another daemon's
			hint += "; holt computer get " + string(id) + " shows the first"
		}
		return false, holt.Errorf(holt.Conflict, "the image %s (%.12s) is used by disks in %s", rec.Template, rec.Digest, strings.Join(dirs, ", ")).WithHint("%s", hint)
	}
	if isCurrent {
		if err := s.removeTemplate(ctx, rec.Template); err != nil {
			return false, fmt.Errorf("delete image: %w", err)
		}
	}
	return true, s.removeWhole(s.rootDir(rec.Digest))
}

// dropKernels removes all kernels of the store. The caller holds the lock
// "kernel". Images and builds have their own hard links.
func (s *Store) dropKernels() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, "kernels"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.removeWhole(s.kernelDir(e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeWhole removes a directory atomically: it first renames it into tmp, which
// sweep cleans up.
func (s *Store) removeWhole(dir string) error {
	aside := filepath.Join(s.dir, "tmp", "gone-"+filepath.Base(dir))
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("delete image: %w", err)
	}
	if err := os.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete image: %w", err)
	}
	return os.RemoveAll(aside)
}
