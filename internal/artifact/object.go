package artifact

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"strings"

	"holt"
	"holt/internal/store/db"
)

// listable selects what clients of S3 see: artifacts and delete markers.
const listable = `a.state IN ('storing', 'ready', 'marker')`

const marker = holt.ArtifactState("marker") // a delete marker

// mine selects what a computer sees: what it published itself. Its name may have been that of a deleted computer.
func mine(ctx context.Context) (condition string, args []any) {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		return ` AND a.computer = ?`, []any{a.Computer}
	}
	return "", nil
}

func (a row) object(ctx context.Context) holt.Object {
	o := holt.Object{Artifact: a.shown(ctx), ETag: a.etag, Headers: a.headers, Marker: a.State == marker, Parts: a.parts}
	if o.ETag == "" { // with a dash, so that clients do not take it for an MD5
		o.ETag = strings.TrimPrefix(string(a.ID), "art_") + "-1"
	}
	return o
}

// Object returns the newest version of an object, or the one with an id; it may be a delete marker.
//
// Errors: NotFound (the bucket, or the object).
func (s *Store) Object(ctx context.Context, in, name string, version holt.ArtifactID) (o holt.Object, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, in)
		if err == nil {
			o, err = object(ctx, tx, b, name, version)
		}
		return err
	})
	return o, err
}

func object(ctx context.Context, tx *db.Tx, b bucket, name string, version holt.ArtifactID) (holt.Object, error) {
	more, args := mine(ctx)
	condition := `WHERE a.bucket = ? AND a.name = ? AND ` + listable + more + ` AND a.newest`
	args = append([]any{b.id, name}, args...)
	if version != "" {
		condition, args = strings.TrimSuffix(condition, `a.newest`)+`a.id = ?`, append(args, version)
	}
	list, err := rows(tx, condition, args...)
	if err == nil && len(list) == 0 {
		err = holt.Errorf(holt.NotFound, "there is no object %q in the bucket %s", holt.Clip(name, 80), b.name)
	}
	if err != nil {
		return holt.Object{}, err
	}
	return list[0].object(ctx), nil
}

// holds returns Conflict unless the newest object of a name is the one that a condition asks for.
func holds(ctx context.Context, tx *db.Tx, b bucket, name string, c holt.ObjectCondition) error {
	if c == (holt.ObjectCondition{}) {
		return nil
	}
	o, err := object(ctx, tx, b, name, "")
	if err != nil && holt.CodeOf(err) != holt.NotFound {
		return err
	}
	there := err == nil && !o.Marker
	is := func(etag string) bool { return there && (etag == "*" || etag == o.ETag) }
	switch {
	case c.Match != "" && !there:
		return holt.Errorf(holt.NotFound, "there is no object %q in the bucket %s", holt.Clip(name, 80), b.name)
	case c.Match != "" && !is(c.Match), c.NoneMatch != "" && is(c.NoneMatch):
		return holt.Errorf(holt.Conflict, "%w: %s/%s", holt.ErrCondition, b.name, holt.Clip(name, 80)).WithHint("read it again")
	}
	return nil
}

// PutObject stores what r has as an object, which appears when all of it has arrived, if its condition holds then.
//
// Errors: NotFound (the bucket), InvalidArgument (name, media type or tags), Conflict ([holt.ErrCondition]), TooMany (of a
// computer), OutOfSpace, those of r.
func (s *Store) PutObject(ctx context.Context, spec holt.ObjectPut, r io.Reader) (holt.Object, error) {
	end, err := s.alone(ctx)
	if err != nil {
		return holt.Object{}, err
	}
	defer end()
	a, most, err := s.newObject(ctx, spec)
	if err != nil {
		return holt.Object{}, err
	}
	sum := md5.New()
	a.arrived = func(a *row) {
		a.etag = hex.EncodeToString(sum.Sum(nil))
		if spec.Late != nil {
			maps.Copy(a.headers, spec.Late())
		}
	}
	var b bucket
	a.may = func(tx *db.Tx) error { return holds(ctx, tx, b, spec.Name, spec.If) }
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) (err error) {
		if b, err = findBucket(ctx, tx, spec.Bucket); holt.CodeOf(err) == holt.NotFound && spec.Bucket == holt.ComputersBucket {
			return nil // it is made now
		}
		if err == nil {
			err = a.may(tx) // sooner than after all of the bytes
		}
		return err
	})
	if err != nil {
		return holt.Object{}, err
	}
	made, err := s.putRow(ctx, a, spec.RetainMS, nil, func(w io.Writer) error {
		_, err := io.Copy(io.MultiWriter(&bounded{w, most}, sum), r)
		return err
	})
	if err != nil {
		return holt.Object{}, err
	}
	return made.object(ctx), nil
}

