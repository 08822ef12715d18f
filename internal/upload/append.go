package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"holt"
	"holt/internal/hosterror"
)

// pieceBytes is the size of one write, and the most that is lost when a connection breaks.
const pieceBytes = 256 << 10

// touchEvery is how often a long call extends the expiry, in case the daemon is killed before its end.
const touchEvery = time.Hour

// Files writes files of computers, or of workspaces.
type Files interface {
	// Known returns the id of a computer or workspace, or NotFound.
	Known(ctx context.Context, ref string) (id string, err error)
	// Write replaces the content of a file by that of r.
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
}

// Append appends r to an upload that has exactly offset bytes, and returns the upload. If r fails, the bytes before
// the failure are kept. If sum is given, the SHA-256 of r, then either all of r is kept or nothing. With
// AutoCommit the last byte commits the upload.
//
// Errors: Conflict (the upload has another offset; Detail is the upload), InvalidArgument (the upload would exceed its
// size, or the SHA-256 differs), OutOfSpace (as if r had failed), those of Commit.
func (s *Store) Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error) {
	u, err := s.appendLocked(ctx, id, offset, sum, r)
	if err != nil {
		return u, err
	}
	return s.autoCommit(ctx, u)
}

// autoCommit commits a complete upload with AutoCommit.
func (s *Store) autoCommit(ctx context.Context, u holt.Upload) (holt.Upload, error) {
	if !u.Spec.AutoCommit || u.Offset < u.Spec.Size || u.State == holt.UploadDone {
		return u, nil
	}
	return s.Commit(ctx, u.ID, holt.UploadCommit{})
}

func (s *Store) appendLocked(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return holt.Upload{}, err
	}
	defer leave()
	if sum, err = checkSum(sum); err != nil {
		return holt.Upload{}, err
	}
	if _, err := s.find(ctx, id); err != nil {
		return holt.Upload{}, err
	}
	t, err := s.lock(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	defer t.unlock()
	if body, ok := r.(Abandoner); ok {
		defer context.AfterFunc(s.ctx, body.Abandon)()
	}
	u, err := s.find(ctx, id) // again, since it can be deleted or done meanwhile
	if err != nil {
		return holt.Upload{}, err
	}
	switch {
	case u.Offset != offset:
		e := holt.Errorf(holt.Conflict, "the upload has %d bytes, not %d", u.Offset, offset).WithHint("continue at the upload's offset")
		e.Detail = u.Upload
		return u.Upload, e
	case u.State == holt.UploadDone:
		return u.Upload, nil
	}
	t.setReader(r)
	u.Offset, err = s.add(ctx, t, u, sum, r)
	t.setReader(nil)
	if u.Offset > offset { // an empty piece does not extend the expiry
		now := s.cfg.Now().UTC()
		u.ExpiresAt = now.Add(holt.UploadKept)
		if lost := s.table.touch(context.WithoutCancel(ctx), id, now); err == nil {
			err = lost
		}
	}
	return u.Upload, err
}

func tooLong(u holt.Upload) error {
	return holt.Errorf(holt.InvalidArgument, "the piece exceeds the size of the upload, %d bytes", u.Spec.Size).WithHint("the piece was discarded; if the file has grown, start another upload")
}

// add appends r and returns the upload's new offset.
func (s *Store) add(ctx context.Context, t *lock, u record, want string, r io.Reader) (end int64, err error) {
	f, at, err := s.open(u.ID)
	if err != nil {
		return at, err
	}
	defer f.Close()
	if at > u.Offset { // the daemon was killed during a piece with a checksum
		at = u.Offset
		if _, lost := s.truncate(t, f, at, nil); lost != nil {
			return at, lost
		}
	}
	sure := int64(unsure)
	if want != "" {
		sure = at
	}
	if sure != u.sure {
		if err := s.table.setSure(ctx, u.ID, sure); err != nil {
			return at, err
		}
	}
	if t.sum == nil && at == 0 {
		t.sum, t.summed = sha256.New(), 0
	}
	p := &piece{s: s, t: t, u: u, f: f, at: at, end: at, room: reservation{s: s}}
	if want != "" {
		p.sum = sha256.New()
	}
	broken, err := p.take(ctx, r)
	switch {
	case p.killed:
		return p.end, err
	case want == "" && err != nil:
		return s.truncate(t, f, p.end, err)
	case want == "" && broken != nil:
		return p.end, holt.Errorf(holt.Unavailable, "read the piece: %w", broken).WithHint("the bytes before the error are kept: continue at the upload's offset")
	case want == "":
		return p.end, nil
	case err != nil:
	case broken != nil:
		err = holt.Errorf(holt.Unavailable, "read the piece: %w", broken).WithHint("the piece was discarded: send it again")
	case hex.EncodeToString(p.sum.Sum(nil)) != want:
		err = holt.Errorf(holt.InvalidArgument, "the SHA-256 of the piece differs from the given one").WithHint("the piece was discarded: send it again")
	default:
		err = s.table.setSure(context.WithoutCancel(ctx), u.ID, unsure)
	}
	if err != nil {
		return s.truncate(t, f, at, err)
	}
	return p.end, nil
}

