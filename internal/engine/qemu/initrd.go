package qemu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// initrdFor returns the initramfs for a machine: that of the image it is
// restored from, if the image has one.
func initrdFor(spec machine.Spec) string {
	if spec.Restore != "" {
		if own := filepath.Join(spec.Restore, machine.InitrdFile); isThere(own) {
			return own
		}
	}
	return spec.Initrd
}

// holdInitrd gives the machine its own copy of the initramfs and returns its
// path: the original may be removed, and machines restored from an image of
// this one need it.
func (g *guest) holdInitrd() (string, error) {
	own := g.Dir.File(machine.InitrdFile)
	if err := linkOrCopy(initrdFor(g.spec), own); err != nil {
		return "", fmt.Errorf("keep initramfs of machine: %w", err)
	}
	return own, nil
}

// keepInitrd puts the machine's initramfs into the image.
func (s *snapshot) keepInitrd() error {
	from := s.Dir.File(machine.InitrdFile)
	if !isThere(from) { // started by an older holt, which did not keep it
		from = initrdFor(s.guest.spec)
	}
	err := linkOrCopy(from, filepath.Join(s.spec.Dir, machine.InitrdFile))
	if errors.Is(err, fs.ErrNotExist) {
		return holt.Errorf(holt.Conflict, "the machine's initramfs %s has been removed, and a snapshot could not be restored without it", from).
			WithHint("stop and start the computer: it then has a copy of its own")
	}
	if err != nil {
		return fmt.Errorf("keep initramfs: %w", err)
	}
	return nil
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// linkOrCopy makes to a hard link of the immutable file from, replacing any
// file. On another disk or for another user's file it copies, durably.
func linkOrCopy(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if other, err := os.Lstat(to); err == nil && os.SameFile(st, other) {
		return nil
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW) == nil {
		return nil
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		os.Remove(to)
	}
	return err
}
