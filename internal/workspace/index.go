package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// index reads the SQLite database: what the journal said up to a position.
// Its methods use one connection and run under Tree.mu, held exclusively.
type index struct {
	db    *db.DB
	conn  *db.Conn
	stmts map[string]*db.Stmt
}

func openIndex(dir string) (*index, error) {
	d, err := db.Open(filepath.Join(dir, "index.db"), schema, views)
	if err != nil {
		return nil, err
	}
	conn, err := d.Reader()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &index{d, conn, map[string]*db.Stmt{}}, nil
}

// mostBriefReads is how many [Tree.readBriefly] run at once.
const mostBriefReads = 8

// readBriefly runs fn in one read transaction of the index, for what looks at a few
// rows: kernels that look at checkpoints, the ends of runs. It waits for its like
// only, never for a check or a comparison.
func (t *Tree) readBriefly(ctx context.Context, fn func(*db.Tx) error) error {
	select {
	case t.briefReads <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-t.briefReads }()
	return t.index.db.ReadNow(ctx, fn)
}

func (x *index) close() error {
	if x.conn == nil {
		return nil
	}
	err := errors.Join(x.conn.Close(), x.db.Close())
	x.conn = nil
	return err
}

var errClosed = errors.New("workspace is closed")

// rows runs a query and calls fn for each row until it returns false.
func (x *index) rows(sql string, bind func(*db.Stmt), fn func(*db.Stmt) bool) error {
	if x.conn == nil {
		return errClosed
	}
	stmt := x.stmts[sql]
	if stmt == nil {
		var err error
		if stmt, err = x.conn.Prepare(sql); err != nil {
			return fmt.Errorf("read index: %w", err)
		}
		// Kept here, because asking the connection for it again clears the
		// bindings, and SQLite then compiles a join again: five times its cost.
		x.stmts[sql] = stmt
	}
	defer stmt.Reset()
	if bind != nil {
		bind(stmt)
	}
	for {
		more, err := stmt.Step()
		if err != nil {
			return fmt.Errorf("read index: %w", err)
		}
		if !more || !fn(stmt) {
			return nil
		}
	}
}

const inodeColumns = "i.ino, i.mode, i.uid, i.gid, i.nlink, i.size, i.alloc, i.rdev, i.atime, i.mtime, i.ctime, i.btime, i.target, i.parent, i.cookie, i.writer, i.born, i.data"

// scanInode reads inodeColumns from column c on.
func scanInode(s *db.Stmt, c int) *inode {
	in := &inode{indexed: true}
	in.node = node{ino: Ino(s.ColumnInt64(c)), mode: uint32(s.ColumnInt64(c + 1)), uid: uint32(s.ColumnInt64(c + 2)),
		gid: uint32(s.ColumnInt64(c + 3)), nlink: uint32(s.ColumnInt64(c + 4)), size: s.ColumnInt64(c + 5),
		alloc: s.ColumnInt64(c + 6), rdev: uint32(s.ColumnInt64(c + 7)), atime: s.ColumnInt64(c + 8),
		mtime: s.ColumnInt64(c + 9), ctime: s.ColumnInt64(c + 10), btime: s.ColumnInt64(c + 11),
		writer: uint32(s.ColumnInt64(c + 15)), born: uint32(s.ColumnInt64(c + 16)), data: uint32(s.ColumnInt64(c + 17))}
	if in.isDir() {
		in.dir = newDir(Ino(s.ColumnInt64(c+13)), uint64(s.ColumnInt64(c+14)), false)
	}
	if n := s.ColumnLen(c + 12); n > 0 {
		in.extra = &extra{held: n, target: columnString(s, c+12)}
	}
	return in
}

// columnString returns a BLOB or TEXT column, whatever its bytes.
func columnString(s *db.Stmt, c int) string { return string(columnBytes(s, c)) }

func columnBytes(s *db.Stmt, c int) []byte {
	b := make([]byte, s.ColumnLen(c))
	s.ColumnBytes(c, b)
	return b
}

// inode returns a row, or nil.
func (x *index) inode(ino Ino) (in *inode, err error) {
	err = x.rows("SELECT "+inodeColumns+" FROM inode i WHERE i.ino = ?1",
		func(s *db.Stmt) { s.BindInt64(1, int64(ino)) },
		func(s *db.Stmt) bool { in = scanInode(s, 0); return false })
	return in, err
}

// anyInode tells whether one of a set of inodes has a row.
func (x *index) anyInode(set string) (yes bool, err error) {
	err = x.rows("SELECT 1 FROM json_each(?1) CROSS JOIN inode ON ino = value LIMIT 1",
		func(s *db.Stmt) { s.BindText(1, set) },
		func(*db.Stmt) bool { yes = true; return false })
	return yes, err
}

// scanDentry reads ino, cookie, born, mode from column c on.
func scanDentry(s *db.Stmt, c int) dentry {
	return dentry{ino: Ino(s.ColumnInt64(c)), cookie: uint64(s.ColumnInt64(c + 1)), born: uint32(s.ColumnInt64(c + 2)), indexed: true,
		kind: uint8(s.ColumnInt64(c+3) >> 12)}
}

