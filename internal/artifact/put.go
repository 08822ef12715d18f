package artifact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"mime"
	"path"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/store/tarball"
)

const (
	writing  = holt.ArtifactState("writing")  // not there yet
	deleting = holt.ArtifactState("deleting") // its bytes are being removed
	inline   = 16 << 10                       // bytes of an artifact that are kept in its row
	quick    = 1 << 20                        // bytes of an artifact that are stored before the answer
)

// begin inserts the row of an artifact that is not there yet. Its retention is at least that of the bucket.
func (s *Store) begin(ctx context.Context, a row, retainMS int64, claim *idempotency.Claim) (row, bucket, error) {
	var b bucket
	a.ID, a.CreatedAt, a.State = holt.NewArtifactID(), s.cfg.Now().UTC(), cmp.Or(a.State, writing)
	if a.Tree {
		a.MediaType = cmp.Or(a.MediaType, "application/x-tar")
	}
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
	a.Origin.By = cmp.Or(a.Origin.By, by(ctx))
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
		if err := s.checkUntil(a.RetainUntil); err != nil {
			return err
		}
		if err := claim.Bind(tx, string(a.ID)); err != nil {
			return err
		}
		err = tx.Exec(`INSERT INTO artifact (id, bucket, name, state, held, source, size, type, created, retain, tags, computer, called, origin, headers, hold) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, a.bucketID, a.Name, a.State, a.held, a.source, a.Size, a.MediaType, a.CreatedAt.UnixNano(), nanos(a.RetainUntil), mustJSON(a.Tags), a.Origin.ComputerID, a.Origin.Computer, mustJSON(a.Origin), mustJSON(a.headers), a.Hold)
		if err != nil {
			return err
		}
		if err := tx.Query(`SELECT last_insert_rowid()`, nil, func(r *db.Row) error { a.seq = r.Int64(0); return nil }); err != nil {
			return err
		}
		_, err = b.admits(tx)
		return err
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
// Errors: NotFound (the bucket), InvalidArgument (name, media type or tags, or the scan of the bucket refuses it), OutOfSpace (also
// of the bucket's quota), Unavailable (the scan), those of r.
func (s *Store) Put(ctx context.Context, spec holt.ArtifactPut, r io.Reader) (holt.Artifact, error) {
	ctx, err := holt.AskBefore(ctx)
	if err != nil {
		return holt.Artifact{}, err
	}
	if spec.Size > holt.MostArtifact {
		return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "the artifact has %d bytes", spec.Size).WithHint("an artifact has at most 5 TiB")
	}
	a := row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: spec.Name, MediaType: spec.MediaType, Tags: spec.Tags, Size: spec.Size, Tree: spec.Tree}}
	return s.put(ctx, a, spec.RetainMS, nil, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
}

// put stores what read writes.
func (s *Store) put(ctx context.Context, a row, retainMS int64, claim *idempotency.Claim, read func(io.Writer) error) (holt.Artifact, error) {
	a, err := s.putRow(ctx, a, retainMS, claim, read)
	return a.Artifact, err
}

func (s *Store) putRow(ctx context.Context, a row, retainMS int64, claim *idempotency.Claim, read func(io.Writer) error) (row, error) {
	a, b, err := s.begin(ctx, a, retainMS, claim)
	if err != nil {
		return row{}, err
	}
	if err := s.store(ctx, &a, b, read); err != nil {
		s.forget(a)
		return row{}, err
	}
	s.notify() // it may have replaced others
	return a, nil
}

// store has read write the bytes of an artifact, keeps them, and makes the artifact ready.
func (s *Store) store(ctx context.Context, a *row, b bucket, read func(io.Writer) error) error {
	w := &writer{ctx: ctx, s: s, id: string(a.ID), sum: sha256.New(), seq: a.seq, claimed: math.MaxInt64}
	if b.quotaMB > 0 {
		w.claimed = a.Size
	}
	var index *tarball.Index
	var err error
	if a.Tree {
		index, err = indexed(w, read)
	} else {
		err = read(w)
	}
	if err == nil {
		err = w.commit()
	}
	if err == nil && a.Tree {
		a.indexSize, err = s.keepIndex(ctx, *a, index, w.archive == nil)
	}
	if err == nil {
		err = s.point("artifact/stored")
	}
	if err != nil {
		w.abort()
		return hosterror.Describe(err)
	}
	was, sum := a.State, w.sum.Sum(nil)
	a.Size, a.SHA256, a.inline = w.n, hex.EncodeToString(sum), w.archive == nil
	if a.arrived != nil {
		a.arrived(a)
	}
	if was != holt.ArtifactStoring {
		if err := s.scan(ctx, a, b, w.stored()); err != nil {
			return err
		}
	}
	a.State = holt.ArtifactReady
	return s.write(ctx, func(tx *db.Tx) error {
		there := false
		err := tx.Query(`UPDATE artifact SET state = 'ready', size = ?, sha256 = ?, body = ?, tree = ?, origin = ?,
			etag = iif(state = 'storing', etag, ?), headers = iif(state = 'storing', headers, ?) WHERE seq = ? AND state = ? RETURNING 1`,
			[]any{w.n, sum, w.row(), a.indexSize, mustJSON(a.Origin), a.etag, mustJSON(a.headers), a.seq, was}, func(*db.Row) error { there = true; return nil })
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
		return tx.Exec(`UPDATE artifact SET state = 'deleting', refused = ? WHERE seq = ? AND state = 'writing'`, a.refused, a.seq)
	})
	if err != nil && s.ctx.Err() == nil { // the next daemon does it
		s.cfg.Log.Warn("an artifact that is not complete is not removed yet", "artifact", a.ID, "err", err)
	}
	s.notify()
}

// mostPart is the maximum of bytes in one part of an artifact's space, so that a workspace can share each ([workspace.MostAdopted]).
const mostPart = 1 << 30

// partOf names the part of an artifact's space that has its bytes from n * [mostPart] on.
func partOf(n int64) string { return fmt.Sprint("body.", n) }

// writer keeps the bytes of one artifact: in memory while they are few, then in the archive.
type writer struct {
	ctx     context.Context
	s       *Store
	id      string
	few     []byte
	archive *chunk.Writer // of the part that is being written; nil while they are few
	sum     hash.Hash
	n       int64
	seq     int64 // of the artifact's row
	claimed int64 // bytes that it may have without a further claim
}

func (w *writer) Write(p []byte) (int, error) {
	w.sum.Write(p)
	if n := w.n + int64(len(p)); n > w.claimed {
		if err := w.claim(n); err != nil {
			return 0, err
		}
	}
	if w.archive == nil && w.n+int64(len(p)) <= inline {
		w.few, w.n = append(w.few, p...), w.n+int64(len(p))
		return len(p), nil
	}
	if w.archive == nil {
		w.archive = w.s.cfg.Archive.Create(w.id, partOf(0))
		if err := w.archive.Append(w.ctx, 0, w.few); err != nil {
			return 0, err
		}
		w.few = nil
	}
	for done := 0; done < len(p); {
		off := w.n % mostPart
		if off == 0 && w.n > 0 {
			if _, err := w.archive.Commit(w.ctx); err != nil {
				return done, err
			}
			w.archive = w.s.cfg.Archive.Create(w.id, partOf(w.n/mostPart))
		}
		n := int(min(int64(len(p)-done), mostPart-off))
		if err := w.archive.Append(w.ctx, off, p[done:done+n]); err != nil {
			return done, err
		}
		done, w.n = done+n, w.n+int64(n)
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

// stored reads the bytes after commit.
func (w *writer) stored() io.Reader {
	if w.archive == nil {
		return bytes.NewReader(w.few)
	}
	return io.NewSectionReader(archived{w}, 0, w.n)
}

// archived reads at most to the end of a part.
type archived struct{ *writer }

func (w archived) ReadAt(p []byte, off int64) (int, error) {
	p = p[:min(int64(len(p)), w.n-off, mostPart-off%mostPart)]
	if err := w.s.cfg.Archive.ReadAt(w.ctx, w.id, partOf(off/mostPart), p, off%mostPart); err != nil {
		return 0, err
	}
	return len(p), nil
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