// piece is what one call appends to an upload.
type piece struct {
	s    *Store
	t    *lock
	u    record
	f    *os.File
	at   int64     // where it begins
	end  int64     // where it ends so far
	sum  hash.Hash // of the piece; nil: all or nothing does not apply
	room reservation

	killed bool // a test ended it as if the daemon were killed
}

// take reads r to its end. broken is why r failed: all before that is written. After err bytes may lie behind p.end.
func (p *piece) take(ctx context.Context, r io.Reader) (broken, err error) {
	follows := p.t.sum != nil && p.t.summed == p.at
	for buf := make([]byte, pieceBytes); ; {
		n, broken := readPiece(ctx, r, buf)
		if p.end+int64(n) > p.u.Spec.Size {
			p.end = p.at
			return nil, tooLong(p.u.Upload)
		}
		if n > 0 {
			if err := p.write(ctx, buf[:n]); err != nil {
				return nil, err
			}
			if follows {
				p.t.sum.Write(buf[:n])
				p.t.summed = p.end
			}
			if err := p.s.point("upload/append"); err != nil {
				p.killed = true
				return nil, err
			}
		}
		if broken == io.EOF {
			return nil, nil
		}
		if broken != nil {
			return broken, nil
		}
	}
}

// write appends b.
func (p *piece) write(ctx context.Context, b []byte) error {
	if err := p.room.take(int64(len(b))); err != nil {
		return err
	}
	if now := p.s.cfg.Now().UTC(); now.Sub(p.u.touched) >= touchEvery {
		p.u.touched = now
		if err := p.s.table.touch(context.WithoutCancel(ctx), p.u.ID, now); err != nil {
			return err
		}
	}
	if err := writeSparse(p.f, b, p.end); err != nil {
		return hosterror.Full(fmt.Errorf("write upload: %w", err))
	}
	p.end += int64(len(b))
	if p.sum != nil {
		p.sum.Write(b)
	}
	return nil
}

// writeSparse writes bytes at the end of an upload. Long runs of zeros become holes.
func writeSparse(f *os.File, p []byte, end int64) error {
	err := holt.EachData(p, end, func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err })
	if err == nil {
		err = f.Truncate(end + int64(len(p)))
	}
	return err
}

// truncate removes the bytes after an offset, and returns err.
func (s *Store) truncate(t *lock, f *os.File, end int64, err error) (int64, error) {
	t.dropHash()
	if lost := f.Truncate(end); lost != nil {
		return end, hosterror.Full(fmt.Errorf("truncate upload: %w", lost))
	}
	return end, err
}

// readPiece reads until buf is full, r fails or ctx ends. It can return both bytes and an error.
func readPiece(ctx context.Context, r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		if err = context.Cause(ctx); err != nil {
			break
		}
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

// Halt ends the call that appends to an upload, and returns the upload. The caller continues at its offset. Halt commits a
// complete upload with AutoCommit.
func (s *Store) Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	if _, err := s.find(ctx, id); err != nil {
		return holt.Upload{}, err
	}
	s.mu.Lock()
	committing := s.locks[id] != nil && s.locks[id].committing
	s.mu.Unlock()
	if !committing {
		t, err := s.lock(ctx, id)
		if err != nil {
			return holt.Upload{}, err
		}
		t.unlock()
	}
	u, err := s.Get(ctx, id)
	if err != nil {
		return u, err
	}
	return s.autoCommit(ctx, u)
}

