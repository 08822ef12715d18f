package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// mostKept is how many versions' programs are kept, this one's included: some 80 MB each.
const mostKept = 4

// keep copies the program to the directory of kept programs, by the version of
// gVisor, unless it is there, and removes the oldest of more than mostKept. After
// an upgrade of holt to another gVisor the kept program restores durable images
// that were made before.
func (e *Engine) keep() error {
	if e.kept == "" {
		return nil
	}
	e.keeping.Lock()
	defer e.keeping.Unlock()
	path := filepath.Join(e.kept, Version)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(e.kept, 0o700); err != nil {
		return err
	}
	err := replace(path, func(f *os.File) error {
		return errors.Join(CopySparse(context.Background(), f, e.program), f.Chmod(0o700), f.Sync())
	})
	if err != nil {
		return fmt.Errorf("keep the program of gVisor %s: %w", Version, err)
	}
	all, err := os.ReadDir(e.kept)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return cmp.Compare(b.Name(), a.Name()) }) // a version begins with its date
	for _, old := range all[min(len(all), mostKept):] {
		err = errors.Join(err, os.Remove(filepath.Join(e.kept, old.Name())))
	}
	return err
}

// programOf returns the program that restores images of a version of gVisor: this
// one, or one that was kept, or Unsupported.
func (e *Engine) programOf(version string) (string, error) {
	if version == Version {
		return e.program, nil
	}
	path := filepath.Join(e.kept, filepath.Base(version))
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", unfit("made by gVisor %.60s, and this holt has %s", version, Version)
	}
	return path, nil
}
