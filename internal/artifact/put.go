package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"mime"
	"path"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
)

const (
	writing  = holt.ArtifactState("writing")  // not there yet
	deleting = holt.ArtifactState("deleting") // its bytes are being removed
	body     = "body"                         // the part of its space
	inline   = 16 << 10                       // bytes of an artifact that are kept in its row
	quick    = 1 << 20                        // bytes of an artifact that are stored before the answer
)

// begin inserts the row of an artifact that is not there yet. Its retention is at least that of the bucket.
func (s *Store) begin(ctx context.Context, a row, retainMS int64, claim *idempotency.Claim) (row, bucket, error) {
	var b bucket
	a.ID, a.CreatedAt, a.State = holt.NewArtifactID(), s.cfg.Now().UTC(), cmp.Or(a.State, writing)
	a.MediaType = cmp.Or(a.MediaType, mime.TypeByExtension(path.Ext(a.Name)), "application/octet-stream")
	if _, err := holt.ParseArtifactName(a.Name); err != nil {
		return a, b, err
	}
	if _, _, err := mime.ParseMediaType(a.MediaType); err != nil {
		return a, b, holt.Errorf(holt.InvalidArgument, "invalid media type %q", holt.Clip(a.MediaType, 80)).WithHint("use one such as text/html or application/pdf")
	}
	if err := errors.Join(checkTags(a.Tags), checkRetention(retainMS)); err != nil {
		return a, b, err
	}
	a.Origin.By = by(ctx)
	err := s.write(ctx, func(tx *db.Tx) (err error) {
		if b, err = bucketFor(ctx, tx, a.Bucket, a.CreatedAt); err != nil {
			return err
		}
		a.Bucket, a.bucketID, a.Tenant = b.name, b.id, b.tenant
		if retain := max(time.Duration(retainMS)*time.Millisecond, b.retain); retain > 0 {
			if until := a.CreatedAt.Add(retain); a.RetainUntil == nil || until.After(*a.RetainUntil) {
				a.RetainUntil = &until
			}
		}
		if err := claim.Bind(tx, string(a.ID)); err != nil {
			return err
		}
		err = tx.Exec(`INSERT INTO artifact (id, bucket, name, state, held, source, size, type, created, retain, tags, computer, called, origin, headers, hold) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, a.bucketID, a.Name, a.State, a.held, a.source, a.Size, a.MediaType, a.CreatedAt.UnixNano(), nanos(a.RetainUntil), mustJSON(a.Tags), a.Origin.ComputerID, a.Origin.Computer, mustJSON(a.Origin), mustJSON(a.headers), a.Hold)
		if err != nil {
			return err
		}
		return tx.Query(`SELECT last_insert_rowid()`, nil, func(r *db.Row) error { a.seq = r.Int64(0); return nil })
	})
	return a, b, err
}

// by names the caller.
func by(ctx context.Context) string {
	switch a, _ := holt.ActorOf(ctx); {
	case a.Computer != "":
		return "computer " + a.Name
	case a.Schedule != "":
		return "schedule " + a.Name
	case a.Token != "":
		return "token " + a.Name
	}
	return "person"
}

// Put stores what r has as an artifact, which appears when all of it has arrived.
//
// Errors: NotFound (the bucket), InvalidArgument (name, media type or tags), OutOfSpace, those of r.
func (s *Store) Put(ctx context.Context, spec holt.ArtifactPut, r io.Reader) (holt.Artifact, error) {
	ctx, err := holt.AskBefore(ctx)
	if err != nil {
		return holt.Artifact{}, err
	}
	a := row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: spec.Name, MediaType: spec.MediaType, Tags: spec.Tags}}
	return s.put(ctx, a, spec.RetainMS, nil, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
}

// put stores what read writes.
func (s *Store) put(ctx context.Context, a row, retainMS int64, claim *idempotency.Claim, read func(io.Writer) error) (holt.Artifact, error) {
	a, b, err := s.begin(ctx, a, retainMS, claim)
	if err != nil {
		return holt.Artifact{}, err
	}
	if err := s.store(ctx, &a, b, read); err != nil {
		s.forget(a)
		return holt.Artifact{}, err
	}
	s.notify() // it may have replaced others
	return a.Artifact, nil
}

// store has read write the bytes of an artifact, keeps them, and makes the artifact ready.
func (s *Store) store(ctx context.Context, a *row, b bucket, read func(io.Writer) error) error {
	w := &writer{ctx: ctx, s: s, id: string(a.ID), sum: sha256.New()}
	err := read(w)
	if err == nil {
		err = w.commit()
	}
	if err == nil {
		err = s.point("artifact/stored")
	}
	if err != nil {
		w.abort()
		return hosterror.Describe(err)
	}
	was, sum := a.State, w.sum.Sum(nil)
	a.Size, a.SHA256, a.State, a.inline = w.n, hex.EncodeToString(sum), holt.ArtifactReady, w.archive == nil
	if a.arrived != nil {
		a.arrived(a)
	}
	return s.write(ctx, func(tx *db.Tx) error {
		there := false
		err := tx.Query(`UPDATE artifact SET state = 'ready', size = ?, sha256 = ?, body = ?, etag = ?, headers = ? WHERE seq = ? AND state = ? RETURNING 1`,
			[]any{w.n, sum, w.row(), a.etag, mustJSON(a.headers), a.seq, was}, func(*db.Row) error { there = true; return nil })
		if err == nil && !there {
			err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", a.ID)
		}
		if err != nil || was == holt.ArtifactStoring {
			return err
		}
		a.Newest = true
		return show(tx, *a, b, s.cfg.Now())
	})
}

// forget removes an artifact that has not become visible.
func (s *Store) forget(a row) {
	err := s.write(s.ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE seq = ? AND state = 'writing'`, a.seq)
	})
	if err != nil && s.ctx.Err() == nil { // the next daemon does it
		s.cfg.Log.Warn("an artifact that is not complete is not removed yet", "artifact", a.ID, "err", err)
	}
	s.notify()
}

// writer keeps the bytes of one artifact: in memory while they are few, then in the archive.
type writer struct {
	ctx     context.Context
	s       *Store
	id      string
	few     []byte
	archive *chunk.Writer // nil while they are few
	sum     hash.Hash
	n       int64
}

func (w *writer) Write(p []byte) (int, error) {
	w.sum.Write(p)
	before := w.n
	w.n += int64(len(p))
	if w.n <= inline {
		w.few = append(w.few, p...)
		return len(p), nil
	}
	if w.archive == nil {
		w.archive = w.s.cfg.Archive.Create(w.id, body)
		if err := w.archive.Append(w.ctx, 0, w.few); err != nil {
			return 0, err
		}
		w.few = nil
	}
	if err := w.archive.Append(w.ctx, before, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) commit() error {
	if w.archive == nil {
		return nil
	}
	_, err := w.archive.Commit(w.ctx)
	return err
}

func (w *writer) abort() {
	if w.archive != nil {
		w.archive.Abort()
	}
}

// row is the bytes for the artifact's row; nil if they are in the archive.
func (w *writer) row() any {
	if w.archive != nil {
		return nil
	}
	return append([]byte{}, w.few...)
}
