package httpapi

import (
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
	"holt/internal/httppart"
)

func (s *Server) artifacts() {
	n := s.opt.Nouns.Artifacts
	bind(s, api.PublishArtifact, func(ctx context.Context, in *api.Body[holt.ArtifactSpec]) (holt.Artifact, error) {
		return n.Publish(ctx, in.Body, in.Key)
	})
	bind(s, api.PutArtifact, s.putArtifact)
	bind(s, api.ListArtifacts, func(ctx context.Context, in *api.ArtifactsOf) (holt.Page[holt.Artifact], error) {
		return n.List(ctx, holt.ArtifactQuery{Bucket: in.Bucket, Prefix: in.Prefix, Computer: in.From, Versions: in.Versions, PageSpec: holt.PageSpec{Limit: in.Limit, Cursor: in.Cursor}})
	})
	bind(s, api.QueryArtifacts, func(ctx context.Context, in *api.ArtifactQuestion) (holt.QueryResult, error) {
		return n.Query(ctx, in.Body)
	})
	bind(s, api.GetArtifact, func(ctx context.Context, in *api.OneArtifact) (holt.Artifact, error) { return n.Get(ctx, in.Artifact) })
	bind(s, api.CopyArtifact, func(ctx context.Context, in *api.ArtifactCopying) (holt.FileInfo, error) {
		return n.Copy(ctx, in.Artifact, in.Body, in.Key)
	})
	bindStream(s, api.ReadArtifact, s.readArtifact)
	bindStream(s, api.ZipArtifact, func(ctx context.Context, in *api.OneArtifact) (*huma.StreamResponse, error) {
		if _, err := s.opt.Nouns.ArtifactFiles.Stat(ctx, in.Artifact, "/"); err != nil {
			return nil, err
		}
		return s.raw(ctx, api.ZipArtifact.Answer.Type, func(ctx context.Context, w *rawWriter) error { return n.Zip(ctx, in.Artifact, w) }), nil
	})
	bind(s, api.UpdateArtifact, func(ctx context.Context, in *api.ArtifactUpdate) (holt.Artifact, error) {
		return n.Update(ctx, in.Artifact, in.Body, in.Key)
	})
	bind(s, api.DeleteArtifact, func(ctx context.Context, in *api.ArtifactKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Artifact, in.Key)
	})
	bind(s, api.LinkArtifact, func(ctx context.Context, in *api.ArtifactLinkMake) (holt.ArtifactLink, error) {
		return n.CreateLink(ctx, in.Artifact, in.Body, in.Key)
	})
	bindList(s, api.ListArtifactLinks, func(ctx context.Context, in *api.ArtifactLinksOf) ([]holt.ArtifactLink, error) {
		return n.Links(ctx, in.Artifact)
	})
	bind(s, api.UnlinkArtifact, func(ctx context.Context, in *api.ArtifactLinkKeyed) (api.None, error) {
		return api.None{}, n.DeleteLink(ctx, in.Artifact, in.Link, in.Key)
	})
	bind(s, api.CreateBucket, func(ctx context.Context, in *api.Body[holt.BucketSpec]) (holt.Bucket, error) {
		return n.CreateBucket(ctx, in.Body, in.Key)
	})
	bind(s, api.UpdateBucket, func(ctx context.Context, in *api.BucketUpdate) (holt.Bucket, error) {
		return n.UpdateBucket(ctx, in.Bucket, in.Body, in.Key)
	})
	bindList(s, api.ListBuckets, func(ctx context.Context, _ *api.Paging) ([]holt.Bucket, error) { return n.Buckets(ctx) })
	bind(s, api.GetBucket, func(ctx context.Context, in *api.OneBucket) (holt.Bucket, error) { return n.Bucket(ctx, in.Bucket) })
	bind(s, api.DeleteBucket, func(ctx context.Context, in *api.BucketKeyed) (api.None, error) {
		return api.None{}, n.DeleteBucket(ctx, in.Bucket, in.Key)
	})
}

func (s *Server) putArtifact(ctx context.Context, in *api.ArtifactPut) (holt.Artifact, error) {
	tags := map[string]string{}
	for _, t := range in.Tag {
		name, value, ok := strings.Cut(t, "=")
		if !ok {
			return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "the tag %q has no value", clip(t)).WithHint("write NAME=VALUE")
		}
		tags[name] = value
	}
	return s.opt.Nouns.Artifacts.Put(ctx, holt.ArtifactPut{Bucket: in.Bucket, Name: in.Name, MediaType: in.MediaType, RetainMS: in.RetainMS, Tree: in.Tree, Tags: tags, Size: max(0, requestOf(ctx).r.ContentLength)}, body(ctx))
}

// readArtifact sends an artifact, a range of it, or, to HEAD, the headers alone. Its bytes may be a page of a hostile computer:
// no browser shows it with the rights of this server.
func (s *Server) readArtifact(ctx context.Context, in *api.ArtifactRead) (*huma.StreamResponse, error) {
	a, err := s.opt.Nouns.Artifacts.Get(ctx, in.Artifact)
	if err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	header := q.Header()
	file := httppart.File{ETag: strconv.Quote(string(a.ID)), Size: a.Size, MediaType: a.MediaType, Modified: a.CreatedAt} // a version never changes
	part, status, err := file.Head(httppart.Asked{Range: in.Range, IfNoneMatch: in.IfNoneMatch}, header)
	switch {
	case err != nil:
		return nil, answer{holt.AsError(err), status}
	case status == http.StatusNotModified:
		return s.empty(ctx, status), nil
	}
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": a.FileName()}))
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("X-Content-Type-Options", "nosniff")
	if q.r.Method == http.MethodHead {
		return s.empty(ctx, status), nil
	}
	return s.raw(ctx, a.MediaType, func(ctx context.Context, w *rawWriter) error {
		return s.opt.Nouns.Artifacts.Read(ctx, string(a.ID), part.Off, part.N, w)
	}), nil
}