// newObject is the row of an object that is to be stored, and how many bytes it may have.
func (s *Store) newObject(ctx context.Context, spec holt.ObjectPut) (a row, most int64, err error) {
	a = row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: spec.Name, MediaType: spec.MediaType, Tags: spec.Tags, Hold: spec.Hold, RetainUntil: spec.Until}}
	a.headers = map[string]string{}
	bytes := 0
	for name, value := range spec.Headers {
		a.headers[name] = value
		bytes += len(name) + len(value)
	}
	if bytes > holt.MostObjectHeaders {
		return a, 0, holt.Errorf(holt.InvalidArgument, "the metadata of the object have %d bytes", bytes).WithHint("the maximum is %d", holt.MostObjectHeaders)
	}
	actor, _ := holt.ActorOf(ctx)
	if actor.Computer == "" {
		return a, holt.MostArtifact, nil
	}
	c, err := s.cfg.Computers.Get(ctx, string(actor.Computer))
	p := publication{row: a}
	if err == nil {
		err = s.room(ctx, c, &p)
	}
	a.own, a.Origin.Computer, a.Origin.ComputerID = true, c.Name, c.ID
	return a, p.most, err
}

// ReadObject writes n bytes of an object from offset off to w.
func (s *Store) ReadObject(ctx context.Context, o holt.Object, off, n int64, w io.Writer) error {
	if n == 0 {
		return nil
	}
	return s.Read(ctx, string(o.ID), off, n, w)
}

// readPart writes bytes of a part of an artifact's space.
func (s *Store) readPart(ctx context.Context, id holt.ArtifactID, part string, off, n int64, w io.Writer) error {
	piece := make([]byte, min(n, 1<<20))
	for n > 0 {
		p := piece[:min(n, int64(len(piece)))]
		if err := s.cfg.Archive.ReadAt(ctx, string(id), part, p, off); err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
		off, n = off+int64(len(p)), n-int64(len(p))
	}
	return nil
}

// ChangeObject changes tags, retention, hold and headers of an object: those that change returns.
//
// Errors: NotFound, those of change, InvalidArgument (tags).
func (s *Store) ChangeObject(ctx context.Context, in, name string, version holt.ArtifactID, change func(*holt.Object) error) error {
	return s.write(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, in)
		if err != nil {
			return err
		}
		o, err := object(ctx, tx, b, name, version)
		if err != nil {
			return err
		}
		if o.Headers == nil {
			o.Headers = map[string]string{}
		}
		if err := change(&o); err != nil {
			return err
		}
		if err := errors.Join(checkTags(o.Tags), s.checkUntil(o.RetainUntil)); err != nil {
			return err
		}
		return tx.Exec(`UPDATE artifact SET tags = ?, retain = ?, hold = ?, headers = ? WHERE id = ?`, mustJSON(o.Tags), nanos(o.RetainUntil), o.Hold, mustJSON(o.Headers), o.ID)
	})
}

