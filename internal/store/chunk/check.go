package chunk

import (
	"context"
	"errors"
	"fmt"

	"holt"
	"holt/internal/store/db"
)

// Usage is how much an archive holds. Sizes are bytes.
type Usage struct {
	Spaces, Parts, Chunks, Packs int64

	Referred int64 // by all parts together
	Content  int64 // of the chunks that parts refer to
	Live     int64 // of those chunks as stored in packs
	Stored   int64 // of all packs
}

// Usage counts what the archive holds.
func (a *Archive) Usage(ctx context.Context) (u Usage, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT (SELECT COUNT(*) FROM space WHERE NOT gone), (SELECT COUNT(*) FROM part), (SELECT COUNT(*) FROM chunk), (SELECT COUNT(*) FROM pack),"+
			" (SELECT COALESCE(SUM(len), 0) FROM part JOIN piece ON piece.manifest = part.manifest),"+
			" (SELECT COALESCE(SUM(length), 0) FROM chunk WHERE EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.n)),"+
			" (SELECT COALESCE(SUM(stored), 0) FROM chunk WHERE EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.n)),"+
			" (SELECT COALESCE(SUM(size), 0) FROM pack)", nil, func(r *db.Row) error {
			for i, p := range []*int64{&u.Spaces, &u.Parts, &u.Chunks, &u.Packs, &u.Referred, &u.Content, &u.Live, &u.Stored} {
				*p = r.Int64(i)
			}
			return nil
		})
	})
	return u, err
}

// SpaceUsage is how much one space holds. Sizes are bytes.
type SpaceUsage struct {
	Bytes  int64 // of content, of all parts together
	Stored int64 // of the chunks of the parts, including chunks shared with other spaces
}

// SpaceUsage returns the usage of a space, zero if it does not exist.
func (a *Archive) SpaceUsage(ctx context.Context, space string) (u SpaceUsage, err error) {
	const pieces = " FROM space JOIN part ON part.space = space.n JOIN piece ON piece.manifest = part.manifest WHERE space.name = ?1"
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT (SELECT COALESCE(SUM(len), 0)"+pieces+"),"+
			" (SELECT COALESCE(SUM(stored), 0) FROM chunk WHERE n IN (SELECT piece.chunk"+pieces+"))", []any{space}, func(r *db.Row) error {
			u = SpaceUsage{r.Int64(0), r.Int64(1)}
			return nil
		})
	})
	return u, err
}

// Spaces lists the names of all spaces.
func (a *Archive) Spaces(ctx context.Context) (names []string, err error) {
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT name FROM space WHERE NOT gone ORDER BY name", nil, func(r *db.Row) error {
			names = append(names, r.Text(0))
			return nil
		})
	})
	return names, err
}

// Report is the result of a check. The archive is intact if Problems is empty.
type Report struct {
	Chunks   int64 // read and verified
	Bytes    int64 // of their content
	Problems []string
}

// Check compares the index with the store and reports differences. With content
// it also reads and verifies every chunk in use. A space other than "" limits
// the check to the chunks of that space. Changes may run at the same time. The
// error says why the check could not complete.
func (a *Archive) Check(ctx context.Context, space string, content bool) (r Report, err error) {
	c := checking{a: a, space: space}
	err = a.index.Read(ctx, c.look)
	for _, o := range c.objects {
		if err == nil {
			err = c.object(ctx, o)
		}
		if pack, ok := parsePack(o.Name); ok && content && err == nil {
			err = c.pack(ctx, pack)
		}
	}
	if err != nil {
		return r, errors.Join(fmt.Errorf("check archive: %w", err), ctx.Err())
	}
	return c.Report, nil
}

// checking is the state of one check.
type checking struct {
	Report
	a       *Archive
	space   string
	objects []Object // that must be in the store; size -1: any size
}

func (c *checking) problem(format string, args ...any) {
	c.Problems = append(c.Problems, "archive: "+fmt.Sprintf(format, args...))
}

// needed is the SQL condition that a part of space ?1 (any space if "") refers to a chunk.
const needed = "EXISTS (SELECT 1 FROM piece JOIN part ON part.manifest = piece.manifest JOIN space ON space.n = part.space" +
	" WHERE piece.chunk = chunk.n AND ?1 IN ('', space.name))"

