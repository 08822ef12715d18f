// Package artifact keeps artifacts: immutable objects in buckets, with the place that they come from. An artifact outlives
// its computer and its workspace.
//
// It does not know the archive's format (package chunk) or workspaces: it reads those through interfaces that package
// daemon fills in.
//
// Format: tables bucket, artifact, artifact_link and artifact_part of the control database ([Schema]). The bytes of a small artifact are in its row;
// those of a larger one are the parts "body.N", a GiB each, of the archive's space that is named by the artifact's id. The archive stores
// equal chunks once, so an artifact and the file that it was published from share theirs.
//
// Publishing a file of a workspace takes a checkpoint that is named by the artifact's id, and a row in state storing. The
// artifact is read from that checkpoint until its bytes are in the archive; then its row has their SHA-256, and the
// checkpoint is deleted. So the answer does not wait for the bytes, whatever their number. A workspace that is to be
// deleted waits until the artifacts that are read from it are stored ([Store.Finish]).
//
// A link to an artifact is a row of table artifact_link with the hash of its secret. The door of previews answers it, with
// [Store.OpenLink] and, before the first byte, [Store.UseLink].
//
// In a bucket with a scan, the bytes are stored and scanned while the row is in state writing, also those of a file of a workspace.
// A column of the bucket counts its bytes, for its quota; rows in state writing have what they claim of it. A row with due is
// one that the rules of its bucket no longer allow.
//
// Clients of S3 see artifacts as objects, with headers and an ETag. An upload in parts is a row in state uploading; its parts
// are parts "pNUMBER.ATTEMPT" of its space and rows of artifact_part. Completion makes the row an artifact in state storing,
// which is read from its parts, also later. A delete marker is a row in state marker: a name whose newest row is one does
// not exist but for clients of S3.
//
// A row is older than its space and its checkpoint, and is deleted after both (state deleting). So each row that a crash leaves
// tells the next [Open] what to remove or to store.
package artifact
