package authz

import (
	"cmp"
	"context"
	"path"
	"strings"

	"holt"
	"holt/internal/api"
)

// artifact checks a call about one artifact, by its bucket and name.
func (g *guard) artifact(ctx context.Context, ref string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err != nil || free {
		return err
	}
	bucket, name, ok := holt.CutArtifact(ref)
	if !ok && a.Computer == "" && a.Rights.Narrow() {
		art, err := g.n.Artifacts.Get(ctx, ref)
		if err != nil && holt.CodeOf(err) != holt.NotFound {
			return err
		}
		bucket, name = art.Bucket, art.Name
	}
	return g.bucket(ctx, bucket, name, op)
}

// linkArtifact checks a call that makes a link to an artifact. Its caller may read the artifact, but has no read-only token.
func (g *guard) linkArtifact(ctx context.Context, ref string) error {
	if a, _ := holt.ActorOf(ctx); a.Rights.ReadOnly {
		return forbidden(a)
	}
	return g.artifact(ctx, ref, read)
}

// unlinkArtifact checks a call that revokes a link: one that the caller's token made, or any of an artifact that it may change.
func (g *guard) unlinkArtifact(ctx context.Context, in *api.ArtifactLinkKeyed) error {
	denied := g.artifact(ctx, in.Artifact, write)
	a, _ := holt.ActorOf(ctx)
	if denied == nil || a.Token == "" || g.linkArtifact(ctx, in.Artifact) != nil {
		return denied
	}
	all, err := g.n.Artifacts.Links(ctx, in.Artifact)
	for _, l := range all {
		if string(l.ID) == in.Link && l.TokenID == a.Token {
			return nil
		}
	}
	return cmp.Or(err, denied)
}

// bucket checks a call about the artifacts of a bucket whose names begin with prefix.
func (g *guard) bucket(ctx context.Context, bucket, prefix string, op operation) error {
	a, free, err := unrestricted(ctx, op)
	if err == nil && !free && (a.Computer != "" || !a.Rights.User("agent") || !a.Rights.Bucket(bucket, prefix, bool(op))) {
		err = forbidden(a)
	}
	return err
}

// seesBucketOf checks a call about one bucket, or with "" a list of those that the caller sees. A computer sees none.
func (g *guard) seesBucketOf(ctx context.Context, name string) error {
	a, free, err := unrestricted(ctx, read)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return forbidden(a)
	}
	if name == "" {
		return nil
	}
	return g.seesBucket(ctx, holt.Bucket{Name: name})
}

// setBucket checks a call that sets a bucket. A scan is a command of the host, or a URL that the host calls: it needs an admin.
func (g *guard) setBucket(ctx context.Context, scan bool) error {
	if scan {
		return g.admin(ctx)
	}
	return g.tenant(ctx, write)
}

func (g *guard) seesBucket(ctx context.Context, b holt.Bucket) error {
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || !a.Rights.Narrow() {
		return nil
	}
	for _, s := range a.Rights.Buckets {
		if s.Bucket == b.Name {
			return nil
		}
	}
	return forbidden(a)
}

// publish needs a right to read the file, and one to write to the bucket. A computer may publish its own files.
func (g *guard) publish(ctx context.Context, in *api.Body[holt.ArtifactSpec]) (context.Context, error) {
	spec := in.Body
	if a, _ := holt.ActorOf(ctx); a.Computer != "" {
		return ctx, g.self(ctx, spec.Computer, write)
	}
	name := cmp.Or(spec.Name, path.Base(string(spec.Path)))
	if err := g.bucket(ctx, cmp.Or(spec.Bucket, holt.DefaultBucket), name, write); err != nil {
		return ctx, err
	}
	if spec.Workspace != "" {
		return g.files(ctx, spec.Workspace, string(spec.Path), read)
	}
	return ctx, g.asUser(ctx, spec.Computer, userOf(string(spec.Path)), read)
}

// userOf is the Linux user as whom a file of a computer is read and written: its agent is root, outside of the workspace.
func userOf(file string) string {
	if strings.HasPrefix(path.Clean(file), "/home/agent/") {
		return "agent"
	}
	return "root"
}

// copyArtifact needs a right to read the artifact, and one to write the file.
func (g *guard) copyArtifact(ctx context.Context, in *api.ArtifactCopying) (context.Context, error) {
	spec := in.Body
	if err := g.artifact(ctx, in.Artifact, read); err != nil {
		return ctx, err
	}
	if spec.Workspace != "" {
		return g.filesAs(ctx, spec.Workspace, string(spec.Path), cmp.Or(spec.User, "agent"))
	}
	user := userOf(string(spec.Path))
	if user == "agent" {
		user = cmp.Or(spec.User, user)
	}
	return ctx, g.asUser(ctx, spec.Computer, user, write)
}
