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

// pieceBytes are written at once: what is lost of a piece when the connection breaks.
const pieceBytes = 256 << 10

// touchEvery is how often it is written down that bytes come, while one call brings them: a daemon that is killed then has
// not ended the call.
const touchEvery = time.Hour

// Files are the files of computers, or of workspaces, as far as uploads need them.
type Files interface {
	// Known returns the id of a computer or workspace; NotFound.
	Known(ctx context.Context, ref string) (id string, err error)
	// Write gives a file the content of r; see package server.
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
}

// Append adds what r holds to an upload that has exactly offset bytes, and returns it as it is then. If r fails what came
// before stays, unless sum is given: the SHA-256 of all of r, without which nothing of it counts. With
// AutoCommit the last byte commits.
//
// Errors: Conflict (it has another number of bytes; Detail is the upload), InvalidArgument (more than it was to have, or another sum), OutOfSpace (what
// came before stays, as if r had failed), those of Commit.
func (s *Store) Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error) {
	u, err := s.appendInTurn(ctx, id, offset, sum, r)
	if err != nil {
		return u, err
	}
	return s.settle(ctx, u)
}

// settle commits what is to be committed with its last byte.
func (s *Store) settle(ctx context.Context, u holt.Upload) (holt.Upload, error) {
	if !u.Spec.AutoCommit || u.Offset < u.Spec.Size || u.State == holt.UploadDone {
		return u, nil
	}
	return s.Commit(ctx, u.ID, holt.UploadCommit{})
}

func (s *Store) appendInTurn(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error) {
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
	t, err := s.takeTurn(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	defer t.end()
	if body, ok := r.(Abandoner); ok {
		defer context.AfterFunc(s.ctx, body.Abandon)()
	}
	u, err := s.find(ctx, id) // it may have gone, or be done
	if err != nil {
		return holt.Upload{}, err
	}
	switch {
	case u.Offset != offset:
		e := holt.Errorf(holt.Conflict, "the upload has %d bytes, not %d", u.Offset, offset).WithHint("go on at its offset")
		e.Detail = u.Upload
		return u.Upload, e
	case u.State == holt.UploadDone:
		return u.Upload, nil
	}
	t.reads(r)
	u.Offset, err = s.add(ctx, t, u, sum, r)
	t.reads(nil)
	if u.Offset > offset { // nothing more is no reason to keep it longer
		now := s.cfg.Now().UTC()
		u.ExpiresAt = now.Add(holt.UploadKept)
		if lost := s.table.touch(context.WithoutCancel(ctx), id, now); err == nil {
			err = lost
		}
	}
	return u.Upload, err
}

func tooLong(u holt.Upload) error {
	return holt.Errorf(holt.InvalidArgument, "the upload was to have %d bytes, and more have come", u.Spec.Size).WithHint("nothing of this piece was taken; begin another upload if the file has grown")
}

// add appends and returns the upload's length.
func (s *Store) add(ctx context.Context, t *turn, u record, want string, r io.Reader) (end int64, err error) {
	f, at, err := s.open(u.ID)
	if err != nil {
		return at, err
	}
	defer f.Close()
	if at > u.Offset { // a daemon was killed before all of a piece had come
		at = u.Offset
		if _, lost := s.undo(t, f, at, nil); lost != nil {
			return at, lost
		}
	}
	sure := int64(unsure)
	if want != "" {
		sure = at
	}
	if sure != u.sure {
		if err := s.table.hold(ctx, u.ID, sure); err != nil {
			return at, err
		}
	}
	if t.sum == nil && at == 0 {
		t.sum, t.summed = sha256.New(), 0
	}
	follows := t.sum != nil && t.summed == at
	piece, buf := sha256.New(), make([]byte, pieceBytes)
	end = at
	room := rooms{s: s}
	for {
		n, err := readPiece(ctx, r, buf)
		if end+int64(n) > u.Spec.Size {
			return s.undo(t, f, at, tooLong(u.Upload))
		}
		lost := room.take(int64(n))
		if now := s.cfg.Now().UTC(); n > 0 && lost == nil && now.Sub(u.touched) >= touchEvery {
			u.touched, lost = now, s.table.touch(context.WithoutCancel(ctx), u.ID, now)
		}
		back := end
		if want != "" { // nothing of it counts
			back = at
		}
		if lost != nil {
			return s.undo(t, f, back, lost)
		}
		if n > 0 {
			if lost := keep(f, buf[:n], end); lost != nil {
				return s.undo(t, f, back, hosterror.Full(fmt.Errorf("keep upload: %w", lost)))
			}
			end += int64(n)
			if want != "" {
				piece.Write(buf[:n])
			}
			if follows {
				t.sum.Write(buf[:n])
				t.summed = end
			}
			if lost := s.point("upload/append"); lost != nil {
				return end, lost
			}
		}
		switch {
		case err == io.EOF && want != "" && hex.EncodeToString(piece.Sum(nil)) != want:
			return s.undo(t, f, at, holt.Errorf(holt.InvalidArgument, "this piece has another SHA-256 than was said").WithHint("nothing of it was taken: send it again"))
		case err == io.EOF && want != "":
			if lost := s.table.hold(context.WithoutCancel(ctx), u.ID, unsure); lost != nil {
				return s.undo(t, f, at, lost)
			}
			return end, nil
		case err == io.EOF:
			return end, nil
		case err != nil && want != "":
			return s.undo(t, f, at, holt.Errorf(holt.Unavailable, "the piece was cut off: %w", err).WithHint("nothing of it was taken: send it again"))
		case err != nil:
			return end, cutOff(err)
		}
	}
}

// keep writes bytes at the end of an upload; long runs of zeros become holes.
func keep(f *os.File, p []byte, end int64) error {
	err := holt.EachData(p, end, func(p []byte, off int64) error { _, err := f.WriteAt(p, off); return err })
	if err == nil {
		err = f.Truncate(end + int64(len(p)))
	}
	return err
}

func cutOff(err error) error {
	return holt.Errorf(holt.Unavailable, "the piece was cut off: %w", err).WithHint("what had come is kept: go on at the upload's offset")
}

// undo takes back what was appended behind an offset.
func (s *Store) undo(t *turn, f *os.File, end int64, err error) (int64, error) {
	t.forget()
	if lost := f.Truncate(end); lost != nil {
		return end, hosterror.Full(fmt.Errorf("take back what was added to the upload: %w", lost))
	}
	return end, err
}

// readPiece fills buf as far as r goes, or until ctx ends: with an error there may still be bytes.
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

// Halt has whoever adds to an upload stop, and returns it: from its offset on it may be gone on. If all of it is here, and it
// is to be committed with its last byte, it is then.
func (s *Store) Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	if _, err := s.find(ctx, id); err != nil {
		return holt.Upload{}, err
	}
	s.mu.Lock()
	committing := s.turns[id] != nil && s.turns[id].committing
	s.mu.Unlock()
	if !committing {
		t, err := s.takeTurn(ctx, id)
		if err != nil {
			return holt.Upload{}, err
		}
		t.end()
	}
	u, err := s.Get(ctx, id)
	if err != nil {
		return u, err
	}
	return s.settle(ctx, u)
}

