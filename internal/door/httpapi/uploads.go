package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Uploads are files that come in pieces, over any number of connections.
type Uploads interface {
	// Create begins one. NotFound: the computer or workspace; OutOfSpace; TooMany.
	Create(ctx context.Context, spec holt.UploadSpec, key string) (holt.Upload, error)
	// Get returns one as it is now, and disturbs nobody who adds to it.
	Get(ctx context.Context, id holt.UploadID) (holt.Upload, error)
	// List returns those of the caller's tenant, in any order.
	List(ctx context.Context) ([]holt.Upload, error)
	// Halt has whoever adds to one stop, and returns it.
	Halt(ctx context.Context, id holt.UploadID) (holt.Upload, error)
	// Append adds what r holds to one that has exactly offset bytes. What came before r fails stays, unless
	// sum is given: the SHA-256 of all of r. Who added before is stopped. Conflict: it has another number of bytes.
	Append(ctx context.Context, id holt.UploadID, offset int64, sum string, r io.Reader) (holt.Upload, error)
	// Commit gives the file the content that was sent. Conflict: it is not all there, or has another SHA-256; nothing is lost then.
	Commit(ctx context.Context, id holt.UploadID, spec holt.UploadCommit) (holt.Upload, error)
	// Delete gives one up.
	Delete(ctx context.Context, id holt.UploadID, key string) error
}

// tusVersion is that of the protocol (tus.io) that clients of it speak here, and what else than its core they may use.
const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,termination,expiration,checksum"
	tusMismatch   = 460 // HTTP status of a piece with another checksum, by that protocol
	pieceType     = "application/offset+octet-stream"
)

// Tus is the part of a call by which clients of tus say so.
type Tus struct {
	Resumable string `header:"Tus-Resumable" maxLength:"16" doc:"1.0.0, from clients of tus"`
}

func (t Tus) check() error {
	if t.Resumable != "" && t.Resumable != tusVersion {
		return answer{holt.Errorf(holt.InvalidArgument, "this server speaks tus %s, not %s", tusVersion, clip(t.Resumable)), http.StatusPreconditionFailed}
	}
	return nil
}

func tusOptions(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Tus-Resumable", tusVersion)
	w.Header().Set("Tus-Version", tusVersion)
	w.Header().Set("Tus-Extension", tusExtensions)
	w.Header().Set("Tus-Checksum-Algorithm", "sha256")
	w.WriteHeader(http.StatusNoContent)
}

// UploadHeaders say where an upload stands.
type UploadHeaders struct {
	Resumable string `header:"Tus-Resumable"`
	Location  string `header:"Location" doc:"where to go on"`
	Offset    string `header:"Upload-Offset" doc:"bytes that are here"`
	Length    string `header:"Upload-Length" doc:"bytes of the whole file"`
	Expires   string `header:"Upload-Expires"`
}

func headersOf(u holt.Upload) UploadHeaders {
	return UploadHeaders{tusVersion, "/v1/uploads/" + string(u.ID), strconv.FormatInt(u.Offset, 10), strconv.FormatInt(u.Spec.Size, 10), u.ExpiresAt.UTC().Format(http.TimeFormat)}
}

type uploadReply struct {
	UploadHeaders
	Body holt.Upload
}

// OneUpload names an upload in a path.
type OneUpload struct {
	Upload string `path:"upload" doc:"upload id"`
}

const uploadTag = "uploads"

