package mount

import "fmt"

// Opcodes of the FUSE protocol that a Linux kernel can send over a file
// channel; include/uapi/linux/fuse.h.
const (
	opLookup          = 1
	opForget          = 2
	opGetattr         = 3
	opSetattr         = 4
	opReadlink        = 5
	opSymlink         = 6
	opMknod           = 8
	opMkdir           = 9
	opUnlink          = 10
	opRmdir           = 11
	opRename          = 12
	opLink            = 13
	opOpen            = 14
	opRead            = 15
	opWrite           = 16
	opStatfs          = 17
	opRelease         = 18
	opFsync           = 20
	opSetxattr        = 21
	opGetxattr        = 22
	opListxattr       = 23
	opRemovexattr     = 24
	opFlush           = 25
	opInit            = 26
	opOpendir         = 27
	opReaddir         = 28
	opReleasedir      = 29
	opFsyncdir        = 30
	opAccess          = 34
	opCreate          = 35
	opInterrupt       = 36
	opBmap            = 37
	opDestroy         = 38
	opIoctl           = 39
	opPoll            = 40
	opBatchForget     = 42
	opFallocate       = 43
	opReaddirplus     = 44
	opRename2         = 45
	opLseek           = 46
	opCopyFileRange   = 47
	opSyncfs          = 50
	opTmpfile         = 51
	opStatx           = 52
	opCopyFileRange64 = 53
	opCount           = 54
)

// Sizes of the fixed parts of messages, bytes.
const (
	inHeaderSize  = 40 // struct fuse_in_header
	outHeaderSize = 16 // struct fuse_out_header
	forgetOneSize = 16 // struct fuse_forget_one
)

// tail is the kind of data after the fixed part of a request.
type tail uint8

const (
	tailNone    tail = iota
	tailName         // one name of a directory entry
	tailRename       // two names
	tailSymlink      // a name, then the link's target
	tailXattr        // the name of an attribute
	tailValue        // the name of an attribute, then its value
	tailData         // bytes to write
	tailForgets      // an array of struct fuse_forget_one
	tailIoctl        // input of the ioctl
	tailIgnored      // one name that is ignored (TMPFILE sends "/")
)

// shape is the format of one opcode's request: the size of the structure after
// the header, and what follows it. The zero shape is not allowed.
type shape struct {
	name string
	size int
	tail tail
}

// shapes is the allow list. A guest may not send others: locks (never
// negotiated), DAX mappings, retrieved caches, CUSE, and unknown opcodes.
var shapes = [opCount]shape{
	opLookup:          {"LOOKUP", 0, tailName},
	opForget:          {"FORGET", 8, tailNone},
	opGetattr:         {"GETATTR", 16, tailNone},
	opSetattr:         {"SETATTR", 88, tailNone},
	opReadlink:        {"READLINK", 0, tailNone},
	opSymlink:         {"SYMLINK", 0, tailSymlink},
	opMknod:           {"MKNOD", 16, tailName},
	opMkdir:           {"MKDIR", 8, tailName},
	opUnlink:          {"UNLINK", 0, tailName},
	opRmdir:           {"RMDIR", 0, tailName},
	opRename:          {"RENAME", 8, tailRename},
	opLink:            {"LINK", 8, tailName},
	opOpen:            {"OPEN", 8, tailNone},
	opRead:            {"READ", 40, tailNone},
	opWrite:           {"WRITE", 40, tailData},
	opStatfs:          {"STATFS", 0, tailNone},
	opRelease:         {"RELEASE", 24, tailNone},
	opFsync:           {"FSYNC", 16, tailNone},
	opSetxattr:        {"SETXATTR", 8, tailValue},
	opGetxattr:        {"GETXATTR", 8, tailXattr},
	opListxattr:       {"LISTXATTR", 8, tailNone},
	opRemovexattr:     {"REMOVEXATTR", 0, tailXattr},
	opFlush:           {"FLUSH", 24, tailNone},
	opInit:            {"INIT", 64, tailNone},
	opOpendir:         {"OPENDIR", 8, tailNone},
	opReaddir:         {"READDIR", 40, tailNone},
	opReleasedir:      {"RELEASEDIR", 24, tailNone},
	opFsyncdir:        {"FSYNCDIR", 16, tailNone},
	opAccess:          {"ACCESS", 8, tailNone},
	opCreate:          {"CREATE", 16, tailName},
	opInterrupt:       {"INTERRUPT", 8, tailNone},
	opBmap:            {"BMAP", 16, tailNone},
	opDestroy:         {"DESTROY", 0, tailNone},
	opIoctl:           {"IOCTL", 32, tailIoctl},
	opPoll:            {"POLL", 24, tailNone},
	opBatchForget:     {"BATCH_FORGET", 8, tailForgets},
	opFallocate:       {"FALLOCATE", 32, tailNone},
	opReaddirplus:     {"READDIRPLUS", 40, tailNone},
	opRename2:         {"RENAME2", 16, tailRename},
	opLseek:           {"LSEEK", 24, tailNone},
	opCopyFileRange:   {"COPY_FILE_RANGE", 56, tailNone},
	opSyncfs:          {"SYNCFS", 8, tailNone},
	opTmpfile:         {"TMPFILE", 16, tailIgnored},
	opStatx:           {"STATX", 24, tailNone},
	opCopyFileRange64: {"COPY_FILE_RANGE_64", 56, tailNone},
}

// opName returns the name of an opcode for logs.
func opName(op uint32) string {
	if op < opCount && shapes[op].name != "" {
		return shapes[op].name
	}
	return fmt.Sprintf("opcode %d", op)
}