// DeleteObject deletes a version of an object or, without a version, its name. It returns the version that was deleted, or
// the delete marker that was made. It is no error if there is none.
//
// Errors: NotFound (the bucket), Conflict (it is retained or on hold; [holt.ErrCondition]).
func (s *Store) DeleteObject(ctx context.Context, d holt.ObjectDelete) (out holt.Object, err error) {
	err = s.write(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, d.Bucket)
		if err != nil {
			return err
		}
		if err = holds(ctx, tx, b, d.Name, holt.ObjectCondition{Match: d.If.Match}); err != nil {
			return err
		}
		switch {
		case d.Version != "":
			out, err = s.deleteVersion(ctx, tx, b, d)
		case b.replace:
			out, err = s.deleteName(ctx, tx, b, d)
		default:
			out, err = s.mark(ctx, tx, b, d.Name)
		}
		return err
	})
	if err == nil {
		s.notify()
	}
	return out, err
}

// deleteVersion deletes one version, or delete marker.
func (s *Store) deleteVersion(ctx context.Context, tx *db.Tx, b bucket, d holt.ObjectDelete) (holt.Object, error) {
	o, err := object(ctx, tx, b, d.Name, d.Version)
	if holt.CodeOf(err) == holt.NotFound {
		return holt.Object{}, nil
	}
	if err == nil {
		err = s.unbound(o, d.Bypass)
	}
	if err == nil {
		err = tx.Exec(`UPDATE artifact SET state = 'deleting', newest = 0 WHERE id = ?`, o.ID)
	}
	if err == nil && o.Newest {
		err = tx.Exec(`UPDATE artifact SET newest = 1 WHERE seq = (SELECT seq FROM artifact a WHERE bucket = ? AND name = ? AND `+listable+` ORDER BY version DESC LIMIT 1)`, b.id, d.Name)
	}
	return o, err
}

// unbound returns Conflict for an object that must not be deleted.
func (s *Store) unbound(o holt.Object, bypass bool) error {
	if bypass && o.Headers[holt.LockMode] != holt.LockCompliance {
		o.RetainUntil = nil
	}
	return s.kept(row{Artifact: o.Artifact})
}

// deleteName deletes all versions of a name of a bucket that keeps none. Those that must be kept are hidden by a delete
// marker, unless one of them is the newest: then it is a Conflict.
func (s *Store) deleteName(ctx context.Context, tx *db.Tx, b bucket, d holt.ObjectDelete) (holt.Object, error) {
	o, err := object(ctx, tx, b, d.Name, "")
	if holt.CodeOf(err) == holt.NotFound {
		return holt.Object{}, nil
	}
	if err == nil && !o.Marker {
		err = s.unbound(o, d.Bypass)
	}
	if err != nil {
		return holt.Object{}, err
	}
	err = tx.Exec(`UPDATE artifact SET state = 'deleting', newest = 0 WHERE bucket = ? AND name = ? AND (id = ? OR state = 'marker' OR state IN ('storing', 'ready') AND NOT hold AND retain <= ?)`,
		b.id, d.Name, o.ID, s.cfg.Now().UnixNano())
	if err != nil {
		return holt.Object{}, err
	}
	left := false
	err = tx.Query(`SELECT 1 FROM artifact a WHERE bucket = ? AND name = ? AND `+visible+` LIMIT 1`, []any{b.id, d.Name}, func(*db.Row) error { left = true; return nil })
	if err == nil && left {
		_, err = s.mark(ctx, tx, b, d.Name)
	}
	return holt.Object{}, err
}

