package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	archive "holt/internal/store/chunk"
	"holt/internal/store/db"
)

// A copy of the index in the archive is a part of this name and the ordinal
// of the first segment that it needs.
const indexPart = "index."

func parseIndexPart(name string) (needed uint32, ok bool) {
	number, ok := strings.CutPrefix(name, indexPart)
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), ok && err == nil
}

// copyIndex puts a copy of the committed index into the archive in place of
// older ones.
func (k *packer) copyIndex(ctx context.Context) error {
	temp := filepath.Join(k.t.dir, "index.copy")
	clean := func() { // also of what a crash left
		for _, suffix := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(temp + suffix)
		}
	}
	clean()
	defer clean()
	if err := k.t.index.db.Copy(temp); err != nil {
		return err
	}
	copied, err := db.Open(temp, schema, views)
	if err != nil {
		return err
	}
	var needed uint32
	err = copied.Read(ctx, func(tx *db.Tx) error { needed, err = neededBy(tx); return err })
	if err := errors.Join(err, copied.Close()); err != nil {
		return err
	}
	name := indexPart + strconv.FormatUint(uint64(needed), 10)
	if err := k.upload(ctx, temp, name); err != nil {
		return err
	}
	k.mu.Lock()
	k.floor = needed
	k.mu.Unlock()
	if err := k.t.fail("pack.indexed"); err != nil {
		return err
	}
	names, err := k.t.opt.Archive.Names(ctx, k.t.opt.Space)
	names = slices.DeleteFunc(names, func(n string) bool { return n == name || !strings.HasPrefix(n, indexPart) })
	if err != nil || len(names) == 0 {
		return err
	}
	return k.t.opt.Archive.Remove(ctx, k.t.opt.Space, names...)
}

// upload makes a file one part of the space.
func (k *packer) upload(ctx context.Context, path, part string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := k.t.opt.Archive.Create(k.t.opt.Space, part)
	defer w.Abort()
	buf := make([]byte, 1<<20)
	for off := int64(0); ; {
		n, err := f.Read(buf)
		if n == 0 {
			break
		}
		if err == nil {
			err = w.Append(ctx, off, buf[:n])
		}
		if err != nil {
			return err
		}
		off += int64(n)
	}
	_, err = w.Commit(ctx)
	return err
}

// restoreIndex puts the index aside and takes the archive's copy instead.
// What has happened since is in the journal. False: there is no copy.
func (t *Tree) restoreIndex() (bool, error) {
	if t.opt.Archive == nil {
		return false, nil
	}
	_ = t.indexSync.wait() // of an index that is no more
	t.indexSync = nil
	if err := t.index.close(); err != nil {
		return false, err
	}
	found, err := fetchIndex(t.dir, t.opt)
	if err != nil {
		return false, err
	}
	x, err := openIndex(t.dir)
	if err == nil {
		t.index = x
	}
	return found, err
}

// fetchIndex writes the archive's newest copy of the index in place of the one
// in dir, which is put aside.
func fetchIndex(dir string, opt Options) (bool, error) {
	if opt.Archive == nil {
		return false, nil
	}
	ctx := context.Background()
	parts, err := opt.Archive.Parts(ctx, opt.Space)
	if err != nil {
		return false, err
	}
	var newest archive.Part
	best := uint32(0)
	for _, p := range parts {
		if n, ok := parseIndexPart(p.Name); ok && n > best {
			newest, best = p, n
		}
	}
	if best == 0 {
		return false, nil
	}
	opt.Log.Warn("index is taken from its copy in the archive", "segment", best)
	temp := filepath.Join(dir, "index.copy")
	if err := fetch(ctx, opt, newest, temp); err != nil {
		return false, fmt.Errorf("fetch index: %w", err)
	}
	if err := putIndexAside(dir); err != nil {
		return false, err
	}
	return true, os.Rename(temp, filepath.Join(dir, "index.db"))
}

// fetch writes a part to a file.
func fetch(ctx context.Context, opt Options, part archive.Part, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < part.Bytes; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), part.Bytes-off)]
		if err := opt.Archive.ReadAt(ctx, opt.Space, part.Name, buf, off); err != nil {
			return err
		}
		if _, err := f.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return f.Sync()
}
