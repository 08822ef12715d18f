// Package artifact keeps artifacts: immutable objects in buckets, with the place that they come from. An artifact outlives
// its computer and its workspace.
//
// It does not know the archive's format (package chunk) or workspaces: it reads those through interfaces that package
// daemon fills in.
//
// Format: tables bucket, artifact and artifact_part of the control database ([Schema]). The bytes of a small artifact are in its row;
// those of a larger one are the part "body" of the archive's space that is named by the artifact's id. The archive stores
// equal chunks once, so an artifact and the file that it was published from share theirs.
//
// Publishing a file of a workspace takes a checkpoint that is named by the artifact's id, and a row in state storing. The
// artifact is read from that checkpoint until its bytes are in the archive; then its row has their SHA-256, and the
// checkpoint is deleted. So the answer does not wait for the bytes, whatever their number. A workspace that is to be
// deleted waits until the artifacts that are read from it are stored ([Store.Finish]).
//
// Clients of S3 see artifacts as objects, with headers and an ETag. An upload in parts is a row in state uploading; its parts
// are parts "pNUMBER.ATTEMPT" of its space and rows of artifact_part. Completion makes the row an artifact in state storing,
// which is read from its parts, also later. A delete marker is a row in state marker: a name whose newest row is one does
// not exist but for clients of S3.
//
// A row is older than its space and its checkpoint, and is deleted after both (state deleting). So each row that a crash leaves
// tells the next [Open] what to remove or to store.
package artifact
