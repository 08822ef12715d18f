package workspace

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"holt/internal/store/db"
)

// What is asked of many inodes is asked in sets: a statement costs some 20 µs
// before it finds its first row, which is several times what the row costs.

// setSize is how many inodes one statement is about.
const setSize = 500

// runSize is how many numbers in a row are asked for as a range, which costs
// what is there, and finds what is not there by one step instead of one each:
// files that were made together have such numbers, and mostly go together.
const runSize = 16

// sets calls fn with an SQL value that names up to setSize inodes at a time,
// in ascending order, so that neighbours are found on the same pages.
func sets(inos []Ino, fn func(set string) error) error {
	inos = slices.Clone(inos)
	slices.Sort(inos)
	for part := range slices.Chunk(slices.Compact(inos), setSize) {
		b := []byte{'['}
		for i, ino := range part {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(ino), 10)
		}
		if err := fn(string(append(b, ']'))); err != nil {
			return err
		}
	}
	return nil
}

// runs calls fn for each stretch of at least runSize numbers in a row, and
// returns the inodes that are in none.
func runs(inos []Ino, fn func(first, last Ino) error) (others []Ino, err error) {
	inos = slices.Clone(inos)
	slices.Sort(inos)
	inos = slices.Compact(inos)
	for len(inos) > 0 {
		n := 1
		for n < len(inos) && inos[n] == inos[n-1]+1 {
			n++
		}
		if n < runSize {
			others = append(others, inos[:n]...)
		} else if err := fn(inos[0], inos[n-1]); err != nil {
			return nil, err
		}
		inos = inos[n:]
	}
	return others, nil
}

// ofSet runs a query over a table and its past for each of a set of inodes.
func (p point) ofSet(inos []Ino, columns, table, key string, fn func(*db.Row) error) error {
	others, err := runs(inos, func(first, last Ino) error {
		return p.in(table, columns, key+" >= ?2 AND "+key+" <= ?3", "", []any{int64(first), int64(last)}, fn)
	})
	if err != nil {
		return err
	}
	return sets(others, func(set string) error {
		return p.from("(SELECT value AS this FROM json_each(?2)) CROSS JOIN ", table, columns, "ON "+key+" = this", "", []any{set}, fn)
	})
}

// inodesOf returns those inodes that are there.
func (p point) inodesOf(inos []Ino) (map[Ino]*inodeRow, error) {
	all := make(map[Ino]*inodeRow, len(inos))
	return all, p.ofSet(inos, inodeRowColumns, "inode", "ino", func(r *db.Row) error {
		in := scanInodeRow(r)
		all[in.ino] = in
		return nil
	})
}

// preload loads inodes into the cache, and returns those that are not there. The
// index, at p, must say what memory does.
func (t *memory) preload(p point, inos []Ino) (absent map[Ino]bool, err error) {
	absent = map[Ino]bool{}
	for _, ino := range inos {
		if t.inodes.m[ino] == nil {
			absent[ino] = true
		}
	}
	rows, err := p.inodesOf(slices.Collect(maps.Keys(absent)))
	for ino, row := range rows {
		delete(absent, ino)
		in := &inode{node: row.node, indexed: true}
		if in.isDir() {
			in.dir = newDir(row.parent, row.cookie, false)
		}
		if row.target != "" {
			in.extra = &extra{held: len(row.target), target: row.target}
			t.inodes.values += in.extra.held
		}
		t.inodes.add(in)
		in.touch()
	}
	return absent, err
}

// namesOf returns the names of inodes.
func (p point) namesOf(inos []Ino) (map[Ino][]placedEntry, error) {
	all := make(map[Ino][]placedEntry, len(inos))
	return all, p.ofSet(inos, entryColumns, "entry", "ino", func(r *db.Row) error {
		e := scanEntry(r)
		all[e.ino] = append(all[e.ino], e)
		return nil
	})
}

// entriesOf calls fn for the entries of directories, of each those after a cookie.
func (p point) entriesOf(after map[Ino]uint64, fn func(placedEntry) error) error {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(after)), setSize) {
		b := []byte{'{'}
		for i, ino := range part {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `"%d":%d`, ino, after[ino])
		}
		err := p.from("(SELECT CAST(key AS INTEGER) AS this, value AS last FROM json_each(?2)) CROSS JOIN ", "entry", entryColumns,
			"ON parent = this AND cookie > last", "", []any{string(append(b, '}'))}, func(r *db.Row) error { return fn(scanEntry(r)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// pathsOf returns the paths of directories.
func (p point) pathsOf(inos []Ino) (map[Ino]string, error) {
	all := make(map[Ino]string, len(inos))
	return all, p.ofSet(inos, "ino, CAST(path AS BLOB)", "dir", "ino", func(r *db.Row) error {
		all[Ino(r.Int64(0))] = string(r.Bytes(1))
		return nil
	})
}

// extentsOf returns all extents of inodes, by offset.
func (p point) extentsOf(inos []Ino) (map[Ino][]extent, error) {
	all := make(map[Ino][]extent, len(inos))
	err := p.ofSet(inos, "ino, "+extentColumns, "extent", "ino", func(r *db.Row) error {
		ino := Ino(r.Int64(0))
		all[ino] = append(all[ino], scanExtent(r, 1))
		return nil
	})
	for _, list := range all {
		slices.SortFunc(list, func(a, b extent) int { return int(a.off - b.off) })
	}
	return all, err
}