// look checks that the index is consistent, and collects the objects that must be in the store.
func (c *checking) look(tx *db.Tx) error {
	for _, q := range []struct{ sql, what string }{
		{"SELECT COUNT(*) FROM piece LEFT JOIN chunk ON chunk.n = piece.chunk WHERE chunk.n IS NULL OR delta + len > length", "pieces lie outside of their chunks"},
		{"SELECT COUNT(*) FROM chunk LEFT JOIN pack ON pack.n = chunk.pack WHERE pack.n IS NULL OR off + stored > size", "chunks lie outside of their packs"},
		{"SELECT COUNT(*) FROM part LEFT JOIN manifest ON manifest.n = part.manifest WHERE manifest.n IS NULL", "parts have no manifest"},
	} {
		err := tx.Query(q.sql, nil, func(r *db.Row) error {
			if n := r.Int64(0); n > 0 {
				c.problem("%d %s", n, q.what)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := c.lookLost(tx); err != nil {
		return err
	}
	err := tx.Query("SELECT id, size FROM pack WHERE ?1 = '' OR EXISTS (SELECT 1 FROM chunk WHERE chunk.pack = pack.n AND "+needed+") ORDER BY n", []any{c.space}, func(r *db.Row) error {
		c.objects = append(c.objects, Object{PackID(r.Bytes(0)).object(), r.Int64(1)})
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Query("SELECT DISTINCT manifest.id FROM space JOIN part ON part.space = space.n JOIN manifest ON manifest.n = part.manifest"+
		" WHERE ?1 IN ('', space.name) AND lost <> -1", []any{c.space}, func(r *db.Row) error {
		c.objects = append(c.objects, Object{ManifestID(r.Bytes(0)).object(), -1})
		return nil
	})
}

// pack verifies the chunks in use of a pack.
func (c *checking) pack(ctx context.Context, id PackID) error {
	var places []place
	err := c.a.index.Read(ctx, func(tx *db.Tx) error {
		return tx.Query("SELECT chunk.id, chunk.off, stored, length, sum, pack.id FROM pack JOIN chunk ON chunk.pack = pack.n WHERE pack.id = ?2 AND "+needed+
			" ORDER BY chunk.off", []any{c.space, id[:]}, func(r *db.Row) error {
			places = append(places, placeOf(r, 0))
			return nil
		})
	})
	for _, p := range places {
		if err == nil {
			err = c.chunk(ctx, p)
		}
	}
	return err
}

// object checks that the store has an object. A missing object is no problem if
// a change has removed it from the index since.
func (c *checking) object(ctx context.Context, o Object) error {
	size, err := c.a.store.Stat(ctx, o.Name)
	if code := holt.CodeOf(err); code != "" && code != holt.NotFound {
		return err
	}
	if err == nil && (o.Size < 0 || size == o.Size) {
		return nil
	}
	wanted := false
	lost := c.a.index.Read(ctx, func(tx *db.Tx) error {
		id, _ := parsePack(o.Name)
		m, _ := parseManifest(o.Name)
		return tx.Query("SELECT 1 FROM pack WHERE id = ?1 UNION ALL SELECT 1 FROM manifest WHERE id = ?2", []any{id[:], m[:]},
			func(*db.Row) error { wanted = true; return nil })
	})
	if lost != nil || !wanted {
		return lost
	}
	if err != nil {
		c.problem("%s is missing from the store", o.Name)
	} else {
		c.problem("%s has %d bytes in the index and %d in the store", o.Name, o.Size, size)
	}
	return nil
}

// chunk verifies one chunk at its current place.
func (c *checking) chunk(ctx context.Context, p place) error {
	b, err := c.a.load(ctx, p)
	if holt.CodeOf(err) == holt.NotFound {
		again, ok, lost := c.a.locate(ctx, p.id)
		if lost != nil || !ok { // no part needs it any more
			return lost
		}
		if again.pack != p.pack {
			p = again
			b, err = c.a.load(ctx, p)
		}
	}
	switch holt.CodeOf(err) {
	case "":
		c.Chunks, c.Bytes = c.Chunks+1, c.Bytes+int64(len(b))
	case holt.Corrupt, holt.NotFound:
		c.problem("chunk %s in pack %s at %d: %v", p.id, p.pack, p.off, err)
	default:
		return err
	}
	return nil
}
