package holt

import (
	"strings"
	"time"
	"unicode/utf8"
)

// ArtifactID identifies an artifact, which is one version under a name: "art_…".
type ArtifactID string

const artifactPrefix = "art_"

// NewArtifactID returns a fresh random identifier.
func NewArtifactID() ArtifactID { return ArtifactID(newID(artifactPrefix)) }

// ParseArtifactID returns s as an ArtifactID, or an InvalidArgument [Error].
func ParseArtifactID(s string) (ArtifactID, error) {
	id, err := parseID(artifactPrefix, "artifact", s)
	return ArtifactID(id), err
}

// DefaultBucket is the bucket of artifacts that name none. It is created when it is first used.
const DefaultBucket = "artifacts"

// ComputersBucket is the bucket of artifacts that computers publish themselves, below their names. It is created when it is first
// used.
const ComputersBucket = "computers"

// Bounds of artifacts and buckets.
const (
	MostArtifact     = 5 << 40 // bytes, as of an object of S3
	MostBuckets      = 1000    // of a tenant
	MostArtifactName = 1024    // bytes of a name
	MostArtifactTags = 2048    // bytes of names and values of the tags of an artifact
	MostOwnArtifacts = 1000    // of a computer, from which on it cannot publish any itself
)

// Bucket is a set of artifacts with names.
type Bucket struct {
	Name      string    `json:"name" doc:"unique among the tenant's buckets; a DNS label"`
	CreatedAt time.Time `json:"created_at"`
	Replace   bool      `json:"replace,omitempty" doc:"a new artifact replaces the earlier one of its name; else both are kept, as versions"`
	RetainMS  int64     `json:"retain_ms,omitempty" doc:"retention of new artifacts, milliseconds"`
	ExpireMS  int64     `json:"expire_ms,omitempty" doc:"age at which artifacts are deleted, milliseconds"`
	Keep      int       `json:"keep,omitempty" doc:"versions of a name that are kept"`
	Artifacts int64     `json:"artifacts" doc:"artifacts in it, each version counted"`
	Bytes     int64     `json:"bytes" doc:"bytes of their content"`
	Tenant    string    `json:"tenant,omitempty" doc:"tenant that owns it"`
}

// BucketSpec describes a bucket to create.
type BucketSpec struct {
	Name     string `json:"name" maxLength:"64" doc:"a DNS label, unique among the tenant's buckets"`
	Replace  bool   `json:"replace,omitempty" doc:"a new artifact replaces the earlier one of its name; default: both are kept, as versions"`
	RetainMS int64  `json:"retain_ms,omitempty" minimum:"0" doc:"retention of new artifacts, milliseconds; default: 0, none"`
}

// BucketChange changes a bucket. Nil fields are left as they are.
type BucketChange struct {
	Replace  *bool  `json:"replace,omitempty" doc:"a new artifact replaces the earlier one of its name"`
	RetainMS *int64 `json:"retain_ms,omitempty" minimum:"0" doc:"retention of new artifacts, milliseconds; 0: none"`
	ExpireMS *int64 `json:"expire_ms,omitempty" minimum:"0" doc:"age at which artifacts are deleted, milliseconds; 0: never"`
	Keep     *int   `json:"keep,omitempty" minimum:"0" doc:"versions of a name that are kept; 0: all"`
}

// ArtifactState is the state of an artifact.
type ArtifactState string

// The states of an artifact. It can be read in both.
const (
	ArtifactStoring ArtifactState = "storing" // its bytes are read from a checkpoint of its workspace, while they are stored
	ArtifactReady   ArtifactState = "ready"   // its bytes are stored, and its SHA-256 is known
)

// Artifact is an immutable object. It outlives the computer and the workspace that it comes from.
type Artifact struct {
	ID          ArtifactID        `json:"id"`
	Bucket      string            `json:"bucket"`
	Name        string            `json:"name" doc:"unique in the bucket, except for its versions"`
	Newest      bool              `json:"newest" doc:"no later version has the name"`
	State       ArtifactState     `json:"state" doc:"ready, or storing: it can be read, but its SHA-256 is not known yet"`
	Size        int64             `json:"size" doc:"bytes"`
	SHA256      string            `json:"sha256,omitempty" doc:"hexadecimal; absent while it is stored"`
	MediaType   string            `json:"media_type"`
	CreatedAt   time.Time         `json:"created_at"`
	Tags        map[string]string `json:"tags,omitempty"`
	RetainUntil *time.Time        `json:"retain_until,omitempty" doc:"end of its retention; a delete is refused before"`
	Hold        bool              `json:"hold,omitempty" doc:"it has a hold; a delete is refused"`
	Origin      ArtifactOrigin    `json:"origin" doc:"where it comes from"`
	Tenant      string            `json:"tenant,omitempty" doc:"tenant that owns it"`
}