// mark puts a delete marker on top of a name.
func (s *Store) mark(ctx context.Context, tx *db.Tx, b bucket, name string) (holt.Object, error) {
	if _, err := holt.ParseArtifactName(name); err != nil {
		return holt.Object{}, err
	}
	now := s.cfg.Now().UTC()
	a := row{Artifact: holt.Artifact{ID: holt.NewArtifactID(), Bucket: b.name, Name: name, Newest: true, State: marker, CreatedAt: now}, bucketID: b.id}
	if actor, _ := holt.ActorOf(ctx); actor.Computer != "" {
		a.Origin.ComputerID, a.Origin.Computer = actor.Computer, actor.Name
		if err := others(tx, a); err != nil {
			return holt.Object{}, err
		}
		n := int64(0)
		err := tx.Query(`SELECT count(*) FROM artifact WHERE computer = ?`, []any{actor.Computer}, func(r *db.Row) error { n = r.Int64(0); return nil })
		if err == nil && n >= holt.MostOwnArtifacts {
			err = holt.Errorf(holt.TooMany, "%s has %d artifacts and delete markers", actor.Name, n).WithHint("its owner can delete some")
		}
		if err != nil {
			return holt.Object{}, err
		}
	}
	a.Origin.By = by(ctx)
	err := tx.Exec(`UPDATE artifact SET newest = 0 WHERE bucket = ? AND name = ? AND newest`, b.id, name)
	if err == nil {
		err = tx.Exec(`INSERT INTO artifact (id, bucket, name, version, newest, state, type, created, computer, called, origin)
			VALUES (?1, ?2, ?3, (SELECT coalesce(max(version), 0) + 1 FROM artifact WHERE bucket = ?2 AND name = ?3), 1, 'marker', '', ?4, ?5, ?6, ?7)`,
			a.ID, b.id, name, now.UnixNano(), a.Origin.ComputerID, a.Origin.Computer, mustJSON(a.Origin))
	}
	return a.object(ctx), err
}

// BucketSettings returns what the S3 door keeps of a bucket.
func (s *Store) BucketSettings(ctx context.Context, name string) (text string, err error) {
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, name)
		if err != nil {
			return err
		}
		return tx.Query(`SELECT s3 FROM bucket WHERE id = ?`, []any{b.id}, func(r *db.Row) error { text = r.Text(0); return nil })
	})
	return text, err
}

// ChangeBucketSettings changes what the S3 door keeps of a bucket, in one step.
func (s *Store) ChangeBucketSettings(ctx context.Context, name string, change func(string) (string, error)) error {
	return s.write(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, name)
		if err != nil {
			return err
		}
		text := ""
		err = tx.Query(`SELECT s3 FROM bucket WHERE id = ?`, []any{b.id}, func(r *db.Row) error { text = r.Text(0); return nil })
		if err == nil {
			text, err = change(text)
		}
		if err != nil {
			return err
		}
		return tx.Exec(`UPDATE bucket SET s3 = ? WHERE id = ?`, text, b.id)
	})
}

// Objects are the artifacts as the S3 door uses them.
type Objects struct{ *Store }

// Bucket is [Store.Bucket] without the numbers of artifacts and bytes, which would cost a count at each call.
func (o Objects) Bucket(ctx context.Context, name string) (out holt.Bucket, err error) {
	err = o.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, name)
		out = holt.Bucket{Name: b.name, CreatedAt: b.created, Replace: b.replace, RetainMS: b.retain.Milliseconds(), ExpireMS: b.expire.Milliseconds(), Keep: b.keep, QuotaMB: b.quotaMB, Scanned: b.scan != "", Tenant: b.tenant}
		return err
	})
	return out, err
}

// RemoveBucket deletes a bucket, and first the bytes of what was deleted or replaced in it and uploads that are not complete.
//
// Errors: those of [Store.DeleteBucket].
func (s *Store) RemoveBucket(ctx context.Context, name string) error {
	var in []row
	err := s.write(ctx, func(tx *db.Tx) error {
		b, err := findBucket(ctx, tx, name)
		if err != nil {
			return err
		}
		used := false
		err = tx.Query(`SELECT 1 FROM artifact a WHERE bucket = ? AND `+listable+` LIMIT 1`, []any{b.id}, func(*db.Row) error { used = true; return nil })
		if err != nil || used {
			return err // DeleteBucket says so
		}
		if err = tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE bucket = ? AND state = 'uploading'`, b.id); err == nil {
			in, err = rows(tx, `WHERE a.bucket = ? AND a.state = 'deleting' LIMIT 10000`, b.id)
		}
		return err
	})
	for _, a := range in {
		if err == nil {
			err = s.purge(ctx, a)
		}
	}
	if err != nil {
		return err
	}
	return s.DeleteBucket(ctx, name, "")
}
