// Package archive is the archive of a data directory: one [chunk.Archive] that
// all workspaces and snapshots share, the store of its packs, and the background
// work on it. Package chunk is the format of the archive; this package chooses
// its store, collects its garbage, and slows down while other processes need the
// processor.
//
// Each workspace has a space, named by its id. The row of a workspace is
// inserted before its space is made, and deleted after that is dropped. A fork
// of a workspace forks the space too ([chunk.Archive.Fork]).
//
// # Format
//
//	DIR           see package chunk: chunks.db, and store/ with the packs
//	DIR/cache     a cache of the packs, if those are in another directory
//
// The store has an object owner/ID, and table archive of the control database
// has that ID: a store belongs to one data directory.
package archive