// Commit writes the file of a complete upload. A repeat of a finished commit gets the same answer. The commit continues if its
// caller leaves, and a repeat waits for it. It does not start if the caller's token has been revoked or has expired.
//
// Errors: Conflict (the upload is incomplete; or, with Detail [holt.UploadMismatch], its SHA-256 differs, and the upload
// is kept), those of writing the file.
func (s *Store) Commit(ctx context.Context, id holt.UploadID, spec holt.UploadCommit) (holt.Upload, error) {
	want, err := checkSum(spec.SHA256)
	if err != nil {
		return holt.Upload{}, err
	}
	if gone := context.Cause(ctx); holt.CodeOf(gone) == holt.Unauthenticated {
		return holt.Upload{}, gone
	}
	work, leave, err := s.enter(context.WithoutCancel(ctx))
	if err != nil {
		return holt.Upload{}, err
	}
	type answer struct {
		u   holt.Upload
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		defer leave()
		var a answer
		a.u, a.err = s.commitLocked(work, id, want)
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.u, a.err
	case <-ctx.Done():
		return holt.Upload{}, ctx.Err()
	}
}

func (s *Store) commitLocked(ctx context.Context, id holt.UploadID, want string) (holt.Upload, error) {
	if _, err := s.find(ctx, id); err != nil {
		return holt.Upload{}, err
	}
	t, err := s.lock(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	defer t.unlock()
	u, err := s.find(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	return s.commit(ctx, t, u.Upload, want)
}

// commit writes the file. The caller has the lock.
func (s *Store) commit(ctx context.Context, t *lock, u holt.Upload, want string) (holt.Upload, error) {
	if want == "" {
		want = u.Spec.SHA256
	}
	if u.State == holt.UploadDone {
		if want != "" && want != u.SHA256 {
			return u, mismatch(u.SHA256, want, "the upload was committed with the SHA-256 %s, not %s")
		}
		return u, nil
	}
	if u.Offset != u.Spec.Size {
		e := holt.Errorf(holt.Conflict, "the upload has %d of %d bytes", u.Offset, u.Spec.Size).WithHint("send the rest first")
		e.Detail = u
		return u, e
	}
	t.setCommitting(true)
	defer t.setCommitting(false)
	f, _, err := s.open(u.ID)
	if err != nil {
		return u, err
	}
	defer f.Close()
	got, err := s.sumOf(ctx, t, f, u.Spec.Size)
	if err != nil {
		return u, err
	}
	if want != "" && got != want {
		return u, mismatch(got, want, "the upload has the SHA-256 %s, not %s")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return u, hosterror.Full(err)
	}
	files, ref := s.files(&u.Spec)
	info, err := files.Write(ctx, *ref, string(u.Spec.Path), holt.WriteSpec{Mode: u.Spec.Mode, NewMode: u.Spec.NewMode, User: u.Spec.User, Parents: u.Spec.Parents}, f)
	if err != nil {
		return u, err
	}
	if err := s.point("upload/written"); err != nil {
		return u, err
	}
	now := s.cfg.Now().UTC()
	if err := s.table.done(context.WithoutCancel(ctx), u.ID, got, info, now); err != nil {
		return u, err
	}
	t.dropHash()
	if err := os.Remove(s.path(u.ID)); err != nil { // tidy removes it later
		s.log.WarnContext(ctx, "remove the file of a committed upload", "upload", u.ID, "err", err)
	}
	u.State, u.SHA256, u.File, u.ExpiresAt = holt.UploadDone, got, &info, now.Add(holt.UploadKept)
	return u, nil
}

func mismatch(got, want, sentence string) error {
	e := holt.Errorf(holt.Conflict, sentence, got, want).WithHint("the target file is unchanged and the upload is kept: commit it without a SHA-256 or with its own, or delete it and send the file again")
	e.Detail = holt.UploadMismatch{SHA256: got, Want: want}
	return e
}

// sumOf returns the SHA-256 of the upload: the running hash, or that of the file if an earlier daemon received a part.
func (s *Store) sumOf(ctx context.Context, t *lock, f *os.File, size int64) (string, error) {
	if t.sum == nil || t.summed != size {
		h := sha256.New()
		if err := sumFile(ctx, h, f); err != nil {
			return "", hosterror.Full(fmt.Errorf("read upload: %w", err))
		}
		t.sum, t.summed = h, size
	}
	return hex.EncodeToString(t.sum.Sum(nil)), nil
}

func sumFile(ctx context.Context, h hash.Hash, f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, pieceBytes)
	for {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

func (s *Store) point(name string) error {
	if s.cfg.Fail == nil {
		return nil
	}
	return s.cfg.Fail(name)
}
