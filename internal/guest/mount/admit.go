package mount

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"syscall"

	"holt"
)

// Limits of messages of a guest's kernel. They are the kernel's own, so a
// larger message is invalid.
const (
	maxName      = 255       // bytes; for a longer name the answer is ENAMETOOLONG
	maxNameSent  = 4096      // PATH_MAX: no kernel sends a longer name
	maxTarget    = 4095      // target of a symbolic link
	maxXattr     = 64 << 10  // XATTR_SIZE_MAX and XATTR_LIST_MAX
	maxIoctlIn   = 16 << 10  // an ioctl's size has 14 bits
	maxTransfer  = 1 << 20   // READ, WRITE, READDIR: maximum negotiated by INIT
	maxNode      = 1<<63 - 1 // inode numbers fit SQLite's integers
	minInitMinor = 31        // Linux 5.4
)

// Known bits of a request's flags.
const (
	knownSetattr = 1<<12 - 1 // FATTR_*
	knownRename  = 1 | 2 | 4 // RENAME_NOREPLACE, EXCHANGE, WHITEOUT
	setattrMode  = 1 << 0
	setattrUID   = 1 << 1
	setattrGID   = 1 << 2
	setattrSize  = 1 << 3
	setattrAtime = 1 << 4
	setattrMtime = 1 << 5
	setattrCtime = 1 << 10
)

// pollName is a file in the root that go-fuse serves itself, with a node of its
// own. The workspace cannot have a file of that name.
//
// A Go process that uses a mount which it serves, or whose messages it forwards,
// must call poll(2) on that file once: after the error the kernel does not ask
// again. Otherwise the runtime's epoll waits for an answer on a thread that keeps
// other goroutines from giving it.
const (
	pollName = ".go-fuse-epoll-hack"
	pollNode = math.MaxUint64
)

// message is a raw FUSE request with its header, as received. Numbers are
// little-endian: host and guest have the same processor architecture.
type message []byte

func (m message) length() uint32         { return binary.LittleEndian.Uint32(m) }
func (m message) opcode() uint32         { return binary.LittleEndian.Uint32(m[4:]) }
func (m message) unique() uint64         { return binary.LittleEndian.Uint64(m[8:]) }
func (m message) node() uint64           { return binary.LittleEndian.Uint64(m[16:]) }
func (m message) reserved() uint32       { return binary.LittleEndian.Uint32(m[36:]) }
func (m message) body() []byte           { return m[inHeaderSize:] }
func (m message) u32(at int) uint32      { return binary.LittleEndian.Uint32(m[inHeaderSize+at:]) }
func (m message) u64(at int) uint64      { return binary.LittleEndian.Uint64(m[inHeaderSize+at:]) }
func (m message) setSlot(slot uint16)    { binary.LittleEndian.PutUint16(m[38:], slot) }
func (m message) tailFrom(at int) []byte { return m[inHeaderSize+at:] }

// terms are the results of INIT.
type terms struct {
	ready     bool   // INIT was answered; before that only INIT is allowed
	transfer  uint32 // maximum size of READ, WRITE and READDIR, bytes
	longXattr bool   // SETXATTR carries 16 bytes (FUSE_SETXATTR_EXT), not 8
}

// verdict is the decision about an admitted message.
type verdict struct {
	answer bool          // answer errno at once, without go-fuse
	errno  syscall.Errno // 0: success with an empty body
}

// admit checks one message of a hostile kernel before any other code sees it.
// An error means that no kernel sends such a message, and ends the session. A
// valid message that is not supported is answered at once.
func admit(m message, t terms) (verdict, error) {
	if err := admitHeader(m, t); err != nil {
		return verdict{}, err
	}
	s := shapes[m.opcode()]
	size := s.size
	switch op := m.opcode(); {
	case op == opSetxattr && t.longXattr:
		size = 16
	case op == opInit && len(m.body()) == 16:
		size = 16 // before protocol 7.36
	}
	if len(m.body()) < size {
		return verdict{}, refuse(m, "it has %d bytes, its structure has %d", len(m.body()), size)
	}
	v, err := admitTail(m, s.tail, size, t)
	if err != nil || v.answer {
		return v, err
	}
	if m.node() == pollNode {
		return admitPoll(m)
	}
	return admitFields(m, t)
}

// admitPoll answers requests for pollName.
func admitPoll(m message) (verdict, error) {
	switch m.opcode() {
	case opGetattr, opForget:
		return verdict{}, nil // go-fuse has this node
	case opOpen, opPoll, opFlush:
		return answer(syscall.ENOSYS)
	case opRelease:
		return answer(0)
	}
	return answer(syscall.EPERM)
}

// refuse returns the error that ends a session.
func refuse(m message, format string, args ...any) error {
	return holt.Errorf(holt.InvalidArgument, "FUSE %s: %s", opName(m.opcode()), fmt.Sprintf(format, args...)).
		WithHint("the guest's kernel or agent is broken or hostile; the session is closed")
}

