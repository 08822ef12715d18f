package artifact

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/store/db"
)

// mostOwnUploads is how many uploads a computer has that are not complete.
const mostOwnUploads = 20

const uploading = holt.ArtifactState("uploading") // its parts are being sent

// CreateUpload begins an object that is sent in parts.
//
// Errors: as of [Store.PutObject]; TooMany (the tenant has [holt.MostObjectUploads]).
func (s *Store) CreateUpload(ctx context.Context, spec holt.ObjectPut) (holt.ObjectUpload, error) {
	a, _, err := s.newObject(ctx, spec)
	if err != nil {
		return holt.ObjectUpload{}, err
	}
	alone, err := s.alone(ctx)
	if err != nil {
		return holt.ObjectUpload{}, err
	}
	defer alone()
	n, most := int64(0), int64(holt.MostObjectUploads)
	more, args := mine(ctx)
	if more != "" {
		most = mostOwnUploads
	}
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT count(*) FROM artifact a CROSS JOIN bucket b ON b.id = a.bucket WHERE a.state = 'uploading' AND b.tenant = ?`+more, append([]any{holt.TenantOf(ctx)}, args...), func(r *db.Row) error {
			n = r.Int64(0)
			return nil
		})
	})
	if err == nil && n >= most {
		err = holt.Errorf(holt.TooMany, "%d uploads are not complete", n).WithHint("complete or abort some; they are aborted after %s", holt.ShortDuration(holt.UploadLife))
	}
	if err != nil {
		return holt.ObjectUpload{}, err
	}
	a.State = uploading
	a, _, err = s.begin(ctx, a, spec.RetainMS, nil)
	return a.upload(), err
}

func (a row) upload() holt.ObjectUpload {
	return holt.ObjectUpload{ID: a.ID, Bucket: a.Bucket, Name: a.Name, CreatedAt: a.CreatedAt, Headers: a.headers}
}

// upload returns an upload of a name.
func upload(ctx context.Context, tx *db.Tx, in, name string, id holt.ArtifactID) (row, bucket, error) {
	b, err := findBucket(ctx, tx, in)
	if err != nil {
		return row{}, b, err
	}
	more, args := mine(ctx)
	list, err := rows(tx, `WHERE a.id = ? AND a.bucket = ? AND a.name = ? AND a.state = 'uploading'`+more, append([]any{id, b.id, name}, args...)...)
	if err == nil && len(list) == 0 {
		err = holt.Errorf(holt.NotFound, "%w: %q", holt.ErrNoUpload, holt.Clip(string(id), 80)).WithHint("it may be complete, aborted, or older than %s", holt.ShortDuration(holt.UploadLife))
	}
	if err != nil {
		return row{}, b, err
	}
	return list[0], b, nil
}

// Uploads returns the uploads of a bucket that are not complete, by name and time.
func (s *Store) Uploads(ctx context.Context, in string) (all []holt.ObjectUpload, err error) {
	more, args := mine(ctx)
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, in)
		if err != nil {
			return err
		}
		list, err := rows(tx, `WHERE a.state = 'uploading' AND a.bucket = ?`+more+` ORDER BY a.name, a.seq`, append([]any{b.id}, args...)...)
		for _, a := range list {
			all = append(all, a.upload())
		}
		return err
	})
	return all, err
}

// Parts returns an upload with its parts from a number on, up to limit.
func (s *Store) Parts(ctx context.Context, in, name string, id holt.ArtifactID, from, limit int) (up holt.ObjectUpload, parts []holt.ObjectPart, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		a, _, err := upload(ctx, tx, in, name, id)
		if err != nil {
			return err
		}
		up = a.upload()
		list, err := partsOf(tx, `artifact = ? AND n >= ? ORDER BY n LIMIT ?`, a.seq, from, limit)
		for _, p := range list {
			parts = append(parts, p.ObjectPart)
		}
		return err
	})
	return up, parts, err
}

// part is a row of table artifact_part.
type part struct {
	holt.ObjectPart
	name string // in the archive's space
	off  int64
}

func partsOf(tx *db.Tx, condition string, args ...any) (list []part, err error) {
	err = tx.Query(`SELECT n, part, size, etag, created, headers, off FROM artifact_part WHERE `+condition, args, func(r *db.Row) error {
		p := part{holt.ObjectPart{Number: int(r.Int64(0)), Size: r.Int64(2), ETag: r.Text(3), CreatedAt: time.Unix(0, r.Int64(4)).UTC()}, r.Text(1), r.Int64(6)}
		_ = json.Unmarshal(r.Bytes(5), &p.Headers)
		list = append(list, p)
		return nil
	})
	return list, err
}

// PutPart stores what r has as a part of an upload, in place of an earlier one of its number. late returns its checksums when
// all of it has arrived.
//
// Errors: NotFound ([holt.ErrNoUpload]), TooMany (of a computer), OutOfSpace, those of r.
func (s *Store) PutPart(ctx context.Context, in, name string, id holt.ArtifactID, number int, r io.Reader, late func() map[string]string) (p holt.ObjectPart, err error) {
	var a row
	var b bucket
	ctx, end := s.send(ctx, id)
	defer end()
	alone, err := s.alone(ctx)
	if err != nil {
		return p, err
	}
	defer alone()
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) (err error) { a, b, err = upload(ctx, tx, in, name, id); return err })
	if err != nil {
		return p, err
	}
	_, most, err := s.newObject(ctx, holt.ObjectPut{})
	if err != nil {
		return p, err
	}
	// Each attempt has a part of its own, so that of two at the same time each has its row's bytes.
	at := fmt.Sprintf("p%05d.%s", number, rand.Text()[:12])
	w, sum, n, claimed := s.cfg.Archive.Create(string(id), at), md5.New(), int64(0), int64(0)
	defer w.Abort() // without effect once it is stored
	_, err = io.Copy(io.MultiWriter(&bounded{writeFunc(func(piece []byte) (int, error) {
		if b.quotaMB > 0 && n+int64(len(piece)) > claimed {
			more, err := s.claimOfPart(ctx, a, n+int64(len(piece))-claimed)
			if err != nil {
				return 0, err
			}
			claimed += more
		}
		err := w.Append(ctx, n, piece)
		n += int64(len(piece))
		return len(piece), err
	}), most}, sum), r)
	defer func() {
		if err != nil && claimed > 0 {
			if _, err := s.claimOfPart(context.WithoutCancel(ctx), a, -claimed); err != nil { // completion corrects it
				s.cfg.Log.WarnContext(ctx, "a part of an upload still counts for the quota of its bucket", "artifact", id, "err", err)
			}
		}
	}()
	if err == nil && n > 0 {
		_, err = w.Commit(ctx)
	}
	if err == nil {
		err = s.point("artifact/part")
	}
	if err != nil {
		return p, hosterror.Describe(err)
	}
	p = holt.ObjectPart{Number: number, Size: n, ETag: hex.EncodeToString(sum.Sum(nil)), CreatedAt: s.cfg.Now().UTC(), Headers: late()}
	was, err := s.keepPart(ctx, a, part{p, at, 0}, most, claimed)
	if err != nil {
		was = at
	}
	if was != "" {
		if err := s.cfg.Archive.Remove(context.WithoutCancel(ctx), string(id), was); err != nil { // completion removes it
			s.cfg.Log.WarnContext(ctx, "a part of an upload that was replaced is not removed yet", "artifact", id, "err", err)
		}
	}
	return p, err
}

// sends are the parts of one upload that are arriving.
type sends struct {
	n      int
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when there are none
}

// send returns a context for a part that arrives, which ends when the upload does.
func (s *Store) send(ctx context.Context, id holt.ArtifactID) (context.Context, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.sends[id]
	if all == nil {
		all = &sends{done: make(chan struct{})}
		all.ctx, all.cancel = context.WithCancel(s.ctx)
		s.sends[id] = all
	}
	all.n++
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(all.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		if all.n--; all.n == 0 {
			all.cancel()
			delete(s.sends, id)
			close(all.done)
		}
	}
}

// endSends ends the parts that arrive for an upload, which is complete or deleted: they would be left over.
func (s *Store) endSends(id holt.ArtifactID) {
	s.mu.Lock()
	all := s.sends[id]
	s.mu.Unlock()
	if all != nil {
		all.cancel()
		<-all.done
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

// claimOfPart has n more bytes of an upload counted in its bucket, whose quota may refuse them, and some that may follow. It returns
// how many. A negative n gives back.
func (s *Store) claimOfPart(ctx context.Context, a row, n int64) (int64, error) {
	err := s.cfg.DB.Write(ctx, func(tx *db.Tx) error {
		now, err := bucket{id: a.bucketID}.admits(tx)
		if left := now.quotaMB<<20 - now.used - n; err == nil && n > 0 && now.quotaMB > 0 {
			if left < 0 {
				return now.full()
			}
			n += min(mostClaimed, left/claimedPart)
		}
		if n > 0 && err != nil {
			return err
		}
		return tx.Exec(`UPDATE artifact SET size = size + ? WHERE seq = ? AND state = 'uploading'`, n, a.seq)
	})
	return n, err
}

// keepPart makes a part that is stored one of its upload, for which bytes were claimed. It returns the name of the one that it replaces.
func (s *Store) keepPart(ctx context.Context, a row, p part, most, claimed int64) (was string, err error) {
	err = s.write(ctx, func(tx *db.Tx) error {
		now, b, err := upload(ctx, tx, a.Bucket, a.Name, a.ID)
		if err != nil {
			return err
		}
		now.Size -= claimed
		err = tx.Query(`SELECT part, size FROM artifact_part WHERE artifact = ? AND n = ?`, []any{a.seq, p.Number}, func(r *db.Row) error {
			was, now.Size = r.Text(0), now.Size-r.Int64(1)
			return nil
		})
		if err == nil && now.Size+p.Size-a.Size > most {
			err = holt.Errorf(holt.TooMany, "the parts are larger than what can be published now").WithHint("a computer can publish as many bytes as its disk has")
		}
		if err == nil {
			err = tx.Exec(`INSERT OR REPLACE INTO artifact_part (artifact, n, part, size, etag, created, headers) VALUES (?, ?, ?, ?, ?, ?, ?)`,
				a.seq, p.Number, p.name, p.Size, p.ETag, p.CreatedAt.UnixNano(), mustJSON(p.Headers))
		}
		if err != nil {
			return err
		}
		if err := tx.Exec(`UPDATE artifact SET size = ? WHERE seq = ?`, now.Size+p.Size, a.seq); err != nil {
			return err
		}
		_, err = b.admits(tx)
		return err
	})
	return was, err
}

// AbortUpload removes an upload with its parts.
func (s *Store) AbortUpload(ctx context.Context, in, name string, id holt.ArtifactID) error {
	err := s.write(ctx, func(tx *db.Tx) error {
		a, _, err := upload(ctx, tx, in, name, id)
		if err != nil {
			return err
		}
		return tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE seq = ?`, a.seq)
	})
	s.notify()
	return err
}

