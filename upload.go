package holt

import "time"

// UploadID identifies an upload: "upl_…".
type UploadID string

const uploadPrefix = "upl_"

// NewUploadID returns a fresh random identifier.
func NewUploadID() UploadID { return UploadID(newID(uploadPrefix)) }

// ParseUploadID returns s as an UploadID, or an InvalidArgument [Error].
func ParseUploadID(s string) (UploadID, error) {
	id, err := parseID(uploadPrefix, "upload", s)
	return UploadID(id), err
}

const (
	// UploadKept is how long an inactive upload, and the result of a completed one, is kept.
	UploadKept = 24 * time.Hour
	// MostUploads is the maximum number of open uploads of a tenant, and of kept results.
	MostUploads = 1000
	// MostUploadsOfAll is the maximum number of open uploads of all tenants.
	MostUploadsOfAll = 10_000
)

// UploadState is the state of an upload.
type UploadState string

// The states of an upload.
const (
	UploadOpen       UploadState = "open"       // accepts bytes until it is complete, and can then be committed
	UploadCommitting UploadState = "committing" // the file is being written
	UploadDone       UploadState = "done"       // the file is written
)

// UploadSpec describes a file to upload in parts. Exactly one of Computer and Workspace is set.
type UploadSpec struct {
	Computer  string   `json:"computer,omitempty" doc:"name or id of the computer that gets the file; the response has the id"`
	Workspace string   `json:"workspace,omitempty" doc:"name or id of the workspace that gets the file, instead of computer"`
	Path      OSString `json:"path" doc:"absolute path in the computer or the workspace"`
	Size      int64    `json:"size" minimum:"0" doc:"bytes of the whole file"`
	SHA256    string   `json:"sha256,omitempty" maxLength:"64" doc:"SHA-256 of the whole file, hexadecimal; can also be given at the commit"`
	Mode      uint32   `json:"mode,omitempty" doc:"permission bits; default: an existing file keeps its mode, a new file gets new_mode"`
	NewMode   uint32   `json:"new_mode,omitempty" doc:"permission bits of the source file; a new file gets them without 022; default: 0644 (decimal 420)"`
	User      string   `json:"user,omitempty" maxLength:"32" doc:"Linux user who owns the file; default: an existing file keeps its owner, a new file gets the owner of its directory, or agent in a world-writable one such as /tmp"`
	Parents   bool     `json:"parents,omitempty" doc:"create missing parent directories"`
	// AutoCommit is for clients of the tus protocol.
	AutoCommit bool `json:"auto_commit,omitempty" doc:"commit with the last byte"`
}

// UploadCommit completes an upload and replaces the file.
type UploadCommit struct {
	SHA256 string `json:"sha256,omitempty" maxLength:"64" doc:"SHA-256 of the whole file, hexadecimal; default: the one given when the upload was created"`
}

// Upload is a file that is sent in parts. The file is replaced atomically at the commit.
type Upload struct {
	ID        UploadID    `json:"id"`
	Spec      UploadSpec  `json:"spec"`
	State     UploadState `json:"state" enum:"open,committing,done"`
	Offset    int64       `json:"offset" doc:"number of received bytes; continue here"`
	SHA256    string      `json:"sha256,omitempty" doc:"SHA-256 of the written file, when it is done"`
	File      *FileInfo   `json:"file,omitempty" doc:"the file, when it is done"`
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt time.Time   `json:"expires_at" doc:"when it is deleted, unless more bytes arrive"`
}

// UploadMismatch is the Detail of the error of a commit whose checksum does not match. The file is not written, and the
// received bytes are kept.
type UploadMismatch struct {
	SHA256 string `json:"sha256" doc:"SHA-256 of the received bytes"`
	Want   string `json:"want"`
}
