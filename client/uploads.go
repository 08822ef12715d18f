package client

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"time"

	"holt"
	"holt/internal/api"
)

// Uploads are files that are sent in pieces.
type Uploads struct{ c *Client }

// Create begins one.
func (n Uploads) Create(ctx context.Context, spec holt.UploadSpec, key string) (holt.Upload, error) {
	return do(ctx, n.c, api.CreateUpload, api.UploadStart{Keyed: api.Keyed{key}, Body: &spec})
}

// Get returns an upload as it is now.
func (n Uploads) Get(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	return do(ctx, n.c, api.GetUpload, api.OneUpload{string(id)})
}

// List returns all of them.
func (n Uploads) List(ctx context.Context) ([]holt.Upload, error) {
	return doList(ctx, n.c, api.ListUploads, api.Paging{})
}

// Halt ends a call that is sending a piece of an upload, and returns the upload.
func (n Uploads) Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	err := n.c.json(ctx, callOf(api.ResumeUpload, api.UploadTus{OneUpload: api.OneUpload{string(id)}}), nil)
	if holt.CodeOf(err) == holt.Unavailable && ctx.Err() == nil { // an answer to HEAD has no body to say what is wrong
		if u, why := n.Get(ctx, id); why != nil {
			return u, why
		}
	}
	if err != nil {
		return holt.Upload{}, err
	}
	return n.Get(ctx, id)
}

// Append sends what r holds, once, as the bytes of an upload from offset on. sum is "", or the SHA-256 of all of it,
// hexadecimal.
func (n Uploads) Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (_ holt.Upload, err error) {
	in := api.UploadPiece{OneUpload: api.OneUpload{string(id)}, Offset: strconv.FormatInt(offset, 10)}
	if sum != "" {
		if in.Checksum, err = checksumOf(sum); err != nil {
			return holt.Upload{}, err
		}
	}
	k := callOf(api.AppendUpload, in)
	k.raw = struct{ io.Reader }{r} // a failed attempt closes what it can
	if err := n.c.once(ctx, k, nil); err != nil {
		return holt.Upload{}, err
	}
	return n.Get(ctx, id)
}

// checksumOf is a SHA-256 as its header has it.
func checksumOf(sum string) (string, error) {
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != 32 {
		return "", holt.Errorf(holt.InvalidArgument, "%q is not a SHA-256", holt.Clip(sum, 80))
	}
	return "sha256 " + base64.StdEncoding.EncodeToString(raw), nil
}

// Commit replaces the file with what was sent.
func (n Uploads) Commit(ctx context.Context, id holt.UploadID, spec holt.UploadCommit) (holt.Upload, error) {
	return do(ctx, n.c, api.CommitUpload, api.UploadEnd{OneUpload: api.OneUpload{string(id)}, Body: &spec})
}

// Delete gives an upload up.
func (n Uploads) Delete(ctx context.Context, id holt.UploadID, key string) error {
	return doNone(ctx, n.c, api.DeleteUpload, api.UploadKeyed{OneUpload: api.OneUpload{string(id)}, Keyed: api.Keyed{key}})
}

// mostPiece is how much of a file one call of Send sends, bytes: what a proxy that keeps bodies has to keep.
const mostPiece = 64 << 20

// Send sends all of a file of spec.Size bytes and commits it. When the connection or the daemon breaks it continues where
// that stood, for as long as Options.Patience allows from the last byte that arrived. passed is told how many bytes are there; it may be nil.
// An upload that fails for good is deleted.
func (n Uploads) Send(ctx context.Context, spec holt.UploadSpec, file io.ReaderAt, passed func(offset int64)) (holt.FileInfo, error) {
	u, err := n.Create(ctx, spec, "")
	if err != nil {
		return holt.FileInfo{}, err
	}
	if u, err = n.send(ctx, u, file, passed); err == nil {
		u, err = n.Commit(ctx, u.ID, holt.UploadCommit{})
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = n.Delete(late, u.ID, "") // else it goes in a day
		return holt.FileInfo{}, err
	}
	return *u.File, nil
}

// send appends until nothing is missing.
func (n Uploads) send(ctx context.Context, u holt.Upload, file io.ReaderAt, passed func(int64)) (holt.Upload, error) {
	var w wait
	for u.Offset < u.Spec.Size {
		piece := &sentPiece{io.NewSectionReader(file, u.Offset, min(mostPiece, u.Spec.Size-u.Offset)), u.Offset, passed}
		at, err := n.Append(ctx, u.ID, u.Offset, "", piece)
		if err == nil {
			if at.Offset == u.Offset {
				return u, holt.Errorf(holt.Conflict, "the file was truncated while it was sent")
			}
			u, w = at, wait{}
			continue
		}
		var lost *lostError
		if !errors.As(err, &lost) && holt.CodeOf(err) != holt.Unavailable || !n.c.again(ctx, &w, lost) {
			return u, err
		}
		if at, err = n.Halt(ctx, u.ID); err != nil {
			return u, err
		}
		if at.Offset > u.Offset {
			w = wait{}
		}
		u = at
	}
	return u, nil
}

// sentPiece tells how far it was read.
type sentPiece struct {
	io.Reader
	at     int64
	passed func(int64)
}

func (p *sentPiece) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if p.at += int64(n); p.passed != nil {
		p.passed(p.at)
	}
	return n, err
}
