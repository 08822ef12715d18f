package workspace

import (
	"fmt"
	"strings"

	"holt/internal/store/db"
)

// write puts rows and position into one transaction.
func (r *rows) write(tx *db.Tx) error {
	for _, step := range []func(*db.Tx) error{
		r.writeNames, r.writeExtents, r.writeXattrs, r.writeFreed, r.writeInodes, r.writeEntries, r.writePast, r.writeDirs, r.writeCheckpoints, r.writeLineage, r.writeMeta,
	} {
		if err := step(tx); err != nil {
			return fmt.Errorf("write index: %w", err)
		}
	}
	return nil
}

// stmt is a prepared statement that is run many times.
type stmt struct{ *db.Stmt }

func prepare(tx *db.Tx, sql string) (stmt, error) {
	s, err := tx.Prepare(sql)
	return stmt{s}, err
}

// ints binds integers from parameter at on.
func (s stmt) ints(at int, values ...int64) {
	for i, v := range values {
		s.BindInt64(at+i, v)
	}
}

func (s stmt) run() error {
	if _, err := s.Step(); err != nil {
		return err
	}
	return s.Reset()
}

// inodeRowColumns are the columns that stmt.inode binds.
const inodeRowColumns = "ino, mode, uid, gid, nlink, size, alloc, rdev, atime, mtime, ctime, btime, parent, cookie, writer, born, data, target"

// inode binds the columns of an inode and returns the next parameter.
func (s stmt) inode(in *inodeRow) int {
	s.ints(1, int64(in.ino), int64(in.mode), int64(in.uid), int64(in.gid), int64(in.nlink), in.size, in.alloc, int64(in.rdev),
		in.atime, in.mtime, in.ctime, in.btime, int64(in.parent), int64(in.cookie), int64(in.writer), int64(in.born), int64(in.data))
	if in.target == "" {
		s.BindNull(18)
	} else {
		s.BindBytes(18, []byte(in.target))
	}
	return 19
}

