package artifact

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"holt"
	"holt/internal/store/db"
)

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
