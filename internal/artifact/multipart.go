package artifact

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

// CompleteUpload makes an object of parts of an upload, given by number and ETag in the order of their numbers. No bytes are
// copied. Its SHA-256 is found in the background. headers are added to the object's. In a bucket with a scan, it is scanned first.
//
// Errors: NotFound ([holt.ErrNoUpload]), InvalidArgument ([holt.ErrPart], [holt.ErrPartSmall]; the scan refuses it), Unavailable (the
// scan), OutOfSpace (the quota of the bucket), Conflict ([holt.ErrCondition]).
func (s *Store) CompleteUpload(ctx context.Context, in, name string, id holt.ArtifactID, parts []holt.ObjectPart, c holt.ObjectCondition, headers map[string]string) (out holt.Object, err error) {
	scanned, by, err := s.scanUpload(ctx, in, name, id, parts)
	if err != nil {
		return out, err
	}
	err = s.write(ctx, func(tx *db.Tx) error {
		a, b, err := upload(ctx, tx, in, name, id)
		if errors.Is(err, holt.ErrNoUpload) { // the answer of an earlier call may have been lost
			o, lost := object(ctx, tx, b, name, id)
			if lost == nil && o.Parts > 0 && o.ETag == joined(parts) {
				out = o
				return nil
			}
		}
		if err != nil {
			return err
		}
		list, err := partsOf(tx, `artifact = ? ORDER BY n`, a.seq)
		if err != nil {
			return err
		}
		if b.scan != by || by != "" && !slices.EqualFunc(scanned, chosen(list, parts), func(name string, p part) bool { return name == p.name }) {
			return holt.Errorf(holt.Conflict, "the upload, or the scan of the bucket %s, was changed meanwhile", b.name).WithHint("try again")
		}
		if a.etag, a.Size, err = assemble(tx, a.seq, list, parts); err != nil {
			return err
		}
		a.parts, a.State, a.Newest = len(parts), holt.ArtifactStoring, true
		if a.headers == nil {
			a.headers = map[string]string{}
		}
		maps.Copy(a.headers, headers)
		actor, _ := holt.ActorOf(ctx)
		a.own = actor.Computer != ""
		a.may = func(tx *db.Tx) error { return holds(ctx, tx, b, name, c) }
		err = tx.Exec(`UPDATE artifact SET state = 'storing', size = ?, etag = ?, parts = ?, headers = ?, created = ?, retain = max(retain, ?) WHERE seq = ?`,
			a.Size, a.etag, a.parts, mustJSON(a.headers), s.cfg.Now().UnixNano(), b.retainedUntil(s.cfg.Now()), a.seq)
		if err != nil {
			return err
		}
		if err = show(tx, a, b, s.cfg.Now()); err == nil {
			out, err = object(ctx, tx, b, name, id)
		}
		return err
	})
	if err == nil {
		err = s.point("artifact/completed")
	}
	s.notify()
	return out, err
}

// chosen returns those of the parts that an upload has which are named by number.
func chosen(have []part, parts []holt.ObjectPart) (use []part) {
	known := map[int]part{}
	for _, p := range have {
		known[p.Number] = p
	}
	for _, want := range parts {
		if p, ok := known[want.Number]; ok {
			use = append(use, p)
		}
	}
	return use
}

