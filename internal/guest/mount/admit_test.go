package mount

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// testTerms are the terms of an ordinary mount.
var testTerms = terms{ready: true, transfer: maxTransfer}

// ask builds a request: numbers are appended little-endian in their size,
// strings as they are.
func ask(op uint32, node uint64, parts ...any) message {
	le := binary.LittleEndian
	m := make([]byte, inHeaderSize)
	le.PutUint32(m[4:], op)
	le.PutUint64(m[8:], 2)
	le.PutUint64(m[16:], node)
	for _, p := range parts {
		switch v := p.(type) {
		case uint32:
			m = le.AppendUint32(m, v)
		case uint64:
			m = le.AppendUint64(m, v)
		case string:
			m = append(m, v...)
		case int: // so many zeros
			m = append(m, make([]byte, v)...)
		default:
			panic("ask: a part of another type")
		}
	}
	le.PutUint32(m, uint32(len(m)))
	return m
}

const big = uint64(math.MaxInt64)

func TestAdmitPassesValidRequests(t *testing.T) {
	for _, m := range goodRequests() {
		if v, err := admit(m, testTerms); err != nil || v.answer {
			t.Errorf("%s: %+v, %v", opName(m.opcode()), v, err)
		}
	}
	if _, err := admit(askInit(31), terms{}); err != nil {
		t.Error(err)
	}
	if _, err := admit(ask(opInit, 0, uint32(7), uint32(35), uint32(1<<17), uint32(0)), terms{}); err != nil {
		t.Errorf("INIT before 7.36: %v", err)
	}
	long := terms{ready: true, transfer: maxTransfer, longXattr: true}
	if _, err := admit(ask(opSetxattr, 1, uint32(3), 12, "user.x\x00abc"), long); err != nil {
		t.Errorf("long SETXATTR: %v", err)
	}
}

func askInit(minor uint32) message {
	return ask(opInit, 0, uint32(7), minor, uint32(1<<17), uint32(math.MaxUint32), uint32(math.MaxUint32), 44)
}

// goodRequests returns one request of each kind that is passed to go-fuse.
func goodRequests() []message {
	return []message{
		ask(opLookup, 1, "name\x00"),
		ask(opLookup, 1, strings.Repeat("\xff", 255)+"\x00"),
		ask(opForget, 7, uint64(1)),
		ask(opLookup, 1, pollName+"\x00"),
		ask(opGetattr, pollNode, 16),
		ask(opGetattr, 1, 16),
		ask(opSetattr, 2, uint32(knownSetattr), 12, big, 8, uint64(1), uint64(2), uint64(3), uint32(999999999), 8, uint32(0o100644), 4, uint32(1000), uint32(1000), 4),
		ask(opReadlink, 2),
		ask(opSymlink, 1, "l\x00../../any/where\x00"),
		ask(opSymlink, 1, "l\x00", strings.Repeat("t", maxTarget), "\x00"),
		ask(opMknod, 1, uint32(syscall.S_IFIFO|0o644), 12, "p\x00"),
		ask(opMkdir, 1, uint32(0o755), 4, "d\x00"),
		ask(opUnlink, 1, "n\x00"),
		ask(opRmdir, 1, "n\x00"),
		ask(opRename, 1, uint64(1), "a\x00b\x00"),
		ask(opRename2, 1, uint64(1), uint32(2), 4, "a\x00b\x00"),
		ask(opLink, 1, uint64(2), "n\x00"),
		ask(opOpen, 2, 8),
		ask(opRead, 2, 8, uint64(0), uint32(maxTransfer), 20),
		ask(opWrite, 2, 8, uint64(0), uint32(4), 20, "data"),
		ask(opStatfs, 0),
		ask(opRelease, 2, 24),
		ask(opFsync, 2, 16),
		ask(opSetxattr, 2, uint32(3), 4, "user.x\x00abc"),
		ask(opGetxattr, 2, uint32(maxXattr), 4, "security.capability\x00"),
		ask(opListxattr, 2, uint32(0), 4),
		ask(opRemovexattr, 2, "user.x\x00"),
		ask(opFlush, 2, 24),
		ask(opOpendir, 1, 8),
		ask(opReaddir, 1, 8, uint64(0), uint32(4096), 20),
		ask(opReaddirplus, 1, 8, uint64(0), uint32(4096), 20),
		ask(opReleasedir, 1, 24),
		ask(opFsyncdir, 1, 16),
		ask(opCreate, 1, uint32(syscall.O_CREAT), uint32(0o644), 8, "n\x00"),
		ask(opInterrupt, 0, uint64(2)),
		ask(opBatchForget, 0, uint32(2), 4, uint64(2), uint64(1), uint64(3), uint64(9)),
		ask(opFallocate, 2, 8, uint64(0), big, 8),
		ask(opLseek, 2, 8, uint64(0), uint32(3), 4),
		ask(opCopyFileRange, 2, 8, uint64(0), uint64(3), 8, uint64(0), uint64(1<<20), 8),
		ask(opSyncfs, 1, 8),
		ask(opStatx, 2, 24),
		ask(opTmpfile, 1, 16, "/\x00"),
	}
}

