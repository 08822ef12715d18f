// Package workspace is the file system of a workspace: names, inodes, bytes,
// who wrote them, and what survives. It is POSIX without FUSE: package mount
// turns kernel requests into calls of [Tree], package journal keeps the truth,
// and a SQLite database is its index.
//
// It does not check permissions (the kernel does, default_permissions), keeps
// no file handles (an inode number is all a caller needs) and no locks for
// callers (one kernel serves them). Access times change only when they are
// set: a read is never a change.
//
// # How an operation happens
//
// Validate, append one record to the journal, apply it to memory, answer: all
// under Tree.mu. [memory.apply] is the only code that changes state, live and in
// recovery, and depends on nothing but the state and the record; validation
// loads all that it needs, so that it cannot fail once the journal has the
// record. A failed append changes nothing.
//
// Answered operations survive the death of the process. [Tree.Fsync] makes
// them survive power loss. In the background [Tree.flush] cuts what is dirty
// at one position of the journal, syncs the journal up to it, and commits rows
// and position in one SQLite transaction. Recovery replays what lies behind
// that position. If the position is not the end of a whole record, the index
// is emptied and built again from the whole journal.
//
// # On disk
//
//	lock           flock'd by the one process that has the workspace open
//	journal/       segments, see package journal; meta of a record: see [op.encode]
//	index.db       SQLite, WAL; always some prefix of the journal. One with other tables is put aside
//	               (index.db.old) and built again from the journal, while the journal is whole; other views and
//	               indexes are made again in it
//	index.copy     of the index, while it is made for the archive
//	half           a fork that is being made; a directory with it is nothing, and is removed
//	unsynced       a new fork whose index may not be on the disk yet; holds the kernel's boot id
//	reserve        16 MiB of nothing, given up when the host's disk is full so that deleting still works; not here if
//	               the workspace shares another's ([Options].Reserve)
//
// Tables (schema.go has them to the letter, view.go the views files and tags):
//
//	entry(parent, name BLOB, ino, cookie, born)   a name in a directory. cookie: per directory, increasing, never
//	                        reused; it is the entry's place in readdir.
//	inode(ino, mode, uid, gid, nlink, size, alloc, rdev, atime, mtime, ctime, btime, target, parent, cookie, writer, born, data)
//	                        mode has the type bits; times are ns since 1970 in one integer. size of a directory is the
//	                        number of its entries; alloc the bytes that extents cover. target: of symlinks. parent and
//	                        cookie: of directories, "..", and the last cookie given out. writer: who changed it last
//	                        (0: unknown). nlink 0: unlinked, kept while a mount epoch is open. data: the version its
//	                        bytes are from; where it is the same, they are.
//	orphan(ino)             the inodes with nlink 0
//	extent(ino, off, len, segment, place, whole, delta, born)
//	                        bytes off..off+len of a file are those from delta on of the data of a record in a segment:
//	                        the data begins at byte place and is whole bytes long (journal.Data). What no extent covers
//	                        up to size is a hole. Extents of a file do not overlap, nor cross a multiple of 8 MiB.
//	segment(num, id)        num is the ordinal in this journal, id the 128 random bits that are unique everywhere
//	xattr(ino, name BLOB, value, born)
//	dir(ino, path, born)    the absolute path of every directory that has a name ("/" for the top): renaming a
//	                        directory changes the rows of the directories below it and no file's
//	writer(id, kind, name, run, terminal, token)
//	version(id, generation, writer)
//	                        born of a row is such an id: (generation, run) in one number. Ids grow with generations,
//	                        so a range of ids is a range of generations. A writer who changes a row that another has
//	                        changed since gets a new id, so that born of a row only grows.
//	past_inode, past_entry, past_extent, past_xattr, past_dir
//	                        the same rows with died: what was true from version born until version died. See Generations.
//	checkpoint(id, name, parent, auto, reason, run, flushed, time, generation, version, next_ino, files, bytes, mounts)
//	                        sees the rows born by version and not dead by then; inodes made later have next_ino or higher.
//	                        mounts: what it holds of guests' mounts (packMounts), or NULL
//	lineage(n, id, name, checkpoint, checkpoint_name, next_ino, time)
//	                        the workspaces that this one came from, oldest first: 128 random bits, what it was called then,
//	                        and where the next left it. The last is this one.
//	twin(origin, theirs, ours)
//	                        inode ours is the one that workspace origin made as theirs. Without a
//	                        row one of a number below a next_ino in the lineage is that workspace's.
//	merged(other, ino, mine, theirs)
//	                        what was merged from another, up to its checkpoint theirs, into what is checkpoint mine:
//	                        its inode, or (0) all that have no row. mine 0: a conflict, that waits since theirs
//	epoch(num, id, kind, request, reply)   open mounts, with their FUSE INIT and its answer
//	meta(key, value)        applied (journal position of the rows), last (of the record that ends there), replies
//	                        (position of the oldest record whose answer may be asked for again), generation, version,
//	                        changed, sealed (versions: the last that changed something, the last before the newest
//	                        checkpoint), head (checkpoint the present descends from), next_checkpoint,
//	                        stale (1 + the version from which a mount's kernel was not told of changes beside it),
//	                        next_ino, next_writer, next_epoch, next_adopted (see adopt.go), inodes, files, dirs, bytes, allocated
//
// Inode numbers, epochs, writers and cookies are never reused. The top
// directory is inode 1.
//
// # Generations
//
// The first change of a row in a new version moves the old row to the past
// ([memory.copyOnWrite], before anything changes). A checkpoint closes the generation,
// which is one record: later changes have higher versions. What a checkpoint
// sees is then one query over a table and its past (see point). A row that was
// born and died in one version is in no history; nor is an extent or attribute
// that was born and died in one generation, in versions of two writers. Directories keep their version
// within a generation while entries come and go: those have their own. A cookie
// is never given to another entry, not even by an exchange, so that the entries
// that came since a checkpoint are those with higher cookies.
//
// Deleting a checkpoint deletes the rows that were born and died between its
// neighbours. What runs did in between can then no longer be undone exactly.
//
// # Restores
//
// A restore or an undo makes a plan (names to remove and to add, inodes to make
// as they were), encodes it as parts, and journals them as one group: records
// of parts that change nothing, and an end that makes all of them happen
// ([Tree.commitParts]). Recovery ignores a group without its end. flushMu
// and mu are held from the checkpoint before it to its end, so that the index
// says exactly what memory does: the one place where mu is held during a
// commit. Extents are shared with the past, and an inode that comes back has
// its old number.
//
// # Forks
//
// A fork is a copy of the index and the same history up to where the parent's
// journal was sealed, which is a position at or behind the index, followed by
// one record (opFork) in a segment of its own. The record takes away what came
// after the checkpoint that was forked ([revert]): rows that were born later
// go, and rows that died later live again. Recovery does that when the fork is
// opened, so that making one needs no lock but those for the checkpoint and the
// seal, and the journal stays the truth: a fork whose index is lost is built
// again from linked segments and that record. No segment is unlinked while one
// is made ([Tree.holdSegments]).
//
// A checkpoint can hold what guests' mounts have: its record then carries their ids,
// terms and unacknowledged answers (mounts.go). The record that makes a fork of it
// carries the same, opens those epochs under their numbers, and is what recovery
// harvests their answers from: the requests that the other self of the guest sent
// after the checkpoint, under the same uniques, lie before it and count for
// nothing. Inodes that were open without a name are rows like others that the
// checkpoint sees.
//
// # Merges
//
// A merge compares, inode by inode, the other as it is with what was merged of
// it last (the base) and with what stands here, by what they hold and not by
// when they changed: so only the other's history is needed. Inodes are known by
// who made them. It makes a plan as a restore does, and journals it as one
// group, with what it has to remember; bytes that are only the other's are
// copied to the journal before (opBytes) and referred to by extents.
//
// # The archive
//
// Sealed segments that replay does not need go to the archive (package chunk),
// where the workspace is a space: the bytes that rows refer to, under the
// segment's id and at their offsets. No row and no record says so: an extent
// whose segment is not there is read from the archive. That is enough, since
// what may refer to a sealed segment only becomes less. Records are not
// archived: a segment is unlinked only once the archive has a copy of the index
// (part index.N) that needs none of segments before N. With that and the
// segments from N on the index can be made again at any time. A part of another
// space, such as an artifact's, becomes bytes of a file without a copy (adopt.go).
// Order: bytes, copy of the index, synced commit, unlink; and for what rows refer to no more:
// synced commit, then its part.
//
// # Requests that come twice
//
// A mutating record carries (epoch, unique). Until a watermark acknowledges it,
// a repeat gets the first answer: the inode with its attributes of now, or the
// count of bytes. Recovery harvests answers from meta.replies on. A request
// that failed left no record and is executed again.
//
// # Inodes without a name
//
// Unlinked ones, and those that never had one ([Tree.Tmpfile]; a link may give
// them one). They stay while an epoch is open, and go with the FORGET that drops the last
// counted lookup. After a takeover the counts of those that were there before are
// unknown: then only a FORGET of more lookups than were counted since frees one,
// and the end of the last epoch frees all.
//
// # Memory
//
// Inodes and entries are a cache over the index with a clock; dirty ones stay
// until written. What is as long as a guest likes, extended attributes and
// symlink targets, is bounded in bytes (values.go). Dirty values alternate between two stages (see batch), so
// what changes while a batch is being written is kept apart. A directory made
// here is known completely and asks SQLite nothing; one of up to 256 entries is
// loaded whole. ReadDir of a larger one merges rows with what is cached. The
// extents of a file are loaded by windows of 8 MiB; a block of 1 MiB that
// holds 1,024 of them is rewritten, as one, before the next change to it.
// Where a quota or a full disk keeps it from that, a change of a part of a block
// fails that holds 4,096.
//
// # Lock order
//
// From the first to the last:
//
//  1. the merge semaphores of both workspaces, that of the lower ID first (acquireBoth)
//  2. packer.running
//  3. flushMu
//  4. mu; in a merge that of the workspace merged into, while the other's is not held
//  5. the reserve's, while it is spent
//  6. the journal's own
//
// mu is never held during fdatasync or a commit, except for restores. The index's reading connection belongs to mu, held
// exclusively.
//
// A reader of the index that a call may hold for long (a check, a comparison, a sum: [db.DB.Read]) comes after the merge
// semaphores and before all other locks: such calls wait for each other, each as long as its context says. Code that holds
// packer.running, flushMu or a reader of the same workspace uses a reader that nothing waits for ([db.DB.ReadNow]). Code
// that reads a few rows waits only for others like it ([Tree.readBriefly]).
//
// # Traps
//
// apply must never meet an error that validation could have met: it breaks the
// tree on purpose. A value read from SQLite is stale as soon as mu is let go.
// A segment may be collected between finding an extent and reading it: Read
// looks again.
//
// # Types
//
// [Tree] has the operations, the journal, the locks and the flush. [memory] is the state that records make, and apply;
// it knows no journal and no lock. [inodeCache] bounds what is cached, [packer] moves segments to the archive. What reads
// states and changes nothing stands apart: [point] reads the index at a version, [delta] compares two points,
// restorePlanner, [undo] and [merge] make a [plan], and planEncoder turns a plan into parts. Tree and memory still have
// more methods than the house allows: the operations, and one apply method for each kind of record.
package workspace
