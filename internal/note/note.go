// Package note keeps the notes of tenants: short texts under names.
//
// A call sees the notes of its tenant. The daemon's own calls list all notes and look names up in the default tenant.
//
// # Format
//
// Table note of the control database; see [Schema].
package note

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Schema makes the table of this package in the control database. Times are nanoseconds since 1970.
const Schema = `
CREATE TABLE note (
	tenant  TEXT NOT NULL,
	name    TEXT NOT NULL,
	text    TEXT NOT NULL,
	created INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
`

// Store is the notes of a control database.
type Store struct {
	db   *db.DB
	keys *idempotency.Keys
}

// New returns the notes of a control database with [Schema].
func New(d *db.DB, keys *idempotency.Keys) *Store { return &Store{d, keys} }

// Create makes a note. Errors: InvalidArgument, AlreadyExists, TooMany.
func (s *Store) Create(ctx context.Context, spec holt.NoteSpec, key string) (holt.Note, error) {
	if err := check(spec.Name, spec.Text); err != nil {
		return holt.Note{}, err
	}
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Note]{
		Key: key, Method: "note.create", Request: spec, Again: s.Get,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Note, error) {
			now := time.Now().UTC()
			n := holt.Note{Name: spec.Name, Text: spec.Text, Tenant: holt.TenantOf(ctx), CreatedAt: now, UpdatedAt: now}
			return n, s.write(ctx, func(tx *db.Tx) error { return insert(tx, n, claim) })
		},
	})
}

func insert(tx *db.Tx, n holt.Note, claim *idempotency.Claim) error {
	var count, taken int64
	err := tx.Query(`SELECT count(*), count(CASE name WHEN ?2 THEN 1 END) FROM note WHERE tenant = ?1`, []any{n.Tenant, n.Name}, func(row *db.Row) error {
		count, taken = row.Int64(0), row.Int64(1)
		return nil
	})
	switch {
	case err != nil:
		return err
	case taken > 0:
		return holt.Errorf(holt.AlreadyExists, "the note %q exists already", n.Name).WithHint("change it with: holt note update %s TEXT; or use another name", n.Name)
	case count >= holt.MaxNotes:
		return holt.Errorf(holt.TooMany, "the tenant %s has %d notes; no more are allowed", n.Tenant, count).WithHint("delete some: holt note delete NAME")
	}
	if err := claim.Bind(tx, n.Name); err != nil {
		return err
	}
	return tx.Exec(`INSERT INTO note (tenant, name, text, created, updated) VALUES (?, ?, ?, ?, ?)`, n.Tenant, n.Name, n.Text, n.CreatedAt.UnixNano(), n.UpdatedAt.UnixNano())
}

// Get returns the note of a name. Errors: InvalidArgument, NotFound.
func (s *Store) Get(ctx context.Context, name string) (holt.Note, error) {
	if _, err := holt.ParseName(name); err != nil {
		return holt.Note{}, err
	}
	all, err := s.list(ctx, `WHERE tenant = ? AND name = ?`, holt.TenantOf(ctx), name)
	if err == nil && len(all) == 0 {
		err = missing(name)
	}
	if err != nil {
		return holt.Note{}, err
	}
	return all[0], nil
}

// List returns the notes that the call sees.
func (s *Store) List(ctx context.Context) ([]holt.Note, error) {
	return s.list(ctx, `WHERE ?1 = '' OR tenant = ?1 ORDER BY tenant, name`, holt.Confined(ctx))
}

// Update changes the text of a note. Errors: InvalidArgument, NotFound.
func (s *Store) Update(ctx context.Context, name string, change holt.NoteChange, key string) (holt.Note, error) {
	if err := check(name, change.Text); err != nil {
		return holt.Note{}, err
	}
	return idempotency.Once(ctx, s.keys, idempotency.Call[holt.Note]{
		Key: key, Method: "note.update", Request: []any{name, change},
		Act: func(ctx context.Context, _ *idempotency.Claim) (n holt.Note, err error) {
			err = s.write(ctx, func(tx *db.Tx) error {
				found, err := query(tx, `UPDATE note SET text = ?, updated = ? WHERE tenant = ? AND name = ? RETURNING `+columns, change.Text, time.Now().UnixNano(), holt.TenantOf(ctx), name)
				if err == nil && len(found) == 0 {
					return missing(name)
				}
				if err == nil {
					n = found[0]
				}
				return err
			})
			return n, err
		},
	})
}

// Delete removes a note. Errors: InvalidArgument, NotFound.
func (s *Store) Delete(ctx context.Context, name, key string) error {
	if _, err := holt.ParseName(name); err != nil {
		return err
	}
	_, err := idempotency.Once(ctx, s.keys, idempotency.Call[struct{}]{
		Key: key, Method: "note.delete", Request: name, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (none struct{}, err error) {
			return none, s.write(ctx, func(tx *db.Tx) error {
				err := tx.Exec(`DELETE FROM note WHERE tenant = ? AND name = ?`, holt.TenantOf(ctx), name)
				if err == nil && tx.Changes() == 0 {
					return missing(name)
				}
				return err
			})
		},
	})
	return err
}

func check(name, text string) error {
	if _, err := holt.ParseName(name); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(text); n == 0 || n > holt.MaxNoteText {
		return holt.Errorf(holt.InvalidArgument, "the text has %s", holt.CountOf(n, "character")).WithHint("a note has 1 to %d characters; put longer texts into a workspace", holt.MaxNoteText)
	}
	return nil
}

func missing(name string) error {
	return holt.Errorf(holt.NotFound, "there is no note %q", name).WithHint("list the notes with: holt note list")
}

func (s *Store) list(ctx context.Context, condition string, args ...any) (all []holt.Note, err error) {
	err = s.db.Read(ctx, func(tx *db.Tx) error {
		all, err = query(tx, `SELECT `+columns+` FROM note `+condition, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read notes: %w", err)
	}
	return all, nil
}

const columns = `tenant, name, text, created, updated`

func query(tx *db.Tx, sql string, args ...any) (all []holt.Note, err error) {
	err = tx.Query(sql, args, func(row *db.Row) error {
		all = append(all, holt.Note{Tenant: row.Text(0), Name: row.Text(1), Text: row.Text(2), CreatedAt: time.Unix(0, row.Int64(3)).UTC(), UpdatedAt: time.Unix(0, row.Int64(4)).UTC()})
		return nil
	})
	return all, err
}

func (s *Store) write(ctx context.Context, fn func(*db.Tx) error) error {
	err := s.db.WriteSync(ctx, fn)
	if err != nil && holt.CodeOf(err) == holt.Internal {
		return hosterror.Full(fmt.Errorf("write notes: %w", err))
	}
	return err
}