func TestAdmitAnswersAtOnce(t *testing.T) {
	for _, c := range []struct {
		m     message
		errno syscall.Errno
	}{
		{ask(opLookup, 1, strings.Repeat("n", 256)+"\x00"), syscall.ENAMETOOLONG},
		{ask(opMkdir, 1, 8, strings.Repeat("n", 4095)+"\x00"), syscall.ENAMETOOLONG},
		{ask(opRename2, 1, uint64(1), 8, "a\x00"+strings.Repeat("n", 300)+"\x00"), syscall.ENAMETOOLONG},
		{ask(opOpen, pollNode, 8), syscall.ENOSYS},
		{ask(opPoll, pollNode, 24), syscall.ENOSYS},
		{ask(opRelease, pollNode, 24), 0},
		{ask(opSetattr, pollNode, 88), syscall.EPERM},
		{ask(opMkdir, 1, 8, pollName+"\x00"), syscall.EPERM},
		{ask(opIoctl, 2, 32, "arg"), syscall.ENOTTY},
		{ask(opAccess, 1, 8), syscall.ENOSYS},
		{ask(opPoll, 1, 24), syscall.ENOSYS},
		{ask(opBmap, 1, 16), syscall.ENOSYS},
		{ask(opCopyFileRange64, 1, 56), syscall.ENOSYS},
		{ask(opLseek, 2, 8, uint64(0), uint32(0), 4), syscall.EINVAL},
		{ask(opLseek, 2, 8, big+1, uint32(3), 4), syscall.ENXIO},
		{ask(opDestroy, 0), 0},
	} {
		v, err := admit(c.m, testTerms)
		if err != nil || !v.answer || v.errno != c.errno {
			t.Errorf("%s: %+v, %v; want %v", opName(c.m.opcode()), v, err, c.errno)
		}
	}
}