// expireUploads has uploads removed that are too old.
func (s *Store) expireUploads() {
	err := s.cfg.DB.Write(s.ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE state = 'uploading' AND created < ?`, s.cfg.Now().Add(-holt.UploadLife).UnixNano())
	})
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Error("old uploads are not removed; it is tried again later", "again_in", again, "err", err)
	}
}

// readParts writes bytes of an object that was made of parts.
func (s *Store) readParts(ctx context.Context, a row, off, n int64, w io.Writer) error {
	for n > 0 {
		var list []part
		err := s.cfg.DB.Read(ctx, func(tx *db.Tx) (err error) {
			list, err = partsOf(tx, `artifact = ? AND off + size > ? ORDER BY n LIMIT 64`, a.seq, off)
			return err
		})
		if err == nil && len(list) == 0 {
			err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", a.ID)
		}
		if err != nil {
			return err
		}
		for _, p := range list {
			m := min(n, p.off+p.Size-off)
			if err := s.readPart(ctx, a.ID, p.name, off-p.off, m, w); err != nil {
				return err
			}
			off, n = off+m, n-m
		}
	}
	return nil
}

// ObjectPart returns a part of an object that was made of parts, with its offset.
func (s *Store) ObjectPart(ctx context.Context, o holt.Object, number int) (p holt.ObjectPart, off int64, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		list, err := partsOf(tx, `artifact = (SELECT seq FROM artifact WHERE id = ?) ORDER BY n LIMIT 1 OFFSET ?`, o.ID, number-1)
		if err == nil && len(list) == 0 {
			err = holt.Errorf(holt.InvalidArgument, "the object has %s", holt.CountOf(o.Parts, "part"))
		}
		if err == nil {
			p, off = list[0].ObjectPart, list[0].off
		}
		return err
	})
	return p, off, err
}