// scanUpload has the scan of a bucket see what parts of an upload make together. It returns their names, and the scan; "" without.
func (s *Store) scanUpload(ctx context.Context, in, name string, id holt.ArtifactID, parts []holt.ObjectPart) (names []string, scan string, err error) {
	var a row
	var b bucket
	var sizes []int64
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		var err error
		if a, b, err = upload(ctx, tx, in, name, id); err != nil || b.scan == "" {
			return err
		}
		list, err := partsOf(tx, `artifact = ? ORDER BY n`, a.seq)
		use := chosen(list, parts)
		a.Size = 0
		for _, p := range use {
			names, sizes, a.Size = append(names, p.name), append(sizes, p.Size), a.Size+p.Size
		}
		return err
	})
	if errors.Is(err, holt.ErrNoUpload) { // the caller looks for the answer of an earlier call
		return nil, b.scan, nil
	}
	if err != nil || b.scan == "" {
		return nil, "", err
	}
	read := func(w io.Writer) (err error) {
		for i := 0; i < len(names) && err == nil; i++ {
			err = s.readPart(ctx, a.ID, names[i], 0, sizes[i], w)
		}
		return err
	}
	sum := sha256.New()
	if err := read(sum); err != nil {
		return nil, "", err
	}
	a.SHA256 = hex.EncodeToString(sum.Sum(nil))
	r, w := io.Pipe()
	go func() { w.CloseWithError(read(w)) }()
	defer r.Close()
	err = s.scan(ctx, &a, b, r)
	if holt.CodeOf(err) == holt.InvalidArgument { // it is refused; else the scanner failed, and the call can be repeated
		err = errors.Join(err, s.write(context.WithoutCancel(ctx), func(tx *db.Tx) error {
			return tx.Exec(`UPDATE artifact SET state = 'deleting', refused = ? WHERE seq = ? AND state = 'uploading'`, a.refused, a.seq)
		}))
		s.notify()
	}
	return names, b.scan, err
}

// joined is the ETag of an object made of parts.
func joined(parts []holt.ObjectPart) string {
	sum := md5.New()
	for _, p := range parts {
		b, _ := hex.DecodeString(p.ETag)
		sum.Write(b)
	}
	return fmt.Sprintf("%x-%d", sum.Sum(nil), len(parts))
}

// assemble deletes the rows of parts that an object does not have, and says where the others are in it.
func assemble(tx *db.Tx, seq int64, have []part, parts []holt.ObjectPart) (etag string, size int64, err error) {
	known := map[int]part{}
	for _, p := range have {
		known[p.Number] = p
	}
	for i, want := range parts {
		p, ok := known[want.Number]
		switch delete(known, want.Number); {
		case !ok || p.ETag != want.ETag:
			return "", 0, holt.Errorf(holt.InvalidArgument, "%w: number %d", holt.ErrPart, want.Number).WithHint("list the parts; send it again")
		case i < len(parts)-1 && p.Size < holt.LeastPart:
			return "", 0, holt.Errorf(holt.InvalidArgument, "%w: number %d has %d bytes", holt.ErrPartSmall, want.Number, p.Size).WithHint("all but the last have at least %d", holt.LeastPart)
		}
		if err := tx.Exec(`UPDATE artifact_part SET off = ? WHERE artifact = ? AND n = ?`, size, seq, p.Number); err != nil {
			return "", 0, err
		}
		size += p.Size
	}
	for n := range known {
		if err := tx.Exec(`DELETE FROM artifact_part WHERE artifact = ? AND n = ?`, seq, n); err != nil {
			return "", 0, err
		}
	}
	return joined(parts), size, nil
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

// finishUpload finds the SHA-256 of an object that was made of parts, and removes the parts that it does not have.
func (s *Store) finishUpload(ctx context.Context, a row) error {
	if a.State != holt.ArtifactStoring {
		return nil
	}
	s.endSends(a.ID)
	sum := sha256.New()
	if err := s.readParts(ctx, a, 0, a.Size, sum); err != nil {
		if _, lost := s.Get(context.WithoutCancel(ctx), string(a.ID)); holt.CodeOf(lost) == holt.NotFound {
			return nil // it was deleted
		}
		return err
	}
	var used []string
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		list, err := partsOf(tx, `artifact = ?`, a.seq)
		for _, p := range list {
			used = append(used, p.name)
		}
		return err
	})
	if err != nil {
		return err
	}
	names, err := s.cfg.Archive.Names(ctx, string(a.ID))
	if err == nil {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(used, name) })
	}
	if err == nil && len(names) > 0 {
		err = s.cfg.Archive.Remove(ctx, string(a.ID), names...)
	}
	if err == nil {
		err = s.point("artifact/stored")
	}
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET state = 'ready', sha256 = ? WHERE seq = ? AND state = 'storing'`, sum.Sum(nil), a.seq)
	})
}
