package workspace

import (
	"fmt"
	"math"
	"strings"

	"holt/internal/store/db"
)

// point reads the index as it was at a version, in one transaction: a row
// counts if it was born by then and has not died by then. What the index does
// not hold yet is later than any version that one may ask for.
type point struct {
	tx      *db.Tx
	version int64
}

// now is the version of the present.
const nowVersion = math.MaxInt64

// seen is true for a row of the past that a version sees.
const seen = "born <= ?1 AND died > ?1"

// in calls fn for the rows of a table, and of its past unless this is the
// present, that a condition on ?2 and on holds for.
func (p point) in(table, columns, where, order string, args []any, fn func(*db.Row) error) error {
	return p.from("", table, columns, "WHERE "+where, order, args, fn)
}

// from is in with something that the table is joined to.
func (p point) from(joined, table, columns, where, order string, args []any, fn func(*db.Row) error) error {
	sql := "SELECT " + columns + " FROM " + joined + table + " " + where + " AND born <= ?1"
	if p.version != nowVersion {
		sql += " UNION ALL SELECT " + columns + " FROM " + joined + "past_" + table + " " + where + " AND " + seen
	}
	return p.tx.Query(sql+order, append([]any{p.version}, args...), fn)
}

// inode returns an inode, or nil.
func (p point) inode(ino Ino) (in *inodeRow, err error) {
	err = p.in("inode", inodeRowColumns, "ino = ?2", "", []any{int64(ino)}, func(r *db.Row) error { in = scanInodeRow(r); return nil })
	return in, err
}

// bornColumn is where inodeRowColumns have it.
const bornColumn = 15

// scanInodeRow reads inodeRowColumns.
func scanInodeRow(r *db.Row) *inodeRow {
	n := func(i int) int64 { return r.Int64(i) }
	in := &inodeRow{node: node{ino: Ino(n(0)), mode: uint32(n(1)), uid: uint32(n(2)), gid: uint32(n(3)), nlink: uint32(n(4)), size: n(5),
		alloc: n(6), rdev: uint32(n(7)), atime: n(8), mtime: n(9), ctime: n(10), btime: n(11), writer: uint32(n(14)),
		born: uint32(n(bornColumn)), data: uint32(n(16))}, parent: Ino(n(12)), cookie: uint64(n(13))}
	if !r.Null(17) {
		in.target = string(r.Bytes(17))
	}
	return in
}

// lastCookie returns the last cookie that a directory had given out which is
// gone; 0 if it never was.
func (p point) lastCookie(ino Ino) (cookie int64, err error) {
	err = p.tx.Query("SELECT coalesce(max(cookie), 0) FROM (SELECT max(cookie) AS cookie FROM past_inode WHERE ino = ?1 UNION ALL SELECT max(cookie) FROM past_entry WHERE parent = ?1)", []any{int64(ino)}, func(r *db.Row) error { cookie = r.Int64(0); return nil })
	return cookie, err
}

// placedEntry is a name in a directory.
type placedEntry struct {
	parent Ino
	name   string
	ino    Ino
	cookie uint64
	born   uint32
	died   uint32 // 0: not yet
}

const entryColumns = "parent, name, ino, cookie, born"

func scanEntry(r *db.Row) placedEntry {
	return placedEntry{Ino(r.Int64(0)), string(r.Bytes(1)), Ino(r.Int64(2)), uint64(r.Int64(3)), uint32(r.Int64(4)), 0}
}

// each calls fn for the rows of entry and past_entry that fit.
func (p point) each(where, order string, args []any, fn func(placedEntry) error) error {
	return p.in("entry", entryColumns, where, order, args, func(r *db.Row) error { return fn(scanEntry(r)) })
}

// entry returns what a directory holds under a name; ino 0: nothing.
func (p point) entry(parent Ino, name string) (e placedEntry, err error) {
	err = p.each("parent = ?2 AND name = ?3", "", []any{int64(parent), []byte(name)}, func(x placedEntry) error { e = x; return nil })
	return e, err
}