// entry returns a row; ino 0 if there is none.
func (x *index) entry(parent Ino, name string) (e dentry, err error) {
	err = x.rows("SELECT e.ino, e.cookie, e.born, i.mode FROM entry e JOIN inode i ON i.ino = e.ino WHERE e.parent = ?1 AND e.name = ?2",
		func(s *db.Stmt) { s.BindInt64(1, int64(parent)); s.BindBytes(2, []byte(name)) },
		func(s *db.Stmt) bool { e = scanDentry(s, 0); return false })
	return e, err
}

// nameLength returns the length of a directory's name, bytes.
func (x *index) nameLength(ino Ino) (n int, err error) {
	err = x.rows("SELECT length(name) FROM entry WHERE ino = ?1",
		func(s *db.Stmt) { s.BindInt64(1, int64(ino)) },
		func(s *db.Stmt) bool { n = int(s.ColumnInt64(0)); return false })
	return n, err
}

// longestPath returns the length of the longest path of a directory, bytes.
func (x *index) longestPath() (n int, err error) {
	err = x.rows("SELECT max(length(CAST(path AS BLOB))) FROM dir", nil,
		func(s *db.Stmt) bool { n = int(s.ColumnInt64(0)); return false })
	return n, err
}

// entries calls fn for the rows of a directory after cookie, in order.
func (x *index) entries(parent Ino, cookie uint64, fn func(name string, e dentry) bool) error {
	return x.rows("SELECT e.ino, e.cookie, e.born, i.mode, e.name FROM entry e INDEXED BY entry_cookie JOIN inode i ON i.ino = e.ino WHERE e.parent = ?1 AND e.cookie > ?2 ORDER BY e.cookie",
		func(s *db.Stmt) { s.BindInt64(1, int64(parent)); s.BindInt64(2, int64(cookie)) },
		func(s *db.Stmt) bool { return fn(columnString(s, 4), scanDentry(s, 0)) })
}

// entriesByName calls fn for the rows of a directory after a name, in the order of
// names.
func (x *index) entriesByName(parent Ino, after string, fn func(name string, e dentry) bool) error {
	return x.rows("SELECT e.ino, e.cookie, e.born, i.mode, e.name FROM entry e JOIN inode i ON i.ino = e.ino WHERE e.parent = ?1 AND e.name > ?2 ORDER BY e.name",
		func(s *db.Stmt) { s.BindInt64(1, int64(parent)); s.BindBytes(2, []byte(after)) },
		func(s *db.Stmt) bool { return fn(columnString(s, 4), scanDentry(s, 0)) })
}

// extents calls fn for the rows of a file that begin in lo..hi, in order.
func (x *index) extents(ino Ino, lo, hi int64, fn func(extent) bool) error {
	return x.rows("SELECT off, len, segment, place, whole, delta, born FROM extent WHERE ino = ?1 AND off >= ?2 AND off < ?3 ORDER BY off",
		func(s *db.Stmt) { s.BindInt64(1, int64(ino)); s.BindInt64(2, lo); s.BindInt64(3, hi) },
		func(s *db.Stmt) bool {
			return fn(extent{off: s.ColumnInt64(0), n: uint32(s.ColumnInt64(1)), segment: uint32(s.ColumnInt64(2)),
				place: uint32(s.ColumnInt64(3)), whole: uint32(s.ColumnInt64(4)), delta: uint32(s.ColumnInt64(5)), born: uint32(s.ColumnInt64(6))})
		})
}

// nthExtent returns where the nth row (from 0) of those that begin in lo..hi
// begins, counted from the end with back.
func (x *index) nthExtent(ino Ino, lo, hi int64, n int, back bool) (off int64, ok bool, err error) {
	sql := "SELECT off FROM extent WHERE ino = ?1 AND off >= ?2 AND off < ?3 ORDER BY off LIMIT 1 OFFSET ?4"
	if back {
		sql = "SELECT off FROM extent WHERE ino = ?1 AND off >= ?2 AND off < ?3 ORDER BY off DESC LIMIT 1 OFFSET ?4"
	}
	err = x.rows(sql,
		func(s *db.Stmt) {
			for i, v := range []int64{int64(ino), lo, hi, int64(n)} {
				s.BindInt64(i+1, v)
			}
		},
		func(s *db.Stmt) bool { off, ok = s.ColumnInt64(0), true; return false })
	return off, ok, err
}

// xattrs returns all of an inode's.
func (x *index) xattrs(ino Ino) (map[string]xattr, error) {
	m := map[string]xattr{}
	err := x.rows("SELECT name, value, born FROM xattr WHERE ino = ?1",
		func(s *db.Stmt) { s.BindInt64(1, int64(ino)) },
		func(s *db.Stmt) bool {
			m[columnString(s, 0)] = xattr{value: columnBytes(s, 1), born: uint32(s.ColumnInt64(2))}
			return true
		})
	return m, err
}

