package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"holt"
)

// Delete removes a template's image, or the image with the given root digest.
// inUse tells whether a computer's disk stands on a root; it may be nil. An
// image in use is not removed: Conflict.
func (s *Store) Delete(ctx context.Context, ref string, inUse func(digest string) bool) error {
	rec, err := s.find(ref)
	if err != nil {
		return err
	}
	if inUse != nil && inUse(rec.Digest) {
		return holt.Errorf(holt.Conflict, "image %s is in use: disks of computers stand on it", rec.Template).
			WithHint("delete those computers first")
	}
	release, err := s.lock(ctx, rec.Template, func() {})
	if err != nil {
		return err
	}
	defer release()
	var c current
	if readJSON(s.templateFile(rec.Template), &c) == nil && c.Digest == rec.Digest {
		if err := os.Remove(s.templateFile(rec.Template)); err != nil {
			return fmt.Errorf("delete image: %w", err)
		}
	}
	return s.removeWhole(s.rootDir(rec.Digest))
}

// Prune removes the images that no template stands for any more and that are
// not in use, and returns their digests.
func (s *Store) Prune(ctx context.Context, inUse func(digest string) bool) ([]string, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	var gone []string
	for _, rec := range records {
		var c current
		err := readJSON(s.templateFile(rec.Template), &c)
		if err == nil && c.Digest == rec.Digest || err != nil && !errors.Is(err, fs.ErrNotExist) || inUse(rec.Digest) {
			continue
		}
		if err := s.Delete(ctx, rec.Digest, inUse); err != nil {
			return gone, err
		}
		gone = append(gone, rec.Digest)
	}
	return gone, nil
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
