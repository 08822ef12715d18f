package api

import (
	"strings"

	"holt"
)

// OneArtifact names an artifact in a path.
type OneArtifact struct {
	Artifact string `path:"artifact" maxLength:"1100" doc:"id, or BUCKET/NAME with the slash as %2F: the newest version"`
}

// OneBucket names a bucket in a path.
type OneBucket struct {
	Bucket string `path:"bucket" maxLength:"64" doc:"its name"`
}

// Inputs of artifacts and buckets.
type (
	ArtifactsOf struct {
		Paging
		Bucket   string `query:"bucket" maxLength:"64" doc:"only those of this bucket"`
		Prefix   string `query:"prefix" maxLength:"1024" doc:"only names that begin with this"`
		From     string `query:"from" maxLength:"64" doc:"only those that come from this computer, by name or id; it may be deleted"`
		Versions bool   `query:"versions" doc:"all versions, not only the newest of each name"`
	}
	ArtifactPut struct {
		OneBucket
		Name      string   `query:"name" required:"true" maxLength:"1024" doc:"name in the bucket"`
		MediaType string   `query:"media_type" maxLength:"255" doc:"default: by the name"`
		RetainMS  int64    `query:"retain_ms" minimum:"0" doc:"retention, milliseconds; the minimum is that of the bucket"`
		Tree      bool     `query:"tree" doc:"the bytes are a tar stream of a directory, not compressed"`
		Tag       []string `query:"tag,explode" maxItems:"50" doc:"NAME=VALUE"`
	}
	ArtifactRead struct {
		OneArtifact
		Range       string `header:"Range" maxLength:"128" doc:"bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH"`
		IfNoneMatch string `header:"If-None-Match" maxLength:"1024" doc:"ETags of what the caller has"`
	}
	ArtifactUpdate struct {
		OneArtifact
		Keyed
		Body holt.ArtifactChange
	}
	ArtifactCopying struct {
		OneArtifact
		Keyed
		Body holt.ArtifactCopy
	}
	ArtifactKeyed struct {
		OneArtifact
		Keyed
	}
	ArtifactQuestion struct{ Body holt.TableQuery }
	BucketUpdate     struct {
		OneBucket
		Keyed
		Body holt.BucketChange
	}
	BucketKeyed struct {
		OneBucket
		Keyed
	}
)

// Artifacts are immutable objects in buckets.
var (
	PublishArtifact = Post[Body[holt.ArtifactSpec], holt.Artifact]("/v1/artifacts", "publishArtifact", "Publish a file or a directory as an artifact",
		Need{On: Content, Change: true}, Created,
		Doc("The artifact has the file's present content; later changes to the file do not change it. For a file of a workspace the answer does not wait until its bytes are stored (state storing): "+
			"it can be read at once. A directory is stored before the answer, as a tar stream. A symbolic link is followed. It outlives its computer and its workspace."))
	PutArtifact = Put[ArtifactPut, holt.Artifact]("/v1/buckets/{bucket}/artifacts", "putArtifact", "Store bytes as an artifact",
		Need{On: Content, Change: true}, Created, Tag("artifacts"), Takes("the bytes"),
		Doc("It appears once all bytes have arrived; a call that is cut off changes nothing. The bucket artifacts is created when it is first used."))
	ListArtifacts = Get[ArtifactsOf, holt.Page[holt.Artifact]]("/v1/artifacts", "listArtifacts", "List artifacts", Need{On: Content},
		Doc("By bucket and name; of the versions of one name the newest is first. With a token for a bucket, set bucket, and prefix if its scope has one."))
	QueryArtifacts = Post[ArtifactQuestion, holt.QueryResult]("/v1/artifacts/query", "queryArtifacts", "Query artifacts with SQL", Need{On: Tenant, User: "=agent"}, Audited(AuditAll),
		Doc("One SELECT about the table artifacts ("+strings.Join(holt.ArtifactColumns, ", ")+"), read-only and bounded as queryWorkspace is: the tenant's newest 50,000. "+
			"Times are text in UTC, as 2026-06-09 12:30:00.000; tags is JSON: tags->>'kind'. One query per tenant runs at a time and eight wait; further ones get too_many."))
	GetArtifact  = Get[OneArtifact, holt.Artifact]("/v1/artifacts/{artifact}", "getArtifact", "Get an artifact", Need{On: Content})
	ReadArtifact = Get[ArtifactRead, Stream]("/v1/artifacts/{artifact}/content", "readArtifact", "Read an artifact, or a range of it", Need{On: Content}, Audited(AuditAll),
		Bytes("application/octet-stream", "its bytes, with its media type"), Also(206, "the range's bytes"), Also(304, "the artifact has the ETag that was given"),
		Doc("Takes one byte range (RFC 9110). The answer is a download (Content-Disposition: attachment) without scripts, since an artifact may be a page that its computer made."))
	CopyArtifact = Post[ArtifactCopying, holt.FileInfo]("/v1/artifacts/{artifact}/copy", "copyArtifact", "Copy an artifact into a workspace or a computer", Need{On: Content, Change: true},
		Doc("A file of a workspace of 1 MiB or more shares the artifact's stored bytes: they are not copied. Other files of a computer are written by its agent. An existing file is overwritten."))
	ZipArtifact = Get[OneArtifact, Stream]("/v1/artifacts/{artifact}/zip", "zipArtifact", "Get a directory as a zip archive", Need{On: Content}, Audited(AuditAll),
		Bytes("application/zip", "a zip archive"))
	UpdateArtifact = Patch[ArtifactUpdate, holt.Artifact]("/v1/artifacts/{artifact}", "updateArtifact", "Change tags, retention or hold of an artifact", Need{On: Content, Change: true})
	DeleteArtifact = Delete[ArtifactKeyed, None]("/v1/artifacts/{artifact}", "deleteArtifact", "Delete an artifact", Need{On: Content, Change: true},
		Doc("One version: of BUCKET/NAME the newest, so that the version before is the newest. 409 while it is retained or on hold."))

	CreateBucket = Post[Body[holt.BucketSpec], holt.Bucket]("/v1/buckets", "createBucket", "Create a bucket", Need{On: Content, Change: true}, Created,
		Doc("A scan runs on the host, so that only an admin can set it."))
	UpdateBucket = Patch[BucketUpdate, holt.Bucket]("/v1/buckets/{bucket}", "updateBucket", "Change settings of a bucket", Need{On: Content, Change: true},
		Doc("expire_ms, keep and replace apply to the artifacts that are there, too: those that they no longer allow are deleted in the background, but not while they are retained or on hold. "+
			"retain_ms and scan apply to new ones. Only an admin can change the scan."))
	ListBuckets  = GetList[Paging]("/v1/buckets", "listBuckets", "List buckets by name", Need{On: Content}, func(b holt.Bucket) string { return b.Name + "@" + b.Tenant })
	GetBucket    = Get[OneBucket, holt.Bucket]("/v1/buckets/{bucket}", "getBucket", "Get a bucket", Need{On: Content})
	DeleteBucket = Delete[BucketKeyed, None]("/v1/buckets/{bucket}", "deleteBucket", "Delete an empty bucket", Need{On: Tenant, Change: true})
)
