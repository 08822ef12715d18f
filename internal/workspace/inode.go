package workspace

import (
	"sync/atomic"
	"syscall"
)

// stage says whether a cached value still has to be written to the index.
type stage uint8

// Batches of dirty values alternate between two stages, so that what changes
// while a batch is written is told from what the batch holds.
const (
	clean stage = iota
	dirtyA
	dirtyB
)

// node is what the index holds of an inode, but for what few have.
type node struct {
	ino    Ino
	size   int64 // of a directory: its entries
	alloc  int64 // bytes its extents cover
	atime  int64
	mtime  int64
	ctime  int64
	btime  int64
	mode   uint32
	uid    uint32
	gid    uint32
	nlink  uint32
	rdev   uint32
	writer uint32
	born   uint32
	data   uint32 // version that its bytes are from: where it is the same, they are
}

// inode is a cached inode. There may be millions: every byte counts.
type inode struct {
	node

	slot    uint32        // in the cache's ring
	lookups atomic.Uint32 // what the kernels hold, as far as counted
	used    atomic.Bool   // since the clock passed
	stage   stage
	freed   bool // gone, but the index does not know yet
	indexed bool // the index may have rows of it
	plain   bool // it is known to have no extended attributes

	dir   *dir   // directories
	file  *file  // regular files whose extents are (partly) loaded
	extra *extra // symlink targets, xattrs
}

// extra is what few inodes have. A guest says how long it is, so the bytes of
// all that are cached are bounded by Options.CacheValues.
type extra struct {
	held   int // bytes, as counted in inodeCache.values
	target string
	xattrs map[string]xattr // nil: not loaded, or none
}

type xattr struct {
	value []byte
	born  uint32
	stage stage
	gone  bool
}

func (in *inode) kind() uint32 { return in.mode & syscall.S_IFMT }
func (in *inode) isDir() bool  { return in.kind() == syscall.S_IFDIR }
func (in *inode) isFile() bool { return in.kind() == syscall.S_IFREG }

func (in *inode) attr() Attr {
	return Attr{Ino: in.ino, Mode: in.mode, UID: in.uid, GID: in.gid, Nlink: in.nlink, Rdev: in.rdev,
		Size: in.size, Blocks: (in.alloc + 511) / 512, Atime: in.atime, Mtime: in.mtime, Ctime: in.ctime, Btime: in.btime}
}

func (in *inode) touch() {
	if !in.used.Load() {
		in.used.Store(true)
	}
}
