package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"holt"
)

const maxRecordBytes = 1 << 20

// openDirs makes the directories of the store.
func (s *Store) openDirs() error {
	for _, dir := range []string{"roots", "kernels", "initrds", "templates", "logs", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			return noSpace(fmt.Errorf("make image directory: %w", err), s.dir)
		}
	}
	return nil
}

func (s *Store) rootDir(digest string) string { return filepath.Join(s.dir, "roots", digest) }

func (s *Store) kernelDir(version string) string { return filepath.Join(s.dir, "kernels", version) }

// writeWhole replaces a file atomically, also against power loss.
func writeWhole(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// publish renames a finished directory to its final name. If there is one with that
// name already, which has the same content, publish keeps that.
func publish(from, to string) error {
	if err := syncDir(from); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return os.RemoveAll(from)
	}
	if err != nil {
		return fmt.Errorf("move into place: %w", err)
	}
	return syncDir(filepath.Dir(to))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// readJSON reads a record that this package wrote.
func readJSON(name string, v any) error {
	data, err := readBounded(name, maxRecordBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return holt.Errorf(holt.Corrupt, "%s is damaged: %w", name, err).WithHint("delete the image and build it again")
	}
	return nil
}

func writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(name, append(data, '\n'))
}

// allocated returns the bytes that a file takes on its disk, 0 if it is absent.
func allocated(name string) int64 {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// leastFree is the free space below which a disk counts as full.
const leastFree = 16 << 20

// freeBytes returns the free bytes at dir for users other than root.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("check the disk of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// noSpace returns OutOfSpace for an error that a full disk caused, and other errors unchanged.
func noSpace(err error, dir string) error {
	if err == nil || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || holt.CodeOf(err) == holt.OutOfSpace {
		return err
	}
	return holt.Errorf(holt.OutOfSpace, "the disk of %s is full: %w", dir, err).
		WithHint("free space there, or put images elsewhere with %s", holt.EnvImageDir)
}
