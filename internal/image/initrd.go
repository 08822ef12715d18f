package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"holt"
)

// initrdFormat is part of the digest of every initramfs. It is incremented when
// writeInitrd changes.
const initrdFormat = "1"

// unusedInitrd is how long an unused initramfs is kept. Each guest binary has its
// own. Machines and snapshots keep their own links.
const unusedInitrd = 14 * 24 * time.Hour

// writeInitrd writes the initramfs: the guest binary as /init, the modules
// under /m with numbers in load order, and the directories and device node that
// /init needs.
func writeInitrd(w io.Writer, guest []byte, modules fs.FS, order []string) error {
	c := &cpioWriter{w: w}
	for _, dir := range []string{"dev", "proc", "sys", "run", "m", "new"} {
		c.add(dir, cpioDir|0o755, nil, 0, 0)
	}
	c.add("dev/console", cpioChar|0o600, nil, 5, 1)
	c.add("init", cpioFile|0o755, guest, 0, 0)
	for i, name := range order {
		data, err := fs.ReadFile(modules, name)
		if err != nil {
			return fmt.Errorf("read kernel module: %w", err)
		}
		c.add(fmt.Sprintf("m/%02d-%s", i, path.Base(name)), cpioFile|0o644, data, 0, 0)
	}
	return c.close()
}

// initrd returns the path of the initramfs of a root with the store's guest
// binary. It writes the file if it is absent.
func (s *Store) initrd(rec record) (string, error) {
	if len(s.opt.GuestBinary) == 0 {
		return "", holt.Errorf(holt.Internal, "no guest binary to make an initramfs from")
	}
	dir := filepath.Join(s.dir, "initrds")
	name := filepath.Join(dir, s.initrdName(rec))
	now := time.Now()
	if err := os.Chtimes(name, now, now); err == nil { // records the use
		return name, nil
	}
	sweepInitrds(dir, now)
	var b bytes.Buffer
	if err := writeInitrd(&b, s.opt.GuestBinary, os.DirFS(filepath.Join(s.rootDir(rec.Digest), kernelModules)), rec.BootModules); err != nil {
		return "", err
	}
	if err := writeWhole(name, b.Bytes()); err != nil {
		return "", noSpace(err, s.dir)
	}
	return name, nil
}

// initrdName returns the file name of the initramfs.
func (s *Store) initrdName(rec record) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "initrd %s\x00%s\x00%q\x00", initrdFormat, rec.Kernel, rec.BootModules)
	guest := s.guest()
	sum.Write(guest[:])
	return hex.EncodeToString(sum.Sum(nil)) + ".cpio"
}

func sweepInitrds(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // absent: nothing to sweep
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > unusedInitrd {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
