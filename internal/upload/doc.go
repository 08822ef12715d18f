// Package upload receives files in pieces, over any number of connections, and commits each to a computer or workspace once
// it is complete.
//
// It is not a file system: an upload waits for its commit, and expires if no bytes are added for a day
// ([holt.UploadKept]). It does not know HTTP; package httpapi speaks tus and JSON.
//
// Format: each upload has a row of the control database ([Schema]) and a file in the data directory. The length of the file
// is the upload's offset, so the next daemon continues where a killed one stopped. A piece with a checksum counts only when it is complete and
// checked: until then the row has the offset at which the piece starts ([SureSchema]), and that is the upload's offset.
//
// A commit compares the SHA-256, writes the file to the computer or workspace, records the result in the row, and deletes
// the upload's file. If the daemon is killed before the record, a repeat writes the same bytes again.
//
// One call at a time appends to an upload. A later call takes the upload over and ends the earlier one, whose connection
// is most likely dead.
//
// Lock order: the lock of an upload, then Store.mu.
package upload
