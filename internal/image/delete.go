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

// holders is the directory in a root's own of links to what stands on it.
const holders = "holders"

// Hold records that the disk in dir, an absolute path, stands on a root: as
// long as dir is there, no daemon and no command that shares this store removes
// the root. Nothing has to be undone: a link to what is gone holds nothing.
//
// Errors: NotFound when there is no such root (any more).
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

// held returns the directories whose disks stand on a root.
func (s *Store) held(digest string) ([]string, error) {
	links := filepath.Join(s.rootDir(digest), holders)
	entries, err := os.ReadDir(links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look who uses an image: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		link := filepath.Join(links, e.Name())
		if _, err := os.Stat(link); errors.Is(err, fs.ErrNotExist) {
			continue
		} // any other error: it may be there
		to, err := os.Readlink(link)
		if err != nil {
			return nil, fmt.Errorf("look who uses an image: %w", err)
		}
		dirs = append(dirs, to)
	}
	return dirs, nil
}

// Delete removes a template's image, or the one with the given digest, and
// returns it. One that a computer's disk stands on is not removed: Conflict.
func (s *Store) Delete(ctx context.Context, ref string) (holt.Image, error) {
	rec, err := s.find(ref)
	if err != nil {
		return holt.Image{}, err
	}
	shown := s.wire(rec, false) // with what goes with it
	_, err = s.drop(ctx, rec, false)
	return shown, err
}

// Prune removes the images that no template stands for any more and that no
// computer's disk stands on, and returns them.
func (s *Store) Prune(ctx context.Context) ([]holt.Image, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	s.pruneSnapshots(ctx)
	gone := []holt.Image{}
	for _, rec := range records {
		shown := s.wire(rec, false) // with what goes with it
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

// drop removes a root, with old only if its template stands for another one.
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
	free, err := s.lock(ctx, rec.Digest, func() {}) // always after the template's
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
		if id, err := holt.ParseComputerID(filepath.Base(dirs[0])); err == nil { // of this host; another daemon may have it
			hint += "; holt computer get " + string(id) + " shows the first"
		}
		return false, holt.Errorf(holt.Conflict, "the image %s (%.12s) is in use by the disk in %s", rec.Template, rec.Digest, strings.Join(dirs, ", ")).WithHint("%s", hint)
	}
	if isCurrent {
		if err := s.removeTemplate(ctx, rec.Template); err != nil {
			return false, fmt.Errorf("delete image: %w", err)
		}
	}
	return true, s.removeWhole(s.rootDir(rec.Digest))
}

// dropKernels removes every kernel of the store. The caller holds the lock
// "kernel". Images and builds under way have their own links to theirs.
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

// removeWhole removes a directory so that nobody sees a part of it: it first
// goes where sweeps clean up.
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
