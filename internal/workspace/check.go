package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"holt"
	"holt/internal/store/db"
	"holt/internal/store/journal"
)

// mostProblems bounds a report: a damaged disk damages everything.
const mostProblems = 100

// Check verifies the whole workspace against its invariants: link counts,
// sizes, extents, references, paths, the past, and the checksums of every byte
// that an extent refers to. It works on one state of the index, beside running
// operations. It returns an error only when it could not look; what it found
// wrong is in the report, at most 100 sentences.
func (w *Workspace) Check(ctx context.Context) (holt.CheckReport, error) {
	c := checker{ctx: ctx, tree: w.tree, report: holt.CheckReport{Problems: []string{}}}
	if err := w.Flush(); err != nil {
		return c.report, diskError("check workspace", err)
	}
	if err := w.tree.index.db.Read(ctx, c.check); err != nil {
		return c.report, fmt.Errorf("check workspace: %w", err)
	}
	return c.report, nil
}

// checker is the state of one check.
type checker struct {
	ctx    context.Context
	tree   *Tree
	tx     *db.Tx // the state that is looked at
	report holt.CheckReport
	buf    []byte
}

func (c *checker) full() bool { return len(c.report.Problems) >= mostProblems }

func (c *checker) problem(format string, args ...any) {
	if !c.full() {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

func (c *checker) check(tx *db.Tx) error {
	for _, sql := range invariants {
		if err := c.ctx.Err(); err != nil || c.full() {
			return err
		}
		err := tx.Query(sql, nil, func(r *db.Row) error {
			c.problem("%s", r.Text(0))
			return nil
		})
		if err != nil {
			return err
		}
	}
	for table, n := range map[string]*int64{"inode": &c.report.Inodes, "entry": &c.report.Entries, "extent": &c.report.Extents} {
		err := tx.Query("SELECT count(*) FROM "+table, nil, func(r *db.Row) error { *n = r.Int64(0); return nil })
		if err != nil {
			return err
		}
	}
	c.tx = tx
	const columns = "SELECT ino, off, len, segment, place, whole, delta FROM "
	return tx.Query(columns+"extent UNION ALL "+columns+"past_extent", nil, c.extent)
}

// extent verifies the bytes of one row.
func (c *checker) extent(r *db.Row) error {
	if err := c.ctx.Err(); err != nil || c.full() {
		return err
	}
	ino, off, n := r.Int64(0), r.Int64(1), r.Int64(2)
	data := journal.Data{Segment: uint32(r.Int64(3)), Off: r.Int64(4), Len: int(r.Int64(5))}
	delta := int(r.Int64(6))
	if n < 1 || n > windowSize || delta < 0 || delta+int(n) > data.Len {
		return nil // an invariant has named it
	}
	c.buf = slices.Grow(c.buf[:0], int(n))[:n]
	switch err := c.tree.readData(data, delta, c.buf); {
	case err == nil:
		c.report.Bytes += n
	case errors.Is(err, journal.ErrGone) && !c.still(r):
		// overwritten, and its segment collected, while we looked
	default:
		c.problem("bytes %d..%d of inode %d%s, in segment %s: %v", off, off+n, ino, c.path(Ino(ino)), c.segment(data.Segment), err)
	}
	return nil
}

// path returns a path of an inode, in brackets; "" if it has none now.
func (c *checker) path(ino Ino) string {
	p := point{c.tx, nowVersion}
	names, err := p.names(ino)
	if err != nil || len(names) == 0 {
		return ""
	}
	path, err := p.path(names[0])
	if err != nil {
		return ""
	}
	return " (" + path + ")"
}

// segment returns the name of a segment's file.
func (c *checker) segment(num uint32) string {
	name := fmt.Sprint(num, " of no name")
	err := c.tx.Query("SELECT lower(hex(id)) || '.seg' FROM segment WHERE num = ?1", []any{int64(num)}, func(r *db.Row) error { name = r.Text(0); return nil })
	if err != nil {
		return fmt.Sprint(num)
	}
	return name
}

// still tells whether the newest index has the same row.
func (c *checker) still(r *db.Row) bool {
	there := false
	err := c.tree.index.db.ReadNow(c.ctx, func(tx *db.Tx) error { // c.tx is of a reader that others wait for
		const same = "ino = ?1 AND off = ?2 AND segment = ?3 AND place = ?4 AND delta = ?5"
		return tx.Query("SELECT 1 FROM extent WHERE "+same+" UNION ALL SELECT 1 FROM past_extent WHERE "+same,
			[]any{r.Int64(0), r.Int64(1), r.Int64(3), r.Int64(4), r.Int64(6)},
			func(*db.Row) error { there = true; return nil })
	})
	return err != nil || there
}
