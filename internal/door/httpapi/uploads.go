package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"holt"
	"holt/internal/api"
)

// tusVersion is that of the protocol (tus.io) that clients of it speak here, and what else than its core they may use.
const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,termination,expiration,checksum"
	tusMismatch   = 460 // HTTP status of a piece with another checksum, by that protocol
)

func checkTus(t api.Tus) error {
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

func replyOf(u holt.Upload) uploadReply { return uploadReply{headersOf(u), u} }

func (s *Server) uploads() {
	n := s.opt.Nouns.Uploads
	s.createUpload()
	bindReply(s, api.AppendUpload, s.appendUpload, headersOf)
	bindList(s, api.ListUploads, func(ctx context.Context, _ *api.Paging) ([]holt.Upload, error) { return n.List(ctx) })
	bindReply(s, api.GetUpload, func(ctx context.Context, in *api.OneUpload) (holt.Upload, error) {
		return n.Get(ctx, holt.UploadID(in.Upload))
	}, replyOf)
	bindReply(s, api.ResumeUpload, func(ctx context.Context, in *api.UploadTus) (holt.Upload, error) {
		if err := checkTus(in.Tus); err != nil {
			return holt.Upload{}, err
		}
		return n.Halt(ctx, holt.UploadID(in.Upload))
	}, headersOf)
	bind(s, api.CommitUpload, func(ctx context.Context, in *api.UploadEnd) (holt.Upload, error) {
		if in.Body == nil {
			in.Body = &holt.UploadCommit{}
		}
		return n.Commit(ctx, holt.UploadID(in.Upload), *in.Body)
	})
	bind(s, api.DeleteUpload, func(ctx context.Context, in *api.UploadKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, holt.UploadID(in.Upload), in.Key)
	})
}

// createUpload takes the headers of clients of tus in place of a body.
func (s *Server) createUpload() {
	api.Bind(s.registry, api.CreateUpload, func(ctx context.Context, in *api.UploadStart) (holt.Upload, error) {
		return s.opt.Nouns.Uploads.Create(ctx, *in.Body, in.Key)
	})
	register(s.huma, s.operation(api.CreateUpload.Endpoint), func(ctx context.Context, in *api.UploadStart) (*uploadReply, error) {
		if err := checkTus(in.Tus); err != nil {
			return nil, err
		}
		if in.Resumable != "" {
			spec, err := tusSpec(in.Length, in.Metadata)
			if err != nil {
				return nil, err
			}
			in.Body = &spec
		}
		u, err := api.Do(ctx, s.registry, api.CreateUpload, in)
		r := replyOf(u)
		return &r, err
	})
}

// tusSpec reads what a client of tus says of a file: pairs of a key and base64, with commas between.
func tusSpec(length, metadata string) (spec holt.UploadSpec, err error) {
	spec.AutoCommit = true
	if spec.Size, err = strconv.ParseInt(length, 10, 64); err != nil {
		return spec, holt.Errorf(holt.InvalidArgument, "the header Upload-Length is missing").WithHint("uploads of unknown length are not supported")
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

func (s *Server) appendUpload(ctx context.Context, in *api.UploadPiece) (u holt.Upload, err error) {
	if err := checkTus(in.Tus); err != nil {
		return u, err
	}
	offset, err := strconv.ParseInt(in.Offset, 10, 64)
	if err != nil {
		return u, holt.Errorf(holt.InvalidArgument, "%q is not an offset", in.Offset)
	}
	sum, err := tusChecksum(in.Checksum)
	if err != nil {
		return u, err
	}
	u, err = s.opt.Nouns.Uploads.Append(ctx, holt.UploadID(in.Upload), offset, sum, body(ctx))
	if sum != "" && err != nil && u.ID != "" && u.Offset == offset && holt.CodeOf(err) == holt.InvalidArgument {
		err = answer{holt.AsError(err), tusMismatch}
	}
	return u, err
}

// tusChecksum is the SHA-256 of a header Upload-Checksum, hexadecimal; "": there is none.
func tusChecksum(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	algorithm, value, _ := strings.Cut(header, " ")
	sum, err := base64.StdEncoding.DecodeString(value)
	if algorithm != "sha256" || err != nil || len(sum) != 32 {
		return "", holt.Errorf(holt.InvalidArgument, "Upload-Checksum %q is not a SHA-256", clip(header)).WithHint("use sha256, a space, and 32 bytes as base64")
	}
	return hex.EncodeToString(sum), nil
}