// orphans returns the inodes without a name.
func (x *index) orphans() (map[Ino]struct{}, error) {
	m := map[Ino]struct{}{}
	err := x.rows("SELECT ino FROM orphan", nil,
		func(s *db.Stmt) bool { m[Ino(s.ColumnInt64(0))] = struct{}{}; return true })
	return m, err
}

// writer returns the id of w, or 0.
func (x *index) writer(w Writer) (id uint32, err error) {
	err = x.rows("SELECT id FROM writer WHERE kind = ?1 AND name = ?2 AND run = ?3 AND terminal = ?4 AND token = ?5",
		func(s *db.Stmt) {
			for i, v := range []string{w.Kind, w.Name, w.Run, w.Terminal, w.Token} {
				s.BindText(i+1, v)
			}
		},
		func(s *db.Stmt) bool { id = uint32(s.ColumnInt64(0)); return false })
	return id, err
}

// versions returns the versions of a generation by writer.
func (x *index) versions(generation uint64) (map[uint32]uint32, error) {
	m := map[uint32]uint32{}
	err := x.rows("SELECT writer, id FROM version WHERE generation = ?1 ORDER BY id",
		func(s *db.Stmt) { s.BindInt64(1, int64(generation)) },
		func(s *db.Stmt) bool { m[uint32(s.ColumnInt64(0))] = uint32(s.ColumnInt64(1)); return true })
	return m, err
}

// epochs returns the open epochs.
func (x *index) epochs() (map[Epoch]*epoch, error) {
	m := map[Epoch]*epoch{}
	err := x.rows("SELECT num, id, kind, request, reply FROM epoch", nil, func(s *db.Stmt) bool {
		e := newEpoch(Epoch(s.ColumnInt64(0)), columnBytes(s, 1), MountKind(s.ColumnText(2)))
		e.request, e.reply = columnBytes(s, 3), columnBytes(s, 4)
		m[e.number] = e
		return true
	})
	return m, err
}

// segmentID returns the id that the index knows for a segment.
func (x *index) segmentID(num uint32) (id journal.ID, ok bool, err error) {
	err = x.rows("SELECT id FROM segment WHERE num = ?1",
		func(s *db.Stmt) { s.BindInt64(1, int64(num)) },
		func(s *db.Stmt) bool { ok = s.ColumnBytes(0, id[:]) == len(id); return false })
	return id, ok, err
}

// counters are the numbers of table meta.
type counters struct {
	Applied     uint64 // journal.Pos: records before it are in the rows
	Last        uint64 // journal.Pos of the record that ends at Applied; 0: none
	Replies     uint64 // journal.Pos of the oldest record whose reply may be asked for again
	NextIno     uint64
	NextWriter  uint64
	NextEpoch   uint64
	Generation  uint64
	Version     uint64 // the last one given out
	Changed     uint64 // the last one in which something changed that can be seen
	Sealed      uint64 // the last one of the generation that was closed last
	Head        uint64 // the checkpoint that the present descends from; 0: none
	NextCheck   uint64 // checkpoint
	NextAdopted uint64 // ordinal of the next segment that was never in the journal; 0: there was none
	Stale       uint64 // 1 + the last version from before changes that a mount's kernel was not notified of; see Unnotified. 0: it knows of all
	Interleaved uint64 // rows of the past of the generation that is open; see mostTurns
	Inodes      uint64
	Files       uint64
	Dirs        uint64
	Bytes       uint64
	Allocated   uint64
}

// fields names the counters as table meta does.
func (c *counters) fields() map[string]*uint64 {
	return map[string]*uint64{"applied": &c.Applied, "last": &c.Last, "replies": &c.Replies, "next_ino": &c.NextIno,
		"next_writer": &c.NextWriter, "next_epoch": &c.NextEpoch, "generation": &c.Generation, "version": &c.Version,
		"changed": &c.Changed, "sealed": &c.Sealed, "head": &c.Head, "next_checkpoint": &c.NextCheck, "next_adopted": &c.NextAdopted, "stale": &c.Stale, "turns": &c.Interleaved,
		"inodes": &c.Inodes, "files": &c.Files, "dirs": &c.Dirs, "bytes": &c.Bytes, "allocated": &c.Allocated}
}

func (x *index) counters() (counters, error) {
	c := counters{NextIno: uint64(Root), NextWriter: 1, NextEpoch: 1, Generation: 1, NextCheck: 1}
	fields := c.fields()
	err := x.rows("SELECT key, value FROM meta", nil, func(s *db.Stmt) bool {
		if p := fields[s.ColumnText(0)]; p != nil {
			*p = uint64(s.ColumnInt64(1))
		}
		return true
	})
	return c, err
}

// wipe empties every table, for a rebuild from the journal.
func (x *index) wipe() error {
	return x.db.Write(context.Background(), func(tx *db.Tx) error {
		for _, table := range []string{"meta", "writer", "version", "segment", "epoch", "inode", "orphan", "entry", "extent", "xattr", "dir",
			"checkpoint", "lineage", "twin", "merged", "past_inode", "past_entry", "past_extent", "past_xattr", "past_dir"} {
			if err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		return nil
	})
}