func TestAdmitRefuses(t *testing.T) {
	edit := func(m message, f func(m message)) message { f(m); return m }
	for name, m := range map[string]message{
		"nothing":                  nil,
		"half a header":            make(message, 39),
		"length":                   edit(ask(opGetattr, 1, 16), func(m message) { m[0]++ }),
		"no unique":                edit(ask(opGetattr, 1, 16), func(m message) { clear(m[8:16]) }),
		"extensions":               edit(ask(opGetattr, 1, 16), func(m message) { m[36] = 1 }),
		"padding":                  edit(ask(opGetattr, 1, 16), func(m message) { m[38] = 1 }),
		"opcode 0":                 ask(0, 1),
		"opcode 7":                 ask(7, 1),
		"locks":                    ask(31, 1, 48),
		"retrieved cache":          ask(41, 1, 40),
		"setupmapping":             ask(48, 1, 40),
		"opcode 54":                ask(54, 1),
		"CUSE_INIT":                ask(4096, 1, 16),
		"opcode of go-fuse":        ask(101, 1, 16),
		"huge opcode":              ask(math.MaxUint32, 1),
		"INIT twice":               askInit(40),
		"no node":                  ask(opGetattr, 0, 16),
		"node out of range":        ask(opGetattr, big+1, 16),
		"short struct":             ask(opGetattr, 1, 15),
		"long struct":              ask(opGetattr, 1, 17),
		"no name":                  ask(opLookup, 1),
		"empty name":               ask(opLookup, 1, "\x00"),
		"name without end":         ask(opLookup, 1, "abc"),
		"dotdot":                   ask(opUnlink, 1, "..\x00"),
		"slash":                    ask(opMkdir, 1, 8, "a/b\x00"),
		"absolute":                 ask(opCreate, 1, 16, "/etc/passwd\x00"),
		"two names":                ask(opLookup, 1, "a\x00b\x00"),
		"name too long for any":    ask(opLookup, 1, strings.Repeat("n", 4097)+"\x00"),
		"long name with a slash":   ask(opLookup, 1, strings.Repeat("n/", 150)+"\x00"),
		"rename to nothing":        ask(opRename, 1, uint64(1), "a\x00"),
		"rename to dotdot":         ask(opRename, 1, uint64(1), "a\x00..\x00"),
		"rename and more":          ask(opRename, 1, uint64(1), "a\x00b\x00c"),
		"rename to node 0":         ask(opRename, 1, uint64(0), "a\x00b\x00"),
		"rename flags":             ask(opRename2, 1, uint64(1), uint32(8), 4, "a\x00b\x00"),
		"link of no node":          ask(opLink, 1, uint64(0), "n\x00"),
		"symlink to nothing":       ask(opSymlink, 1, "l\x00\x00"),
		"symlink too long":         ask(opSymlink, 1, "l\x00"+strings.Repeat("t", 4096)+"\x00"),
		"symlink and more":         ask(opSymlink, 1, "l\x00t\x00u\x00"),
		"read too much":            ask(opRead, 2, 8, uint64(0), uint32(maxTransfer+1), 20),
		"read past the end of all": ask(opRead, 2, 8, big, uint32(2), 20),
		"readdir too much":         ask(opReaddirplus, 1, 8, uint64(0), uint32(math.MaxUint32), 20),
		"write less than said":     ask(opWrite, 2, 8, uint64(0), uint32(5), 20, "data"),
		"write more than said":     ask(opWrite, 2, 8, uint64(0), uint32(3), 20, "data"),
		"write past the end":       ask(opWrite, 2, 8, big, uint32(4), 20, "data"),
		"write negative":           ask(opWrite, 2, 8, uint64(math.MaxUint64), uint32(4), 20, "data"),
		"fallocate past the end":   ask(opFallocate, 2, 8, uint64(1), big, 8),
		"copy past the end":        ask(opCopyFileRange, 2, 8, uint64(0), uint64(3), 8, uint64(1), big, 8),
		"dot":                      ask(opMkdir, 1, 8, ".\x00"),
		"unlink of ..":             ask(opUnlink, 1, "..\x00"),
		"copy to node 0":           ask(opCopyFileRange, 2, 8, uint64(0), uint64(0), 8, uint64(1), uint64(1), 8),
		"getxattr buffer":          ask(opGetxattr, 2, uint32(maxXattr+1), 4, "user.x\x00"),
		"getxattr long name":       ask(opGetxattr, 2, uint32(0), 4, strings.Repeat("x", 256)+"\x00"),
		"listxattr buffer":         ask(opListxattr, 2, uint32(math.MaxUint32), 4),
		"setxattr less than said":  ask(opSetxattr, 2, uint32(4), 4, "user.x\x00abc"),
		"setxattr too much":        ask(opSetxattr, 2, uint32(maxXattr+1), 4, "user.x\x00", maxXattr+1),
		"setxattr without name":    ask(opSetxattr, 2, uint32(3), 4, "\x00abc"),
		"setattr unknown":          ask(opSetattr, 2, uint32(1<<12), 84),
		"setattr size":             ask(opSetattr, 2, uint32(setattrSize), 12, big+1, 64),
		"setattr mode":             ask(opSetattr, 2, uint32(setattrMode), 64, uint32(1<<16), 16),
		"setattr nobody":           ask(opSetattr, 2, uint32(setattrUID), 72, uint32(math.MaxUint32), 8),
		"setattr nanoseconds":      ask(opSetattr, 2, uint32(setattrMtime), 56, uint32(1e9), 24),
		"mknod of a directory":     ask(opMknod, 1, uint32(syscall.S_IFDIR), 12, "d\x00"),
		"mknod of no type":         ask(opMknod, 1, uint32(0o644), 12, "d\x00"),
		"forgets fewer":            ask(opBatchForget, 0, uint32(2), 4, uint64(1), uint64(1)),
		"forgets none":             ask(opBatchForget, 0, uint32(0), 4),
		"forgets overflow":         ask(opBatchForget, 0, uint32(1<<28), 4, uint64(1), uint64(1)),
		"forgets node 0":           ask(opBatchForget, 0, uint32(1), 4, uint64(0), uint64(1)),
		"tmpfile without a name":   ask(opTmpfile, 1, 16, "/"),
		"tmpfile with two names":   ask(opTmpfile, 1, 16, "/\x00/\x00"),
		"ioctl argument":           ask(opIoctl, 2, 32, maxIoctlIn+1),
	} {
		if v, err := admit(m, testTerms); err == nil {
			t.Errorf("%s: got %+v, want it refused", name, v)
		}
	}
	if _, err := admit(ask(opGetattr, 1, 16), terms{}); err == nil {
		t.Error("GETATTR before INIT was admitted")
	}
	if _, err := admit(ask(opInit, 0, uint32(8), 60), terms{}); err == nil {
		t.Error("protocol 8 was admitted")
	}
}

// FuzzAdmit passes admitted messages to go-fuse, which must neither panic nor
// exceed the reply's buffer.
func FuzzAdmit(f *testing.F) {
	for _, m := range goodRequests() {
		f.Add([]byte(m))
	}
	f.Add([]byte(askInit(40)))
	server := fuse.NewProtocolServer(fuse.NewDefaultRawFileSystem(), protocolOptions(testLog(f)))
	server.HandleRequest([][]byte{askInit(40)}, [][]byte{make([]byte, smallReply)})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, terms := range []terms{{}, testTerms} {
			m := message(bytes.Clone(raw))
			v, err := admit(m, terms)
			if err != nil || v.answer || m.opcode() == opSyncfs || m.opcode() == opInit {
				continue
			}
			out := make([]byte, replySize(m))
			n, status := server.HandleRequest([][]byte{m}, [][]byte{out})
			silent := m.opcode() == opForget || m.opcode() == opBatchForget || m.opcode() == opInterrupt
			if n == 0 && !silent {
				t.Fatalf("%s: no answer, %v", opName(m.opcode()), status)
			}
			if n > 0 && binary.LittleEndian.Uint64(out[8:]) != m.unique() {
				t.Fatalf("%s: answered another request", opName(m.opcode()))
			}
		}
	})
}
