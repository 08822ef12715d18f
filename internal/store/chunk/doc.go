// Package chunk is the archive below workspaces and snapshots: immutable bytes, cut by
// content into chunks, each stored once and compressed, in packs that any
// object store can hold.
//
// It knows no files and no journals. Its callers keep parts: a part is a named
// sparse string of bytes (what is left of a journal segment, a copy of an
// index, a stretch of a machine's memory), a space all parts of one owner (a workspace, a
// snapshot), replaced as a whole or part by part and never changed otherwise. A caller that
// knows better than the content says itself where a chunk ends ([Writer.AppendChunk]).
//
// # Objects
//
// All that the archive is lies in a [Store] as immutable objects, so that the
// store alone is enough to have everything back. Integers are little-endian,
// uvarints as in encoding/binary, checksums CRC-32C.
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
// chunks.db (SQLite) says the same as tables: where each chunk lies and which
// parts need it. It is derived: it is made again from the store by [Open], and in
// the background when it is found damaged later. It is out of service then: reads
// wait for it, all else is Unavailable.
//
// # Order of writing
//
// Packs, then the manifest, then the next version of the space, then one
// synced commit of the index: at every snapshot the newest version of a space in
// the store is whole, with all it needs. Removal goes the other way: the index
// forgets and notes the object in table doomed, in one synced commit; then
// objects go, versions of spaces first, manifests next, packs last. What a
// crash left between two steps is found by [Archive.Collect], which takes it
// into the index or removes it before it looks for garbage. Under the lock of
// changes whatever is in the store and not in the index is such a leftover. A
// change that fails between the two (torn) may have happened: a collection that
// has looked at the store before removes nothing more.
//
// Garbage is a chunk that no piece of any part needs. It goes with its pack
// when the whole pack has been garbage since the horizon, or is moved from
// when most of it has. A writer pins what it counts on (content that is there
// already) until it commits.
//
// # Reading
//
// Every chunk is verified when read: first its stored checksum, then its
// BLAKE3. Wrong bytes are an error with code corrupt and a log line that names
// chunk and pack, never returned. If the store is a [Cache], what it kept is
// discarded and the far store asked once more.
//
// # Lock order
//
// The turn (one long work at a time), then Archive.change, held by what changes
// one space during its few requests to the store, or Archive.clearing, held by
// what removes objects; then Archive.mu, held for snapshots and during the index
// commit of a sweep; then index.mu, held for reading while the index is used.
// Reads take no other. A collection moves, lists and looks
// without Archive.change and holds it to settle one leftover at a time.
//
// # Size
//
// Archive has more methods than the house's 25: spaces, commits, sweeps and checks
// stand on one index and the locks above, which a type for each would share whole.
package chunk
