package holt

import "time"

// UploadID names an upload: "upl_…".
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
	// UploadKept is how long an upload is kept to which nothing is added, and how long what became of one is remembered.
	UploadKept = 24 * time.Hour
	// MostUploads is how many a tenant may have that are not done, and of how many it is remembered what became of them.
	MostUploads = 1000
	// MostUploadsOfAll is how many there may be that are not done.
	MostUploadsOfAll = 10_000
)

// UploadState is how far an upload is.
type UploadState string

// The states of an upload.
const (
	UploadOpen       UploadState = "open"       // it takes bytes until it has all of them, and can be committed then
	UploadCommitting UploadState = "committing" // the file is being written
	UploadDone       UploadState = "done"       // the file is there
)

// UploadSpec says what file will be sent, in as many pieces as it takes. Exactly one of Computer and Workspace is set.
type UploadSpec struct {
	Computer  string   `json:"computer,omitempty" doc:"name or id: the file goes to this computer, also if it is renamed; what is answered has its id"`
	Workspace string   `json:"workspace,omitempty" doc:"name or id: or to this workspace; as computer"`
	Path      OSString `json:"path" doc:"absolute, inside the computer or from the workspace's top"`
	Size      int64    `json:"size" minimum:"0" doc:"bytes of the whole file"`
	SHA256    string   `json:"sha256,omitempty" maxLength:"64" doc:"of the whole file, hexadecimal; it may be said at the commit"`
	Mode      uint32   `json:"mode,omitempty" doc:"permission bits; default: an existing file keeps its own, a new one gets new_mode"`
	NewMode   uint32   `json:"new_mode,omitempty" doc:"permission bits of the source file: a new file gets them less 022; default: 0644 (decimal 420)"`
	User      string   `json:"user,omitempty" maxLength:"32" doc:"Linux user who will own it; default: an existing file keeps its owner, a new one gets the owner of its directory, or agent where everybody may make files, as in /tmp"`
	Parents   bool     `json:"parents,omitempty" doc:"create missing directories above it"`
	// AutoCommit is what clients of tus expect.
	AutoCommit bool `json:"auto_commit,omitempty" doc:"commit with the last byte"`
}

// UploadCommit says what was sent, and has the file be replaced with it.
type UploadCommit struct {
	SHA256 string `json:"sha256,omitempty" maxLength:"64" doc:"of the whole file, hexadecimal; default: what was said when the upload was created"`
}

// Upload is a file that is being sent. Nobody sees it where it belongs before it is committed; then it is there as one step.
type Upload struct {
	ID        UploadID    `json:"id"`
	Spec      UploadSpec  `json:"spec"`
	State     UploadState `json:"state" enum:"open,committing,done"`
	Offset    int64       `json:"offset" doc:"bytes that are here: where to go on"`
	SHA256    string      `json:"sha256,omitempty" doc:"of what was written, once it is done"`
	File      *FileInfo   `json:"file,omitempty" doc:"once it is done"`
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt time.Time   `json:"expires_at" doc:"when it goes, unless something is added before"`
}

// UploadMismatch is the Detail of the error of a commit whose bytes are not those that were meant: nothing was written, and
// all that was sent is still here.
type UploadMismatch struct {
	SHA256 string `json:"sha256" doc:"of what is here"`
	Want   string `json:"want"`
}
