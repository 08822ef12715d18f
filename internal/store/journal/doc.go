// Package journal is an append-only log in segments: what a workspace did and
// the bytes that were written, each record guarded by checksums.
//
// It is not an index and knows nothing of files: a record is opaque meta plus
// an opaque payload. It does not order its callers either: appends come from
// one goroutine at a time (the workspace's lock); Sync and ReadData may run
// beside them.
//
// # Format
//
// A journal is a directory of files <id>.seg, id being 32 hexadecimal digits:
// 128 random bits, never a counter, so that segments of forks can lie in one
// place. All integers are little-endian.
//
//	segment header, 128 bytes:
//	  0  magic "HOLTSEG1"        8  version u32     12 block size u32
//	 16  id                     32  ordinal u64     40 id of the segment before (zeros: none)
//	 56  end of the one before, u64                 64 created, ns since 1970, i64
//	 72  zeros                 124  CRC-32C of the 124 bytes before
//	record:
//	  0  CRC-32C u32 over: segment id, offset u64, then the rest of the head, meta, table
//	  4  meta length u32         8  data length u32
//	 12  meta, then table (CRC-32C u32 of each 32 KiB block of data), then data
//
// The checksum is salted with the segment's id and the record's offset, so
// bytes that look like a record (file contents may be anything) are not one.
// The table stands right before the data: whoever knows where data begins and
// how long it is can verify any part of it (see [Journal.ReadData]).
//
// A [Pos] is (ordinal, offset) in one integer. The header of a segment says
// where the one before ends; what lies behind that end is garbage of a failed
// or torn append and is never read. A sealed segment is never changed, only
// unlinked.
//
// # Recovery
//
// [Journal.Recover] yields records from a position on and stops at the first
// that is not whole: an exact prefix. Segments behind that point are put aside
// as <id>.lost. If the last segment has bytes behind its last record that are
// not all zero, the next append starts a new segment and leaves them as they are.
//
// # Durability
//
// An append is one write to the page cache: it survives the death of the
// process. [Journal.Sync] makes everything before a position survive power
// loss; concurrent calls share one fdatasync. After a failed fdatasync the
// kernel may have dropped dirty pages while calling them clean, so the next
// Sync first verifies and writes again what was not known to be synced.
//
// While syncs are small, zeros are written ahead of the end, so that fdatasync
// need not commit the file's size each time; a segment may end in up to 256 KiB
// of them.
//
// # Lock order
//
// syncMu before mu; both are leaves for callers. mu is held during the write
// of an append, never during fdatasync.
package journal
