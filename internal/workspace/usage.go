package workspace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// Usage adds up a directory: first itself with everything below it, then its
// directories down to depth levels, in the order of their paths. Of a file
// only itself is returned.
func (w *Workspace) Usage(ctx context.Context, path string, depth int) ([]holt.Usage, error) {
	a, err := w.tree.Resolve(path, true)
	if err != nil {
		return nil, fileError("add up", path, err)
	}
	if !a.IsDir() {
		u := holt.Usage{Path: holt.OSString(path), Files: 1, Allocated: a.Blocks * 512}
		if a.IsRegular() {
			u.Bytes = a.Size
		}
		return []holt.Usage{u}, nil
	}
	if err := w.Flush(); err != nil {
		return nil, diskError("add up", err)
	}
	u := usage{sums: map[string]*holt.Usage{}, seen: map[int64]bool{}, depth: depth}
	if err := w.tree.index.db.Read(ctx, func(tx *db.Tx) error { return u.read(ctx, tx, a.Ino) }); err != nil {
		return nil, fmt.Errorf("add up %s: %w", path, err)
	}
	list := make([]holt.Usage, 0, len(u.sums))
	for dir, sum := range u.sums {
		sum.Path = holt.OSString(dir)
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b holt.Usage) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}

type usage struct {
	top   string // its path as table dir has it, "" for the root
	depth int
	sums  map[string]*holt.Usage // by path
	seen  map[int64]bool         // inodes with several names
}

// read goes over the index: one row for each entry of each directory.
func (u *usage) read(ctx context.Context, tx *db.Tx, top Ino) error {
	path, err := pathOf(tx, top)
	if err != nil {
		return err
	}
	u.top = strings.TrimSuffix(path, "/")
	u.sums[path] = &holt.Usage{Dirs: 1}
	// '0' follows '/': the range is everything below.
	return tx.Query(`SELECT CAST(d.path AS BLOB), i.ino, i.mode, i.nlink, i.size, i.alloc, CAST(e.name AS BLOB)
		FROM dir d JOIN entry e ON e.parent = d.ino JOIN inode i ON i.ino = e.ino
		WHERE d.ino = ?1 OR (d.path > ?2 AND d.path < ?3)`,
		[]any{int64(top), u.top + "/", u.top + "0"}, func(r *db.Row) error {
			u.add(string(r.Bytes(0)), r)
			return ctx.Err()
		})
}

// add counts one entry of a directory in all that hold it.
func (u *usage) add(dir string, r *db.Row) {
	mode := uint32(r.Int64(2))
	one := holt.Usage{Files: 1, Bytes: r.Int64(4), Allocated: r.Int64(5)}
	switch {
	case mode&syscall.S_IFMT == syscall.S_IFDIR:
		one = holt.Usage{Dirs: 1}
		u.sum(strings.TrimSuffix(dir, "/") + "/" + string(r.Bytes(6)))
	case mode&syscall.S_IFMT != syscall.S_IFREG:
		one.Bytes = 0
	case r.Int64(3) > 1:
		if u.seen[r.Int64(1)] {
			one.Bytes, one.Allocated = 0, 0
		}
		u.seen[r.Int64(1)] = true
	}
	if one.Dirs > 0 { // counts in itself too
		u.addTo(strings.TrimSuffix(dir, "/")+"/"+string(r.Bytes(6)), one)
		return
	}
	u.addTo(dir, one)
}

// sum returns the line of a directory, if it gets one.
func (u *usage) sum(dir string) *holt.Usage {
	if s := u.sums[dir]; s != nil {
		return s
	}
	if below := strings.Count(strings.TrimPrefix(dir, u.top), "/"); below > u.depth || dir == "/" {
		return nil
	}
	s := &holt.Usage{}
	u.sums[dir] = s
	return s
}

// addTo counts in a directory and all above it, up to the top.
func (u *usage) addTo(dir string, one holt.Usage) {
	for {
		if s := u.sum(dir); s != nil {
			s.Files, s.Dirs, s.Bytes, s.Allocated = s.Files+one.Files, s.Dirs+one.Dirs, s.Bytes+one.Bytes, s.Allocated+one.Allocated
		}
		if dir == "/" || dir == u.top {
			return
		}
		if dir = dir[:strings.LastIndexByte(dir, '/')]; dir == "" {
			dir = "/"
		}
	}
}