func (r *rows) writeNames(tx *db.Tx) error {
	for _, w := range r.batch.writers {
		if err := tx.Exec("INSERT OR REPLACE INTO writer VALUES (?, ?, ?, ?, ?, ?)", int64(w.id), w.Kind, w.Name, w.Run, w.Terminal, w.Token); err != nil {
			return err
		}
	}
	for _, v := range r.batch.versions {
		if err := tx.Exec("INSERT OR REPLACE INTO version VALUES (?, ?, ?)", int64(v.id), int64(v.generation), int64(v.writer)); err != nil {
			return err
		}
	}
	for _, e := range r.epochs { // all first: an id may have ended and begun again
		if err := tx.Exec("DELETE FROM epoch WHERE num = ?", int64(e.number)); err != nil {
			return err
		}
	}
	for _, e := range r.epochs {
		if !e.open {
			continue
		}
		if err := tx.Exec("INSERT INTO epoch VALUES (?, ?, ?, ?, ?)", int64(e.number), e.id[:], string(e.kind), e.request, e.reply); err != nil {
			return err
		}
	}
	for _, s := range append(r.segments, r.batch.adopted...) {
		if err := tx.Exec("INSERT OR REPLACE INTO segment VALUES (?, ?)", int64(s.Ordinal), s.ID[:]); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) writeInodes(tx *db.Tx) error {
	s, err := prepare(tx, "INSERT INTO inode("+inodeRowColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"+
		" ON CONFLICT DO UPDATE SET mode = excluded.mode, uid = excluded.uid, gid = excluded.gid, nlink = excluded.nlink, size = excluded.size, alloc = excluded.alloc,"+
		" atime = excluded.atime, mtime = excluded.mtime, ctime = excluded.ctime, parent = excluded.parent, cookie = excluded.cookie, writer = excluded.writer, born = excluded.born, data = excluded.data")
	if err != nil {
		return err
	}
	for i := range r.inodes {
		in := &r.inodes[i]
		s.inode(in)
		if err := s.run(); err != nil {
			return err
		}
		if in.nlink > 0 {
			continue
		}
		if err := tx.Exec("INSERT OR IGNORE INTO orphan VALUES (?)", int64(in.ino)); err != nil {
			return err
		}
	}
	for _, ino := range r.batch.named {
		if err := tx.Exec("DELETE FROM orphan WHERE ino = ?1 AND NOT EXISTS (SELECT 1 FROM inode WHERE ino = ?1 AND nlink = 0)", int64(ino)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) writeEntries(tx *db.Tx) error {
	del, err := prepare(tx, "DELETE FROM entry WHERE parent = ? AND name = ?")
	if err != nil {
		return err
	}
	put, err := prepare(tx, "INSERT OR REPLACE INTO entry(parent, name, ino, cookie, born) VALUES (?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for i := range r.entries {
		e := &r.entries[i]
		s := put
		if e.ino == 0 {
			s = del
		}
		s.BindInt64(1, int64(e.parent))
		s.BindBytes(2, []byte(e.name))
		if e.ino != 0 {
			s.ints(3, int64(e.ino), int64(e.cookie), int64(e.born))
		}
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) writeExtents(tx *db.Tx) error {
	del, err := prepare(tx, "DELETE FROM extent WHERE ino = ? AND off = ?")
	if err != nil {
		return err
	}
	put, err := prepare(tx, "INSERT OR REPLACE INTO extent(ino, off, len, segment, place, whole, delta, born) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	for i := range r.extents {
		e := &r.extents[i]
		s := put
		if e.n == 0 {
			s = del
			s.ints(1, int64(e.ino), e.off)
		} else {
			s.ints(1, int64(e.ino), e.off, int64(e.n), int64(e.segment), int64(e.place), int64(e.whole), int64(e.delta), int64(e.born))
		}
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rows) writeXattrs(tx *db.Tx) error {
	for _, x := range r.xattrs {
		var err error
		if x.gone {
			err = tx.Exec("DELETE FROM xattr WHERE ino = ? AND name = ?", int64(x.ino), []byte(x.name))
		} else {
			err = tx.Exec("INSERT OR REPLACE INTO xattr(ino, name, value, born) VALUES (?, ?, ?, ?)", int64(x.ino), []byte(x.name), x.value, int64(x.born))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asidePath begins the path of a directory that has no place for the snapshot: no
// name holds a NUL.
const asidePath = "\x00"

// writeDirs keeps the paths of directories, step by step.
func (r *rows) writeDirs(tx *db.Tx) error {
	for _, m := range r.batch.dirs {
		var err error
		switch {
		case m.aside:
			err = movePath(tx, m.ino, fmt.Sprint(asidePath, m.ino), m.version)
		case m.parent == 0:
			if err = pastPaths(tx, "ino = ?2", m.version, int64(m.ino)); err == nil {
				err = tx.Exec("DELETE FROM dir WHERE ino = ?", int64(m.ino))
			}
		case m.ino == Root:
			err = tx.Exec("INSERT OR REPLACE INTO dir(ino, path, born) VALUES (?, '/', ?)", int64(Root), int64(m.version))
		default:
			var path string
			if path, err = pathOf(tx, m.parent); err == nil {
				err = movePath(tx, m.ino, strings.TrimSuffix(path, "/")+"/"+m.name, m.version)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func pathOf(tx *db.Tx, ino Ino) (path string, err error) {
	found := false
	err = tx.Query("SELECT CAST(path AS BLOB) FROM dir WHERE ino = ?", []any{int64(ino)}, func(row *db.Row) error {
		path, found = string(row.Bytes(0)), true
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("directory %d has no path", ino)
	}
	return path, err
}

// pastPaths moves the paths of some directories to the past that they have lost
// in a version; ?1 is the version. A path aside is in no version.
func pastPaths(tx *db.Tx, which string, version uint32, args ...any) error {
	return tx.Exec("INSERT OR REPLACE INTO past_dir(ino, path, born, died) SELECT ino, path, born, ?1 FROM dir WHERE born < ?1 AND "+which,
		append([]any{int64(version)}, args...)...)
}

// movePath sets a directory's path and moves those below it along.
func movePath(tx *db.Tx, ino Ino, path string, version uint32) error {
	old := ""
	err := tx.Query("SELECT CAST(path AS BLOB) FROM dir WHERE ino = ?", []any{int64(ino)}, func(row *db.Row) error {
		old = string(row.Bytes(0))
		return nil
	})
	if err != nil {
		return err
	}
	if old != "" {
		// '0' follows '/': the range is everything below old.
		if err := pastPaths(tx, "(ino = ?2 OR path > ?3 AND path < ?4)", version, int64(ino), old+"/", old+"0"); err != nil {
			return err
		}
		err := tx.Exec("UPDATE dir SET path = CAST(CAST(?1 AS BLOB) || substr(CAST(path AS BLOB), ?2) AS TEXT), born = max(born, ?5) WHERE path > ?3 AND path < ?4",
			[]byte(path), int64(len(old)+1), old+"/", old+"0", int64(version))
		if err != nil {
			return err
		}
	}
	return tx.Exec("INSERT INTO dir(ino, path, born) VALUES (?1, ?2, ?3) ON CONFLICT(ino) DO UPDATE SET path = ?2, born = max(born, ?3)", int64(ino), path, int64(version))
}

func (r *rows) writeMeta(tx *db.Tx) error {
	s, err := prepare(tx, "INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)")
	if err != nil {
		return err
	}
	for key, v := range r.count.fields() {
		s.BindText(1, key)
		s.BindInt64(2, int64(*v))
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}
