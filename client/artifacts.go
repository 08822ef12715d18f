package client

import (
	"context"
	"fmt"
	"io"
	"slices"

	"holt"
	"holt/internal/api"
)

// Artifacts are immutable objects in buckets. ref is an id, or BUCKET/NAME: the newest version.
type Artifacts struct{ c *Client }

// Publish makes an artifact of a file of a computer or workspace. It does not wait until the bytes are stored.
func (n Artifacts) Publish(ctx context.Context, spec holt.ArtifactSpec, key string) (holt.Artifact, error) {
	return do(ctx, n.c, api.PublishArtifact, api.Body[holt.ArtifactSpec]{api.Keyed{key}, spec})
}

// Put makes an artifact of what r has, once all of it has arrived. It is never sent twice.
func (n Artifacts) Put(ctx context.Context, spec holt.ArtifactPut, r io.Reader) (holt.Artifact, error) {
	in := api.ArtifactPut{OneBucket: api.OneBucket{spec.Bucket}, Name: spec.Name, MediaType: spec.MediaType, RetainMS: spec.RetainMS, Tree: spec.Tree}
	if in.Bucket == "" {
		in.Bucket = holt.DefaultBucket
	}
	for name, value := range spec.Tags {
		in.Tag = append(in.Tag, name+"="+value)
	}
	slices.Sort(in.Tag)
	return sendSized(ctx, n.c, api.PutArtifact, in, r, spec.Size)
}

// Get returns an artifact.
func (n Artifacts) Get(ctx context.Context, ref string) (holt.Artifact, error) {
	return do(ctx, n.c, api.GetArtifact, api.OneArtifact{ref})
}

// List returns a page of artifacts, in the order of bucket and name, and the newest version first.
func (n Artifacts) List(ctx context.Context, q holt.ArtifactQuery) (holt.Page[holt.Artifact], error) {
	return do(ctx, n.c, api.ListArtifacts, api.ArtifactsOf{api.Paging{q.Most(), q.Cursor}, q.Bucket, q.Prefix, q.Computer, q.Versions})
}

// Query runs SQL on the table artifacts, whose columns are [holt.ArtifactColumns].
func (n Artifacts) Query(ctx context.Context, q holt.TableQuery) (holt.QueryResult, error) {
	return do(ctx, n.c, api.QueryArtifacts, api.ArtifactQuestion{q})
}

// Read writes n bytes of an artifact from offset off to w; n < 0: up to its end.
func (n Artifacts) Read(ctx context.Context, ref string, off, length int64, w io.Writer) error {
	if length == 0 {
		return nil
	}
	in := api.ArtifactRead{OneArtifact: api.OneArtifact{ref}}
	if length > 0 {
		in.Range = fmt.Sprintf("bytes=%d-%d", off, off+length-1)
	} else if off > 0 {
		in.Range = fmt.Sprintf("bytes=%d-", off)
	}
	return n.c.copyPart(ctx, callOf(api.ReadArtifact, in), off, length, w)
}

// Copy writes an artifact to a file of a workspace or a computer.
func (n Artifacts) Copy(ctx context.Context, ref string, spec holt.ArtifactCopy, key string) (holt.FileInfo, error) {
	return do(ctx, n.c, api.CopyArtifact, api.ArtifactCopying{api.OneArtifact{ref}, api.Keyed{key}, spec})
}

// Zip writes an artifact that is a directory to w, as a zip archive.
func (n Artifacts) Zip(ctx context.Context, ref string, w io.Writer) error {
	return n.c.copyPart(ctx, callOf(api.ZipArtifact, api.OneArtifact{ref}), 0, -1, w)
}

// Update changes tags, retention and hold of an artifact.
func (n Artifacts) Update(ctx context.Context, ref string, change holt.ArtifactChange, key string) (holt.Artifact, error) {
	return do(ctx, n.c, api.UpdateArtifact, api.ArtifactUpdate{api.OneArtifact{ref}, api.Keyed{key}, change})
}

// Delete removes an artifact: of BUCKET/NAME the newest version.
func (n Artifacts) Delete(ctx context.Context, ref, key string) error {
	return doNone(ctx, n.c, api.DeleteArtifact, api.ArtifactKeyed{api.OneArtifact{ref}, api.Keyed{key}})
}

// CreateLink makes a link to an artifact. Only its answer has the URL.
func (n Artifacts) CreateLink(ctx context.Context, ref string, spec holt.ArtifactLinkSpec, key string) (holt.ArtifactLink, error) {
	return do(ctx, n.c, api.LinkArtifact, api.ArtifactLinkMake{api.OneArtifact{ref}, api.Keyed{key}, spec})
}

// Links returns the links to an artifact, oldest first.
func (n Artifacts) Links(ctx context.Context, ref string) ([]holt.ArtifactLink, error) {
	return doList(ctx, n.c, api.ListArtifactLinks, api.ArtifactLinksOf{OneArtifact: api.OneArtifact{ref}})
}

// DeleteLink revokes a link to an artifact.
func (n Artifacts) DeleteLink(ctx context.Context, ref, link, key string) error {
	return doNone(ctx, n.c, api.UnlinkArtifact, api.ArtifactLinkKeyed{api.OneArtifact{ref}, link, api.Keyed{key}})
}

// CreateBucket makes a bucket.
func (n Artifacts) CreateBucket(ctx context.Context, spec holt.BucketSpec, key string) (holt.Bucket, error) {
	return do(ctx, n.c, api.CreateBucket, api.Body[holt.BucketSpec]{api.Keyed{key}, spec})
}

// UpdateBucket changes settings of a bucket.
func (n Artifacts) UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error) {
	return do(ctx, n.c, api.UpdateBucket, api.BucketUpdate{api.OneBucket{name}, api.Keyed{key}, change})
}

// Bucket returns a bucket.
func (n Artifacts) Bucket(ctx context.Context, name string) (holt.Bucket, error) {
	return do(ctx, n.c, api.GetBucket, api.OneBucket{name})
}

// Buckets returns all buckets, by name.
func (n Artifacts) Buckets(ctx context.Context) ([]holt.Bucket, error) {
	return doList(ctx, n.c, api.ListBuckets, api.Paging{})
}

// DeleteBucket removes an empty bucket.
func (n Artifacts) DeleteBucket(ctx context.Context, name, key string) error {
	return doNone(ctx, n.c, api.DeleteBucket, api.BucketKeyed{api.OneBucket{name}, api.Keyed{key}})
}