func answer(errno syscall.Errno) (verdict, error) { return verdict{answer: true, errno: errno}, nil }

func admitHeader(m message, t terms) error {
	if len(m) < inHeaderSize {
		return holt.Errorf(holt.InvalidArgument, "FUSE message of %d bytes is shorter than its header", len(m))
	}
	op := m.opcode()
	switch {
	case op >= opCount || shapes[op].name == "":
		return refuse(m, "not allowed")
	case uint64(m.length()) != uint64(len(m)):
		return refuse(m, "its length field is %d, but it has %d bytes", m.length(), len(m))
	case m.reserved() != 0:
		return refuse(m, "it has extensions, which were not negotiated")
	case m.unique() == 0:
		return refuse(m, "no unique")
	case m.node() > maxNode && m.node() != pollNode:
		return refuse(m, "node %d out of range", m.node())
	case !t.ready && op != opInit:
		return refuse(m, "before INIT")
	case t.ready && op == opInit:
		return refuse(m, "it was sent a second time")
	}
	switch op {
	case opInit, opDestroy, opInterrupt, opBatchForget, opStatfs:
	default:
		if m.node() == 0 {
			return refuse(m, "no node")
		}
	}
	return nil
}

// admitTail checks the bytes after the structure, which ends at size.
func admitTail(m message, kind tail, size int, t terms) (verdict, error) {
	rest := m.tailFrom(size)
	switch kind {
	case tailNone:
		if len(rest) != 0 {
			return verdict{}, refuse(m, "it has %d extra bytes", len(rest))
		}
		return verdict{}, nil
	case tailName, tailRename, tailSymlink:
		return admitNames(m, kind, rest)
	case tailXattr, tailValue:
		return admitXattr(m, kind, rest)
	case tailData:
		if n := m.u32(16); n > t.transfer || uint64(len(rest)) != uint64(n) {
			return verdict{}, refuse(m, "it has %d bytes of data, its size field is %d, the maximum is %d", len(rest), n, t.transfer)
		}
	case tailForgets:
		if n := m.u32(0); n == 0 || uint64(len(rest)) != uint64(n)*forgetOneSize {
			return verdict{}, refuse(m, "it has %d bytes for %d entries", len(rest), n)
		}
		for ; len(rest) > 0; rest = rest[forgetOneSize:] {
			if node := binary.LittleEndian.Uint64(rest); node == 0 || node > maxNode && node != pollNode {
				return verdict{}, refuse(m, "node %d out of range", node)
			}
		}
	case tailIoctl:
		if len(rest) > maxIoctlIn {
			return verdict{}, refuse(m, "it has an argument of %d bytes", len(rest))
		}
		return answer(syscall.ENOTTY) // no ioctl is supported
	case tailIgnored:
		if name, more, ok := cutName(rest); !ok || len(name) > maxNameSent || len(more) != 0 {
			return verdict{}, refuse(m, "it has %d bytes after the name", len(rest))
		}
	}
	return verdict{}, nil
}

// cutName cuts one NUL-terminated name off b.
func cutName(b []byte) (name, rest []byte, ok bool) {
	name, rest, ok = bytes.Cut(b, []byte{0})
	return name, rest, ok && len(name) > 0
}

func admitNames(m message, kind tail, rest []byte) (verdict, error) {
	name, rest, ok := cutName(rest)
	if !ok {
		return verdict{}, refuse(m, "no name")
	}
	v, err := admitName(m, name)
	if err != nil {
		return v, err
	}
	switch kind {
	case tailRename:
		second, more, ok := cutName(rest)
		if !ok {
			return verdict{}, refuse(m, "it has no second name")
		}
		w, err := admitName(m, second)
		if err != nil {
			return w, err
		}
		if rest = more; w.answer {
			v = w
		}
	case tailSymlink:
		target, more, ok := cutName(rest)
		if !ok || len(target) > maxTarget {
			return verdict{}, refuse(m, "it has a target of %d bytes", len(target))
		}
		rest = more
	}
	if len(rest) != 0 {
		return verdict{}, refuse(m, "it has %d bytes after the name", len(rest))
	}
	return v, nil
}

// admitName checks the name of a directory entry. A kernel sends names of up to
// PATH_MAX and leaves ENAMETOOLONG to the file system.
func admitName(m message, name []byte) (verdict, error) {
	switch {
	case len(name) > maxNameSent:
		return verdict{}, refuse(m, "it has a name of %d bytes", len(name))
	case bytes.IndexByte(name, '/') >= 0:
		return verdict{}, refuse(m, "it has a name with a slash")
	case (string(name) == "." || string(name) == "..") && m.opcode() != opLookup: // LOOKUP resolves file handles by these names
		return verdict{}, refuse(m, "it has the name %q", name)
	case len(name) > maxName:
		return answer(syscall.ENAMETOOLONG)
	case string(name) == pollName && m.node() == 1 && m.opcode() != opLookup:
		return answer(syscall.EPERM)
	}
	return verdict{}, nil
}