func (s *Server) uploads(api huma.API) {
	nouns := s.opt.Nouns.Uploads
	s.createUpload(api)
	s.appendUpload(api)

	register(api, describe(http.MethodGet, "/v1/uploads", "listUploads", uploadTag, "List the uploads that are open, and those of the last day"),
		func(ctx context.Context, in *Paging) (*reply[holt.Page[holt.Upload]], error) {
			all, err := nouns.List(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(u holt.Upload) string { return string(u.ID) }, *in), nil
		})

	register(api, describe(http.MethodGet, "/v1/uploads/{upload}", "getUpload", uploadTag, "Get an upload; who adds to it is not disturbed"),
		func(ctx context.Context, in *OneUpload) (*uploadReply, error) {
			id, err := holt.ParseUploadID(in.Upload)
			if err != nil {
				return nil, err
			}
			u, err := nouns.Get(ctx, id)
			return &uploadReply{headersOf(u), u}, err
		})

	op := describe(http.MethodHead, "/v1/uploads/{upload}", "resumeUpload", uploadTag, "Ask where to go on with an upload")
	op.Description = "The answer is the header Upload-Offset. A call that adds to the upload at that time is ended: its connection is most likely dead."
	op.DefaultStatus = http.StatusOK
	register(api, op, func(ctx context.Context, in *struct {
		OneUpload
		Tus
	}) (*UploadHeaders, error) {
		id, err := holt.ParseUploadID(in.Upload)
		if err != nil {
			return nil, err
		}
		if err := in.check(); err != nil {
			return nil, err
		}
		u, err := nouns.Halt(ctx, id)
		h := headersOf(u)
		return &h, err
	})

	op = describe(http.MethodPost, "/v1/uploads/{upload}/commit", "commitUpload", uploadTag, "Give the file the content that was sent")
	op.Description = "An existing file is overwritten as by writeFile. Conflict while bytes are missing, or if their SHA-256 is not the one that was said here or when the upload was created: nothing is written then, all that was sent stays, and the detail says what it is. " +
		"It goes on when its caller leaves; the upload says for a day that it is done, and a repeat gets the same answer."
	register(api, op, func(ctx context.Context, in *struct {
		OneUpload
		Keyed
		Body *holt.UploadCommit
	}) (*reply[holt.Upload], error) {
		id, err := holt.ParseUploadID(in.Upload)
		if err != nil {
			return nil, err
		}
		var spec holt.UploadCommit
		if in.Body != nil {
			spec = *in.Body
		}
		u, err := nouns.Commit(ctx, id, spec)
		return &reply[holt.Upload]{u}, err
	})

	op = describe(http.MethodDelete, "/v1/uploads/{upload}", "deleteUpload", uploadTag, "Give an upload up; a file that was written stays")
	register(api, op, func(ctx context.Context, in *struct {
		OneUpload
		Keyed
		Tus
	}) (*noContent, error) {
		id, err := holt.ParseUploadID(in.Upload)
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Delete(ctx, id, in.Key)
	})
}

func (s *Server) createUpload(api huma.API) {
	op := describe(http.MethodPost, "/v1/uploads", "createUpload", uploadTag, "Begin to send a file in pieces")
	op.DefaultStatus = http.StatusCreated
	op.Description = "The way for large files and bad lines: create, send pieces with appendUpload, each at the offset where the one before ended, and commit. A piece that was cut off counts as far as it came; " +
		"resumeUpload says how far that was. It survives the daemon's end. One to which nothing is added for a day goes. A tenant may declare half of the disk that is free without its own. The protocol is tus 1.0.0 (tus.io) with creation, termination, expiration and checksum: its clients work " +
		"as they are, with Upload-Length, and the fields computer or workspace, path, sha256, mode (octal), user and parents in Upload-Metadata in place of a body; what they send is committed with the last byte."
	register(api, op, func(ctx context.Context, in *struct {
		Keyed
		Tus
		Length   string `header:"Upload-Length" pattern:"^[0-9]{1,18}$" doc:"from clients of tus: bytes of the whole file"`
		Metadata string `header:"Upload-Metadata" maxLength:"16384" doc:"from clients of tus"`
		Body     *holt.UploadSpec
	}) (*uploadReply, error) {
		if err := in.check(); err != nil {
			return nil, err
		}
		var spec holt.UploadSpec
		var err error
		switch {
		case in.Resumable != "":
			spec, err = tusSpec(in.Length, in.Metadata)
		case in.Body == nil:
			err = holt.Errorf(holt.InvalidArgument, "what will be sent is not said")
		default:
			spec = *in.Body
		}
		if err != nil {
			return nil, err
		}
		for _, ref := range []string{spec.Computer, spec.Workspace} {
			if ref != "" {
				if _, err := parseRef(ref); err != nil {
					return nil, err
				}
			}
		}
		path, err := parsePath(string(spec.Path))
		if err != nil {
			return nil, err
		}
		spec.Path = holt.OSString(path)
		u, err := s.opt.Nouns.Uploads.Create(ctx, spec, in.Key)
		return &uploadReply{headersOf(u), u}, err
	})
}

