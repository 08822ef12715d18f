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

// initrdFor is the initramfs for a machine: the one that lies beside its image, if it goes
// on from one that has it.
func initrdFor(spec machine.Spec) string {
	if spec.Restore != "" {
		if own := filepath.Join(spec.Restore, machine.InitrdFile); isThere(own) {
			return own
		}
	}
	return spec.Initrd
}

// holdInitrd gives the machine an initramfs of its own: whoever made the other may remove
// it, and a machine that goes on from an image of this one needs it. It returns its path.
func (g *guest) holdInitrd() (string, error) {
	own := g.Dir.File(machine.InitrdFile)
	if err := linkOrCopy(initrdFor(g.spec), own); err != nil {
		return "", fmt.Errorf("keep initramfs of machine: %w", err)
	}
	return own, nil
}

// keepInitrd puts the machine's initramfs beside its image.
func (s *snapshot) keepInitrd() error {
	from := s.Dir.File(machine.InitrdFile)
	if !isThere(from) { // it was started by a program that did not hold it
		from = initrdFor(s.guest.spec)
	}
	err := linkOrCopy(from, filepath.Join(s.spec.Dir, machine.InitrdFile))
	if errors.Is(err, fs.ErrNotExist) {
		return holt.Errorf(holt.Conflict, "the initramfs %s that the machine was started with is gone: nothing could go on from an image of it", from).
			WithHint("stop the computer and start it: then it has one that stays")
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

// linkOrCopy makes a file that never changes another name, in place of what has that one.
// Where it lies on another disk or is another user's, it is copied, durably.
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
