package artifact

import (
	"context"
	"errors"
	"strings"

	"holt"
	"holt/internal/store/db"
)

// errEnough ends a query.
var errEnough = errors.New("enough rows")

// Objects returns a page of a bucket. The names below a prefix that it shows are skipped in the index, and not read.
//
// Errors: NotFound (the bucket).
func (s *Store) Objects(ctx context.Context, q holt.ObjectQuery) (page holt.ObjectPage, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, q.Bucket)
		if err != nil {
			return err
		}
		page = holt.ObjectPage{}
		l := listing{ctx: ctx, tx: tx, q: q, b: b, page: &page}
		return l.run()
	})
	return page, err
}

// listing is a page that is being read.
type listing struct {
	ctx  context.Context
	tx   *db.Tx
	q    holt.ObjectQuery
	b    bucket
	page *holt.ObjectPage
	n    int // items on the page
	last string
	id   holt.ArtifactID
}

// run reads stretches of the index, each up to the next name that is below a shown prefix.
func (l *listing) run() error {
	from := l.q.Prefix
	if l.q.After != "" {
		from = max(from, l.q.After)
		if p, ok := l.folded(l.q.After); ok {
			from = max(from, beyond(p))
		}
	}
	if l.q.Limit <= 0 {
		return nil
	}
	for {
		next, err := l.stretch(from)
		if err != nil || next == "" {
			return err
		}
		from = next
	}
}

// folded returns the prefix that a name is shown as.
func (l *listing) folded(name string) (string, bool) {
	if l.q.Delimiter == "" || !strings.HasPrefix(name, l.q.Prefix) {
		return "", false
	}
	i := strings.Index(name[len(l.q.Prefix):], l.q.Delimiter)
	if i < 0 {
		return "", false
	}
	return name[:len(l.q.Prefix)+i+len(l.q.Delimiter)], true
}

// beyond is the first text after all that begin with a prefix.
func beyond(prefix string) string {
	end := []byte(prefix)
	end[len(end)-1]++ // never the highest byte, which UTF-8 does not have
	return string(end)
}

// stretch shows names from one on. It returns where the next stretch begins; "": the page is complete.
func (l *listing) stretch(from string) (next string, err error) {
	condition, args := l.condition(from)
	err = l.tx.Query(`SELECT `+columns+condition, args, func(r *db.Row) error {
		a := scan(r)
		if l.n == l.q.Limit { // there is more
			l.page.After, l.page.AfterID, next = l.last, l.id, ""
			return errEnough
		}
		l.n++
		if p, ok := l.folded(a.Name); ok {
			l.page.Prefixes = append(l.page.Prefixes, p)
			l.last, l.id, next = p, "", beyond(p)
			return errEnough
		}
		l.page.Objects = append(l.page.Objects, a.object(l.ctx))
		l.last, l.id = a.Name, a.ID
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return next, err
}

func (l *listing) condition(from string) (condition string, args []any) {
	condition, args = `WHERE a.bucket = ? AND a.name >= ? AND `+listable, []any{l.b.id, from}
	and := func(more string, values ...any) { condition, args = condition+` AND `+more, append(args, values...) }
	if l.q.Prefix != "" {
		and(`a.name < ?`, beyond(l.q.Prefix))
	}
	switch {
	case l.q.After == "" || from > l.q.After:
	case l.q.AfterID != "":
		and(`NOT (a.name = ? AND a.version >= coalesce((SELECT version FROM artifact WHERE id = ? AND bucket = ?), 0))`, l.q.After, l.q.AfterID, l.b.id)
	default:
		and(`a.name > ?`, l.q.After)
	}
	if !l.q.Versions {
		and(`a.newest AND a.state <> 'marker'`)
	}
	if more, who := mine(l.ctx); more != "" {
		and(strings.TrimPrefix(more, ` AND `), who...)
	}
	return condition + ` ORDER BY a.bucket, a.name, a.version DESC LIMIT ?`, append(args, l.q.Limit-l.n+1)
}
