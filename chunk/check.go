package chunk

import (
	"context"
	"errors"
	"fmt"

	"holt"
	"holt/db"
)

// Usage says what an archive holds. Sizes are bytes.
type Usage struct {
	Spaces, Parts, Chunks, Packs int64

	Referred int64 // by all parts together
	Content  int64 // of the chunks that some part needs
	Live     int64 // what those take in packs
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

// SpaceUsage says what one space holds. Sizes are bytes.
type SpaceUsage struct {
	Bytes  int64 // of content, of all parts together
	Stored int64 // of the chunks that the parts need, wherever else they are needed
}

// SpaceUsage counts what a space holds; nothing if there is none.
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

// Check compares the index with the store and reports what disagrees; with
// content it reads every chunk that a part needs and verifies it. space limits
// it to the chunks of one space, "" to none. The error is for what kept it from looking.
func (a *Archive) Check(ctx context.Context, space string, content bool) (problems []string, err error) {
	a.change.Lock()
	defer a.change.Unlock()
	sizes := map[string]int64{}
	err = a.store.List(ctx, "", func(o Object) error { sizes[o.Name] = o.Size; return nil })
	if err != nil {
		return nil, err
	}
	var packs []surveyed
	var places []place
	err = a.index.Read(ctx, func(tx *db.Tx) error {
		for _, q := range []struct{ sql, what string }{
			{"SELECT COUNT(*) FROM piece LEFT JOIN chunk ON chunk.n = piece.chunk WHERE chunk.n IS NULL OR delta + len > length", "pieces lie outside of their chunks"},
			{"SELECT COUNT(*) FROM chunk LEFT JOIN pack ON pack.n = chunk.pack WHERE pack.n IS NULL OR off + stored > size", "chunks lie outside of their packs"},
			{"SELECT COUNT(*) FROM part LEFT JOIN manifest ON manifest.n = part.manifest WHERE manifest.n IS NULL", "parts have no manifest"},
		} {
			err := tx.Query(q.sql, nil, func(r *db.Row) error {
				if n := r.Int64(0); n > 0 {
					problems = append(problems, fmt.Sprintf("archive: %d %s", n, q.what))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		err := tx.Query("SELECT id, size FROM pack ORDER BY n", nil, func(r *db.Row) error {
			packs = append(packs, surveyed{id: PackID(r.Bytes(0)), size: r.Int64(1)})
			return nil
		})
		if err != nil {
			return err
		}
		err = tx.Query("SELECT id FROM manifest WHERE n IN (SELECT manifest FROM part)", nil, func(r *db.Row) error {
			if id := ManifestID(r.Bytes(0)); sizes[id.object()] == 0 {
				problems = append(problems, fmt.Sprintf("archive: manifest %s is gone", id))
			}
			return nil
		})
		if err != nil || !content {
			return err
		}
		return tx.Query("SELECT chunk.id, chunk.off, stored, length, sum, pack.id FROM chunk JOIN pack ON pack.n = chunk.pack WHERE chunk.n IN"+
			" (SELECT piece.chunk FROM space JOIN part ON part.space = space.n JOIN piece ON piece.manifest = part.manifest WHERE ?1 IN ('', space.name))"+
			" ORDER BY pack.n, chunk.off", []any{space}, func(r *db.Row) error {
			places = append(places, placeOf(r, 0))
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for _, p := range packs {
		if size, ok := sizes[p.id.object()]; !ok || size != p.size {
			problems = append(problems, fmt.Sprintf("archive: pack %s should be %d bytes long and is %d", p.id, p.size, size))
		}
	}
	for _, p := range places {
		_, err := a.load(ctx, p)
		switch holt.CodeOf(err) {
		case "":
		case holt.Corrupt, holt.NotFound:
			problems = append(problems, fmt.Sprintf("archive: chunk %s in pack %s at %d: %v", p.id, p.pack, p.off, err))
		default:
			return nil, errors.Join(fmt.Errorf("check archive: %w", err), ctx.Err())
		}
	}
	return problems, nil
}