// tusSpec reads what a client of tus says of a file: pairs of a key and base64, with commas between.
func tusSpec(length, metadata string) (spec holt.UploadSpec, err error) {
	spec.AutoCommit = true
	if spec.Size, err = strconv.ParseInt(length, 10, 64); err != nil {
		return spec, holt.Errorf(holt.InvalidArgument, "the header Upload-Length is missing").WithHint("uploads of unknown length are not taken")
	}
	for pair := range strings.SplitSeq(metadata, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return spec, holt.Errorf(holt.InvalidArgument, "Upload-Metadata: %s is not base64", clip(key))
		}
		switch key {
		case "computer":
			spec.Computer = string(text)
		case "workspace":
			spec.Workspace = string(text)
		case "path":
			spec.Path = holt.OSString(text)
		case "sha256":
			spec.SHA256 = string(text)
		case "user":
			spec.User = string(text)
		case "parents":
			spec.Parents = string(text) != "false"
		case "mode":
			if spec.Mode, err = octal(string(text)); err != nil {
				return spec, err
			}
		case "new_mode":
			if spec.NewMode, err = octal(string(text)); err != nil {
				return spec, err
			}
		} // clients add fields of their own, as filename
	}
	return spec, nil
}

func (s *Server) appendUpload(api huma.API) {
	op := describe(http.MethodPatch, "/v1/uploads/{upload}", "appendUpload", uploadTag, "Send a piece of an upload")
	op.Description = "The body is any number of bytes from Upload-Offset on, which has to be where the upload stands: conflict otherwise, and the detail says where that is. A body that is cut off counts as far as it came, " +
		"unless Upload-Checksum is there: then it counts whole or not at all. Another call that adds to the upload at that time is ended."
	op.DefaultStatus = http.StatusNoContent
	op.RequestBody = &huma.RequestBody{Description: "the bytes", Required: true, Content: map[string]*huma.MediaType{pieceType: {}, "application/octet-stream": {}}}
	register(api, op, func(ctx context.Context, in *struct {
		OneUpload
		RawRequest
		Tus
		Offset   string `header:"Upload-Offset" required:"true" pattern:"^[0-9]{1,18}$" doc:"where the body begins, bytes from the file's start"`
		Checksum string `header:"Upload-Checksum" maxLength:"128" doc:"sha256 and the base64 of the body's SHA-256, a space between"`
	}) (*UploadHeaders, error) {
		id, err := holt.ParseUploadID(in.Upload)
		if err != nil {
			return nil, err
		}
		if err := in.check(); err != nil {
			return nil, err
		}
		offset, err := strconv.ParseInt(in.Offset, 10, 64)
		if err != nil {
			return nil, holt.Errorf(holt.InvalidArgument, "%q is not an offset", in.Offset)
		}
		sum, err := tusChecksum(in.Checksum)
		if err != nil {
			return nil, err
		}
		u, err := s.opt.Nouns.Uploads.Append(ctx, id, offset, sum, in.r.Body)
		if sum != "" && err != nil && u.ID != "" && u.Offset == offset && holt.CodeOf(err) == holt.InvalidArgument {
			err = answer{holt.AsError(err), tusMismatch}
		}
		h := headersOf(u)
		return &h, err
	})
}

// tusChecksum is the SHA-256 of a header Upload-Checksum, hexadecimal; "": there is none.
func tusChecksum(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	algorithm, value, _ := strings.Cut(header, " ")
	sum, err := base64.StdEncoding.DecodeString(value)
	if algorithm != "sha256" || err != nil || len(sum) != 32 {
		return "", holt.Errorf(holt.InvalidArgument, "Upload-Checksum %q is no SHA-256", clip(header)).WithHint("give sha256, a space, and 32 bytes as base64")
	}
	return hex.EncodeToString(sum), nil
}
