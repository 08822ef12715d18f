// Package journal is an append-only log in segments: the operations of a
// workspace and the bytes written, each record protected by checksums.
//
// It is not an index and does not know files: a record is opaque meta plus an
// opaque payload. It does not order its callers: Append must be called by one
// goroutine at a time (under the workspace's lock). Sync and ReadData may run
// concurrently with it.
//
// # Format
//
// A journal is a directory of files <id>.seg, where id is 32 hexadecimal digits:
// 128 random bits, not a counter, so that segments of forks can be in one
// directory. All integers are little-endian.
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
// The checksum is salted with the segment's id and the record's offset, so that
// file contents that look like a record are not taken for one. The table is
// directly before the data: a reader that knows the offset and length of data
// can verify any part of it (see [Journal.ReadData]).
//
// A [Pos] is (ordinal, offset) in one integer. The header of a segment records
// the end of the previous one. Bytes behind that end are left by a failed or torn
// append and are never read. A sealed segment is never changed, only unlinked.
//
// # Recovery
//
// [Journal.Recover] yields records from a position and stops at the first one
// that is not complete: an exact prefix. Segments behind that point are renamed
// to <id>.lost. If the last segment has bytes behind its last record that are not
// all zero, the next append starts a new segment and does not touch them.
//
// # Durability
//
// An append is one write to the page cache: it survives the death of the process.
// [Journal.Sync] makes everything before a position survive power loss;
// concurrent calls share one fdatasync. After a failed fdatasync the kernel may
// have dropped dirty pages but report them clean, so the next Sync verifies and
// rewrites everything not known to be synced.
//
// While syncs are small, zeros are written ahead of the end, so that fdatasync
// need not commit the file's size each time. A segment may therefore end in up to
// 256 KiB of zeros.
//
// # Lock order
//
// syncMu before mu; both are leaves for callers. mu is held during the write
// of an append, never during fdatasync.
package journal