func admitXattr(m message, kind tail, rest []byte) (verdict, error) {
	name, value, ok := cutName(rest)
	switch {
	case !ok || len(name) > maxName:
		return verdict{}, refuse(m, "it has an attribute name of %d bytes", len(name))
	case kind == tailXattr && len(value) != 0:
		return verdict{}, refuse(m, "it has %d bytes after the name", len(value))
	case kind == tailValue && (len(value) > maxXattr || uint64(len(value)) != uint64(m.u32(0))):
		return verdict{}, refuse(m, "it has a value of %d bytes, its size field is %d", len(value), m.u32(0))
	}
	return verdict{}, nil
}

// admitFields checks the numbers of a request with valid lengths.
func admitFields(m message, t terms) (verdict, error) {
	switch m.opcode() {
	case opInit:
		if m.u32(0) != 7 || m.u32(4) < minInitMinor {
			return verdict{}, refuse(m, "protocol %d.%d is not supported", m.u32(0), m.u32(4))
		}
	case opRead, opReaddir, opReaddirplus:
		if n := m.u32(16); n > t.transfer {
			return verdict{}, refuse(m, "its size is %d bytes, the maximum is %d", n, t.transfer)
		}
		if m.opcode() == opRead {
			return verdict{}, admitRange(m, m.u64(8), uint64(m.u32(16)))
		}
	case opWrite:
		return verdict{}, admitRange(m, m.u64(8), uint64(m.u32(16)))
	case opFallocate:
		return verdict{}, admitRange(m, m.u64(8), m.u64(16))
	case opCopyFileRange:
		if out := m.u64(16); out == 0 || out > maxNode {
			return verdict{}, refuse(m, "node %d out of range", out)
		}
		if err := admitRange(m, m.u64(8), m.u64(40)); err != nil {
			return verdict{}, err
		}
		return verdict{}, admitRange(m, m.u64(32), m.u64(40))
	case opGetxattr, opListxattr:
		if m.u32(0) > maxXattr {
			return verdict{}, refuse(m, "it has a buffer of %d bytes", m.u32(0))
		}
	case opSetattr:
		return verdict{}, admitSetattr(m)
	case opRename, opLink:
		if m.u64(0) == 0 || m.u64(0) > maxNode {
			return verdict{}, refuse(m, "node %d out of range", m.u64(0))
		}
	case opRename2:
		if m.u64(0) == 0 || m.u64(0) > maxNode || m.u32(8)&^knownRename != 0 {
			return verdict{}, refuse(m, "node %d, flags %#x", m.u64(0), m.u32(8))
		}
	case opMknod:
		return verdict{}, admitMknod(m)
	case opLseek:
		if whence := m.u32(16); whence != 3 && whence != 4 { // SEEK_DATA, SEEK_HOLE
			return answer(syscall.EINVAL)
		}
		if m.u64(8) > math.MaxInt64 {
			return answer(syscall.ENXIO)
		}
	case opAccess, opPoll, opBmap, opCopyFileRange64:
		return answer(syscall.ENOSYS)
	case opDestroy:
		return answer(0)
	}
	return verdict{}, nil
}

// admitRange checks that the end of a file range fits off_t.
func admitRange(m message, off, n uint64) error {
	if off > math.MaxInt64 || n > math.MaxInt64-off {
		return refuse(m, "invalid range of %d bytes at offset %d", n, off)
	}
	return nil
}

func admitSetattr(m message) error {
	valid, has := m.u32(0), func(bit uint32) bool { return m.u32(0)&bit != 0 }
	switch {
	case valid&^uint32(knownSetattr) != 0:
		return refuse(m, "unknown attributes %#x", valid)
	case has(setattrSize) && m.u64(16) > math.MaxInt64:
		return refuse(m, "size %d", m.u64(16))
	case has(setattrMode) && m.u32(68)&^uint32(syscall.S_IFMT|0o7777) != 0:
		return refuse(m, "mode %#o", m.u32(68))
	case has(setattrUID) && m.u32(76) == math.MaxUint32, has(setattrGID) && m.u32(80) == math.MaxUint32:
		return refuse(m, "invalid owner")
	case has(setattrAtime) && m.u32(56) >= 1e9, has(setattrMtime) && m.u32(60) >= 1e9, has(setattrCtime) && m.u32(64) >= 1e9:
		return refuse(m, "invalid nanoseconds")
	}
	return nil
}

func admitMknod(m message) error {
	switch m.u32(0) & syscall.S_IFMT {
	case syscall.S_IFREG, syscall.S_IFIFO, syscall.S_IFSOCK, syscall.S_IFCHR, syscall.S_IFBLK:
		return nil
	}
	return refuse(m, "mode %#o", m.u32(0))
}