// ArtifactOrigin is where an artifact comes from, as it was when the artifact was created.
type ArtifactOrigin struct {
	By          string      `json:"by,omitempty" doc:"who published it"`
	Computer    string      `json:"computer,omitempty" doc:"name of the computer"`
	ComputerID  ComputerID  `json:"computer_id,omitempty"`
	Workspace   string      `json:"workspace,omitempty" doc:"name of the workspace"`
	WorkspaceID WorkspaceID `json:"workspace_id,omitempty"`
	Path        OSString    `json:"path,omitempty" doc:"path in the computer or, if there is none, in the workspace"`
	ModTime     *time.Time  `json:"mtime,omitempty" doc:"when the file was last changed"`
	Writer      *Writer     `json:"writer,omitempty" doc:"who last wrote the file"`
	Command     OSString    `json:"command,omitempty" doc:"shell command of the run that wrote it"`
	Argv        OSStrings   `json:"argv,omitempty" doc:"program and arguments of that run, if it had no shell command"`
}

// ArtifactSpec describes an artifact to publish. Exactly one of Computer and Workspace is set.
type ArtifactSpec struct {
	Computer  string            `json:"computer,omitempty" doc:"name or id of the computer that has the file"`
	Workspace string            `json:"workspace,omitempty" doc:"name or id of the workspace that has the file, instead of computer"`
	Path      OSString          `json:"path" doc:"absolute path in the computer or the workspace"`
	Bucket    string            `json:"bucket,omitempty" maxLength:"64" doc:"default: artifacts"`
	Name      string            `json:"name,omitempty" maxLength:"1024" doc:"default: the file's name"`
	MediaType string            `json:"media_type,omitempty" maxLength:"255" doc:"default: by the name"`
	RetainMS  int64             `json:"retain_ms,omitempty" minimum:"0" doc:"retention, milliseconds; the minimum is that of the bucket"`
	Tags      map[string]string `json:"tags,omitempty"`
}

// ArtifactPut describes an artifact whose bytes are sent.
type ArtifactPut struct {
	Bucket    string // "": [DefaultBucket]
	Name      string
	MediaType string // "": by the name
	RetainMS  int64  // at least that of the bucket
	Tags      map[string]string
}

// ArtifactQuery selects artifacts to list.
type ArtifactQuery struct {
	Bucket   string // "": all buckets
	Prefix   string // of names
	Computer string // name or id of the computer that they come from, which may be deleted; "": any
	Versions bool   // all versions; else the newest of each name
	PageSpec
}

// ArtifactChange changes what can be changed of an artifact. Nil fields are left as they are.
type ArtifactChange struct {
	Tags     map[string]*string `json:"tags,omitempty" doc:"tags to set; null removes one"`
	RetainMS *int64             `json:"retain_ms,omitempty" minimum:"0" doc:"retention from now on, milliseconds; only an admin can shorten one"`
	Hold     *bool              `json:"hold,omitempty" doc:"set or remove its hold: with one, a delete is refused"`
}

// ArtifactColumns are the columns of the table artifacts of a [QuerySpec] about artifacts.
var ArtifactColumns = []string{"id", "bucket", "name", "newest", "state", "size", "sha256", "media_type", "created_at", "retain_until", "hold", "tags",
	"computer", "computer_id", "workspace", "workspace_id", "path", "run", "writer", "writer_kind", "command", "published_by"}

// ParseArtifactName returns the name of an artifact, or InvalidArgument: 1 to 1024 bytes of UTF-8 without control characters.
func ParseArtifactName(s string) (string, error) {
	if s == "" || len(s) > MostArtifactName || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", Errorf(InvalidArgument, "invalid name %q of an artifact", clip(s)).WithHint("use 1 to %d bytes of UTF-8 without control characters", MostArtifactName)
	}
	return s, nil
}

// CutArtifact splits BUCKET/NAME; a name may have more slashes. ok is false if there is no slash.
func CutArtifact(ref string) (bucket, name string, ok bool) { return strings.Cut(ref, "/") }
