// Package chunk stores immutable bytes for workspaces and snapshots: cut by content
// into chunks, each stored once and compressed, in packs that any object store
// can hold.
//
// It does not know files or journals. Callers store parts. A part is a named
// sparse string of bytes, such as a journal segment, a copy of an index, or a
// range of a machine's memory. A space is all parts of one owner, such as a
// workspace or a snapshot. Parts are replaced as a whole, never modified. A
// caller may set the boundaries of chunks itself ([Writer.AppendChunk]).
//
// # Objects
//
// The archive is a set of immutable objects in a [Store]. The store alone is
// enough to restore everything. Integers are little-endian, uvarints as in
// encoding/binary, checksums CRC-32C.
//
//	pack/<2 digits>/<id>      id: 128 random bits, in hexadecimal
//	  0  magic "HOLTPAK1"        8  id
//	 24  stored bytes of chunks, one behind the other: a zstd frame, or the content if it is no longer
//	     table, 44 bytes a chunk: BLAKE3-256 of the content, stored length u32, content length u32, checksum of the stored bytes
//	     foot: "HOLTEND1", id, chunks u32, checksum of the table u32, 0 u32, checksum of the foot u32
//	manifest/<2 digits>/<id>  what one part is
//	  magic "HOLTMAN1", id, number of chunks uvarint, their ids, number of pieces uvarint, then per piece by offset:
//	  gap after the one before, length, number of the chunk, where in the chunk (uvarints); checksum u32 of all before
//	space/<name>/<version, 16 digits>   what parts a space has; the highest version counts
//	  magic "HOLTSPC1", length u8 and name, version u64, number of parts uvarint, then per part by name:
//	  length u8 and name, id of the manifest; checksum u32 of all before
//
// A pack is closed at 12 MiB of stored bytes, a chunk is at most 512 KiB of
// content, so a pack stays below 16 MiB.
//
// # Index
//
// chunks.db (SQLite) is an index of the store: where each chunk lies and which
// parts need it. [Open] rebuilds it from the store if it is missing or damaged;
// damage found later is repaired in the background. Until then reads wait and
// other calls return Unavailable.
//
// # Order of writing
//
// A change stores packs, then the manifest, then the next version of the space,
// and then commits the index, synced. So at all times the newest version of a
// space in the store is complete. Removal is in reverse order: one synced commit
// deletes rows of the index and records the objects in table doomed; then the
// objects are removed: versions of spaces first, then manifests, then packs.
// [Archive.Collect] finds leftovers of a crash between two steps and adopts or
// removes them before it looks for garbage. Under the lock of changes, an object
// in the store that is not in the index is such a leftover. A change that fails
// between store and index is torn: it may have taken effect. A collection that
// listed the store before a torn change removes nothing more.
//
// Garbage is a chunk that no piece of any part refers to. A pack is removed when
// all of it has been garbage since the horizon. A pack that is mostly garbage is
// removed after its live chunks are moved. A writer pins the existing chunks that
// it refers to until it commits.
//
// # Reading
//
// Every chunk is verified when read: the stored checksum, then the BLAKE3. Wrong
// bytes are never returned: the error is Corrupt, and a log line names chunk and
// pack. If the store is a [Cache], the cached block is discarded and fetched
// again first.
//
// # Lock order
//
// The turn (one background job at a time), then Archive.change, held while one
// space is changed, or Archive.clearing, held while objects are removed; then
// Archive.mu, held briefly and during the index commit of a sweep; then index.mu,
// held for reading while the index is used. Reads take only index.mu. A
// collection moves and lists without Archive.change and takes it to settle one
// leftover at a time.
//
// # Size
//
// Archive has more than 25 methods because spaces, commits, sweeps and checks
// share one index and the locks above.
package chunk
