package holt

import (
	"errors"
	"time"
)

// Bounds of objects, which are those of S3.
const (
	MostObjectPut     = 5 << 30 // bytes of one upload, or of one part
	MostParts         = 10_000  // of an upload
	LeastPart         = 5 << 20 // bytes of each part but the last
	MostObjectUploads = 1000    // of a tenant, which are not complete
	MostObjectHeaders = 8 << 10 // bytes of names and values
	UploadLife        = 7 * 24 * time.Hour
)

// LockMode is the header of an object with the mode of its retention; a retention in the mode [LockCompliance] is not
// shortened through S3.
const (
	LockMode       = "x-amz-object-lock-mode"
	LockCompliance = "COMPLIANCE"
)

// Reasons of errors about objects, which their errors wrap.
var (
	ErrCondition = errors.New("the object is not the one that was expected")
	ErrNoUpload  = errors.New("there is no such upload")
	ErrPart      = errors.New("a part is missing, or is a different one")
	ErrPartSmall = errors.New("a part is too small")
)

// Object is an artifact as clients of S3 see it. A name whose newest version is a delete marker does not exist for other
// clients.
type Object struct {
	Artifact
	ETag    string            // without quotes; the MD5 of the bytes if it has no dash
	Headers map[string]string // by lower-case names: content headers, user metadata, checksums, mode of the retention
	Marker  bool              // a delete marker, which has no bytes
	Parts   int               // of which it was made; 0: of none
}

// ObjectCondition says which object must be there for a call to change it: "" any or none, "*" any, or the one with an ETag.
type ObjectCondition struct {
	Match     string // there must be this one
	NoneMatch string // there must not be this one
}

// ObjectPut describes an object whose bytes are sent.
type ObjectPut struct {
	ArtifactPut
	Headers map[string]string
	Until   *time.Time // end of its retention, if that of [ArtifactPut] is not later
	Hold    bool
	If      ObjectCondition
	Late    func() map[string]string // headers that are known when all bytes have arrived, such as checksums; nil: none
}

// ObjectUpload is an object that is uploaded in parts. It does not exist until it is complete.
type ObjectUpload struct {
	ID        ArtifactID // that the object will have
	Bucket    string
	Name      string
	CreatedAt time.Time
	Headers   map[string]string
}

// ObjectPart is a part of an upload.
type ObjectPart struct {
	Number    int // 1 to [MostParts]
	Size      int64
	ETag      string
	CreatedAt time.Time
	Headers   map[string]string // checksums
}

// ObjectQuery selects objects of a bucket to list, in the order of their names' bytes.
type ObjectQuery struct {
	Bucket    string
	Prefix    string
	Delimiter string     // "": none; names that have it after the prefix are shown as one prefix
	After     string     // name, or prefix, of the last item of the page before
	AfterID   ArtifactID // the last version of After that was shown; "": all of them
	Versions  bool       // all versions and delete markers, the newest of a name first
	Limit     int
}

// ObjectPage is a page of objects, or of uploads.
type ObjectPage struct {
	Objects  []Object
	Prefixes []string
	After    string // for the next page; "": there is none
	AfterID  ArtifactID
}

// ObjectDelete selects what is deleted of a name.
type ObjectDelete struct {
	Bucket, Name string
	Version      ArtifactID      // "": the name is deleted: in a bucket that keeps versions, by a delete marker
	If           ObjectCondition // [ObjectCondition.Match]
	Bypass       bool            // an admin deletes it although it is retained in the mode GOVERNANCE
}