// Commit gives the file the content that was sent. Once it is done a repeat gets the same answer. It goes on when its
// caller leaves; who comes again waits for it. It does not begin for a token that may do nothing more.
//
// Errors: Conflict (not all of it is here; or, with Detail [holt.UploadMismatch], it is something else: then all that was
// sent stays), those of writing the file.
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
		a.u, a.err = s.commitInTurn(work, id, want)
		answered <- a
	}()
	select {
	case a := <-answered:
		return a.u, a.err
	case <-ctx.Done():
		return holt.Upload{}, ctx.Err()
	}
}

func (s *Store) commitInTurn(ctx context.Context, id holt.UploadID, want string) (holt.Upload, error) {
	if _, err := s.find(ctx, id); err != nil {
		return holt.Upload{}, err
	}
	t, err := s.takeTurn(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	defer t.end()
	u, err := s.find(ctx, id)
	if err != nil {
		return holt.Upload{}, err
	}
	return s.commit(ctx, t, u.Upload, want)
}

// commit writes the file; the caller has the turn.
func (s *Store) commit(ctx context.Context, t *turn, u holt.Upload, want string) (holt.Upload, error) {
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
	t.commits(true)
	defer t.commits(false)
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
		return u, mismatch(got, want, "what was sent has the SHA-256 %s, not %s")
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
	t.forget()
	if err := os.Remove(s.path(u.ID)); err != nil { // the next look for what is nobody's removes it
		s.log.WarnContext(ctx, "remove what was uploaded", "upload", u.ID, "err", err)
	}
	u.State, u.SHA256, u.File, u.ExpiresAt = holt.UploadDone, got, &info, now.Add(holt.UploadKept)
	return u, nil
}

func mismatch(got, want, sentence string) error {
	e := holt.Errorf(holt.Conflict, sentence, got, want).WithHint("nothing was written, and all that was sent is kept: commit it as what it is, or delete the upload and send the file again")
	e.Detail = holt.UploadMismatch{SHA256: got, Want: want}
	return e
}

// sumOf returns the SHA-256 of all that was sent: the one that ran along, or of the file where a daemon before this one had taken a part.
func (s *Store) sumOf(ctx context.Context, t *turn, f *os.File, size int64) (string, error) {
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