// entries calls fn for the entries of a directory after a cookie, in order.
func (p point) entries(parent Ino, after uint64, fn func(placedEntry) error) error {
	return p.each("parent = ?2 AND cookie > ?3", " ORDER BY cookie", []any{int64(parent), int64(after)}, fn)
}

// entriesByName calls fn for the first entries of a directory after a name, in the
// order of names.
func (p point) entriesByName(parent Ino, after string, most int, fn func(placedEntry) error) error {
	return p.each("parent = ?2 AND name > ?3", " ORDER BY name LIMIT ?4", []any{int64(parent), []byte(after), most}, fn)
}

// names returns the names of an inode.
func (p point) names(ino Ino) (all []placedEntry, err error) {
	err = p.each("ino = ?2", "", []any{int64(ino)}, func(e placedEntry) error { all = append(all, e); return nil })
	return all, err
}

// dirPath returns the path of a directory; "" if it has none.
func (p point) dirPath(ino Ino) (path string, err error) {
	err = p.in("dir", "CAST(path AS BLOB)", "ino = ?2", "", []any{int64(ino)}, func(r *db.Row) error { path = string(r.Bytes(0)); return nil })
	return path, err
}

// path returns the path of an entry.
func (p point) path(e placedEntry) (string, error) {
	dir, err := p.dirPath(e.parent)
	if err == nil && dir == "" {
		err = fmt.Errorf("directory %d has no path at version %d", e.parent, p.version)
	}
	return strings.TrimSuffix(dir, "/") + "/" + e.name, err
}

// walk returns the entry at an absolute path (ino 0: none), following no links;
// that of "/" has only an inode.
func (p point) walk(path string) (placedEntry, error) {
	e := placedEntry{ino: Root}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		next, err := p.entry(e.ino, name)
		if err != nil || next.ino == 0 {
			return placedEntry{}, err
		}
		e = next
	}
	return e, nil
}

const extentColumns = "off, len, segment, place, whole, delta, born"

// scanExtent reads extentColumns from column i on.
func scanExtent(r *db.Row, i int) extent {
	n := func(k int) uint32 { return uint32(r.Int64(i + k)) }
	return extent{off: r.Int64(i), n: n(1), segment: n(2), place: n(3), whole: n(4), delta: n(5), born: n(6)}
}

// extents returns those of a file that overlap lo..hi, in order.
func (p point) extents(ino Ino, lo, hi int64) (all []extent, err error) {
	err = p.in("extent", extentColumns, "ino = ?2 AND off >= ?3 AND off < ?4", " ORDER BY off", []any{int64(ino), lo / windowSize * windowSize, hi}, func(r *db.Row) error {
		if e := scanExtent(r, 0); e.end() > lo {
			all = append(all, e)
		}
		return nil
	})
	return all, err
}

// xattrs returns an inode's extended attributes.
func (p point) xattrs(ino Ino) (map[string]string, error) {
	m := map[string]string{}
	err := p.in("xattr", "name, value", "ino = ?2", "", []any{int64(ino)}, func(r *db.Row) error { m[string(r.Bytes(0))] = string(r.Bytes(1)); return nil })
	return m, err
}

// nextExtent returns where the first extent of a file begins that ends after
// off.
func (p point) nextExtent(ino Ino, off int64) (at int64, ok bool, err error) {
	err = p.tx.Query("SELECT off FROM (SELECT off FROM (SELECT off FROM extent WHERE ino = ?2 AND off >= ?3 AND off + len > ?4 AND born <= ?1 ORDER BY off LIMIT 1)"+
		" UNION ALL SELECT off FROM (SELECT off FROM past_extent WHERE ino = ?2 AND off >= ?3 AND off + len > ?4 AND "+seen+" ORDER BY off LIMIT 1)) ORDER BY off LIMIT 1",
		[]any{p.version, int64(ino), off / windowSize * windowSize, off}, func(r *db.Row) error {
			at, ok = r.Int64(0), true
			return nil
		})
	return at, ok, err
}
