package authz

import (
	"context"
	"io"
	"strings"

	"holt"
	"holt/internal/door/s3"
	"holt/internal/nouns"
)

// Objects returns the objects of the S3 door with authorisation checks. The look-ups of of are without checks.
func Objects(of nouns.Set, inner s3.Objects) s3.Objects { return objects{&guard{of}, inner} }

// objects is [s3.Objects] with checks. It embeds nothing: a method that is added to the interface must be written here.
type objects struct {
	g     *guard
	inner s3.Objects
}

// may checks a call about the objects of a bucket whose names begin with prefix. A computer reaches those below its own name
// in the bucket of computers.
func (n objects) may(ctx context.Context, bucket, prefix string, op operation) error {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		if bucket != holt.ComputersBucket || !strings.HasPrefix(prefix, a.Name+"/") {
			return forbidden(a)
		}
		return nil
	}
	return n.g.bucket(ctx, bucket, prefix, op)
}

// sees checks a call about a bucket.
func (n objects) sees(ctx context.Context, bucket string) error {
	if a, _ := holt.ActorOf(ctx); a.Computer != "" && bucket == holt.ComputersBucket {
		return nil
	}
	return n.g.seesBucketOf(ctx, bucket)
}

func (n objects) Buckets(ctx context.Context) ([]holt.Bucket, error) {
	all, err := n.inner.Buckets(ctx)
	var seen []holt.Bucket
	for _, b := range all {
		if n.sees(ctx, b.Name) == nil {
			seen = append(seen, b)
		}
	}
	return seen, err
}

func (n objects) Bucket(ctx context.Context, name string) (holt.Bucket, error) {
	if err := n.sees(ctx, name); err != nil {
		return holt.Bucket{}, err
	}
	return n.inner.Bucket(ctx, name)
}

func (n objects) CreateBucket(ctx context.Context, spec holt.BucketSpec, key string) (holt.Bucket, error) {
	if err := n.g.tenant(ctx, write); err != nil {
		return holt.Bucket{}, err
	}
	return n.inner.CreateBucket(ctx, spec, key)
}

func (n objects) UpdateBucket(ctx context.Context, name string, change holt.BucketChange, key string) (holt.Bucket, error) {
	if err := n.g.tenant(ctx, write); err != nil {
		return holt.Bucket{}, err
	}
	return n.inner.UpdateBucket(ctx, name, change, key)
}

func (n objects) RemoveBucket(ctx context.Context, name string) error {
	if err := n.g.tenant(ctx, write); err != nil {
		return err
	}
	return n.inner.RemoveBucket(ctx, name)
}

func (n objects) BucketSettings(ctx context.Context, bucket string) (string, error) {
	if err := n.sees(ctx, bucket); err != nil {
		return "", err
	}
	return n.inner.BucketSettings(ctx, bucket)
}

func (n objects) ChangeBucketSettings(ctx context.Context, bucket string, change func(string) (string, error)) error {
	if err := n.g.tenant(ctx, write); err != nil {
		return err
	}
	return n.inner.ChangeBucketSettings(ctx, bucket, change)
}

func (n objects) Objects(ctx context.Context, q holt.ObjectQuery) (holt.ObjectPage, error) {
	if err := n.may(ctx, q.Bucket, q.Prefix, read); err != nil {
		return holt.ObjectPage{}, err
	}
	return n.inner.Objects(ctx, q)
}

func (n objects) Object(ctx context.Context, bucket, name string, version holt.ArtifactID) (holt.Object, error) {
	if err := n.may(ctx, bucket, name, read); err != nil {
		return holt.Object{}, err
	}
	return n.inner.Object(ctx, bucket, name, version)
}

func (n objects) ObjectPart(ctx context.Context, o holt.Object, number int) (holt.ObjectPart, int64, error) {
	if err := n.may(ctx, o.Bucket, o.Name, read); err != nil {
		return holt.ObjectPart{}, 0, err
	}
	return n.inner.ObjectPart(ctx, o, number)
}

func (n objects) ReadObject(ctx context.Context, o holt.Object, off, length int64, w io.Writer) error {
	if err := n.may(ctx, o.Bucket, o.Name, read); err != nil {
		return err
	}
	return n.inner.ReadObject(ctx, o, off, length, w)
}

func (n objects) PutObject(ctx context.Context, spec holt.ObjectPut, r io.Reader) (holt.Object, error) {
	if err := n.may(ctx, spec.Bucket, spec.Name, write); err != nil {
		return holt.Object{}, err
	}
	return n.inner.PutObject(ctx, spec, r)
}

func (n objects) ChangeObject(ctx context.Context, bucket, name string, version holt.ArtifactID, change func(*holt.Object) error) error {
	if err := n.may(ctx, bucket, name, write); err != nil {
		return err
	}
	return n.inner.ChangeObject(ctx, bucket, name, version, change)
}

func (n objects) DeleteObject(ctx context.Context, d holt.ObjectDelete) (holt.Object, error) {
	if err := n.may(ctx, d.Bucket, d.Name, write); err != nil {
		return holt.Object{}, err
	}
	return n.inner.DeleteObject(ctx, d)
}

func (n objects) CreateUpload(ctx context.Context, spec holt.ObjectPut) (holt.ObjectUpload, error) {
	if err := n.may(ctx, spec.Bucket, spec.Name, write); err != nil {
		return holt.ObjectUpload{}, err
	}
	return n.inner.CreateUpload(ctx, spec)
}

// Uploads returns those whose names the caller may write.
func (n objects) Uploads(ctx context.Context, bucket string) ([]holt.ObjectUpload, error) {
	if err := n.sees(ctx, bucket); err != nil {
		return nil, err
	}
	all, err := n.inner.Uploads(ctx, bucket)
	var seen []holt.ObjectUpload
	for _, u := range all {
		if n.may(ctx, bucket, u.Name, read) == nil {
			seen = append(seen, u)
		}
	}
	return seen, err
}

func (n objects) Parts(ctx context.Context, bucket, name string, id holt.ArtifactID, from, limit int) (holt.ObjectUpload, []holt.ObjectPart, error) {
	if err := n.may(ctx, bucket, name, read); err != nil {
		return holt.ObjectUpload{}, nil, err
	}
	return n.inner.Parts(ctx, bucket, name, id, from, limit)
}

func (n objects) PutPart(ctx context.Context, bucket, name string, id holt.ArtifactID, number int, r io.Reader, late func() map[string]string) (holt.ObjectPart, error) {
	if err := n.may(ctx, bucket, name, write); err != nil {
		return holt.ObjectPart{}, err
	}
	return n.inner.PutPart(ctx, bucket, name, id, number, r, late)
}

func (n objects) AbortUpload(ctx context.Context, bucket, name string, id holt.ArtifactID) error {
	if err := n.may(ctx, bucket, name, write); err != nil {
		return err
	}
	return n.inner.AbortUpload(ctx, bucket, name, id)
}

func (n objects) CompleteUpload(ctx context.Context, bucket, name string, id holt.ArtifactID, parts []holt.ObjectPart, c holt.ObjectCondition, headers map[string]string) (holt.Object, error) {
	if err := n.may(ctx, bucket, name, write); err != nil {
		return holt.Object{}, err
	}
	return n.inner.CompleteUpload(ctx, bucket, name, id, parts, c, headers)
}
