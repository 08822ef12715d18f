package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of FUSE's wire format that the pump uses, linux/fuse.h.
const (
	fuseInHeader  = 40 // u32 len, u32 opcode, u64 unique, u64 nodeid, u32 uid, gid, pid, padding
	fuseOutHeader = 16 // u32 len, i32 error, u64 unique
	fuseMaxWrite  = 1 << 20

	fuseSource = "workspace"
	fuseType   = "fuse.holt"
	// fuseReadaheadKB is the kernel's read-ahead for sequential reads; the default
	// of 128 KiB would also limit the size of every read.
	fuseReadaheadKB = "2048"
)

// Opcodes of linux/fuse.h.
const (
	opcodeForget          = 2
	opcodeSetattr         = 4
	opcodeSymlink         = 6
	opcodeMknod           = 8
	opcodeMkdir           = 9
	opcodeUnlink          = 10
	opcodeRmdir           = 11
	opcodeRename          = 12
	opcodeLink            = 13
	opcodeWrite           = 16
	opcodeSetxattr        = 21
	opcodeRemovexattr     = 24
	opcodeInit            = 26
	opcodeCreate          = 35
	opcodeInterrupt       = 36
	opcodeBatchForget     = 42
	opcodeFallocate       = 43
	opcodeRename2         = 45
	opcodeCopyFileRange   = 47
	opcodeTmpfile         = 51
	opcodeCopyFileRange64 = 53
)

// changes reports whether an operation changes files, so that its process must
// be identified.
func changes(opcode uint32) bool {
	switch opcode {
	case opcodeSetattr, opcodeSymlink, opcodeMknod, opcodeMkdir, opcodeUnlink, opcodeRmdir, opcodeRename, opcodeLink,
		opcodeWrite, opcodeSetxattr, opcodeRemovexattr, opcodeCreate,
		opcodeFallocate, opcodeRename2, opcodeCopyFileRange, opcodeTmpfile, opcodeCopyFileRange64:
		return true
	}
	return false
}

// fileTime returns the time that the kernel would set on a file now: a coarser
// clock than time.Now. It is a raw system call, see [FuseDevice].
func fileTime() int64 {
	var ts unix.Timespec
	unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_REALTIME_COARSE, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// inHeader is the header of a request.
type inHeader struct {
	opcode uint32
	unique uint64
	pid    uint32
}

func parseIn(b []byte) (h inHeader, ok bool) {
	if len(b) < fuseInHeader || int(binary.NativeEndian.Uint32(b)) != len(b) {
		return h, false
	}
	return inHeader{
		opcode: binary.NativeEndian.Uint32(b[4:]),
		unique: binary.NativeEndian.Uint64(b[8:]),
		pid:    binary.NativeEndian.Uint32(b[32:]),
	}, true
}

// errorReply is the reply to a request that failed with errno.
func errorReply(unique uint64, errno unix.Errno) []byte {
	b := binary.NativeEndian.AppendUint32(nil, fuseOutHeader)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	return binary.NativeEndian.AppendUint64(b, unique)
}

// mountFuse mounts a new FUSE file system at dir and returns its device, whose
// first request is INIT. Accesses block until INIT is answered. Set-id programs
// and devices in it work only in a machine: for a local process the devices
// would be the host's.
func mountFuse(dir string, machine bool) (*FuseDevice, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, unix.ENOTCONN) {
		return nil, err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	// The kernel checks modes (default_permissions) for all users.
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d", fd, fuseMaxWrite)
	flags := uintptr(unix.MS_NOATIME) // reads set no access times
	if !machine {
		flags |= unix.MS_NOSUID | unix.MS_NODEV
	}
	if err := unix.Mount(fuseSource, dir, fuseType, flags, options); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mount %s: %w", dir, err)
	}
	return NewFuseDevice(fd)
}

// unmountFuse unmounts all of this agent's mounts at dir, including dead ones
// of an earlier agent. MNT_FORCE aborts the connection: waiting processes and
// the reader of its descriptor get an error.
func unmountFuse(dir string) {
	const flags = unix.MNT_FORCE | unix.MNT_DETACH | unix.UMOUNT_NOFOLLOW
	for range 16 {
		if findMount(dir) == "" || unix.Unmount(dir, flags) != nil {
			return
		}
	}
}

// findMount returns the device number (major:minor) of the workspace's FUSE
// mount at dir, or "". It does not access dir, which may hang.
func findMount(dir string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	found := ""
	for sc := bufio.NewScanner(f); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 4 && fields[4] == dir && strings.HasPrefix(after, fuseType+" ") {
			found = fields[2]
		}
	}
	return found
}

// readAhead sets the kernel's read-ahead. The kernel resets it when INIT is
// answered, so it must be called after that.
func readAhead(dir string) error {
	dev := findMount(dir)
	if dev == "" {
		return fmt.Errorf("set read-ahead: %s is not mounted", dir)
	}
	return os.WriteFile(filepath.Join("/sys/class/bdi", dev, "read_ahead_kb"), []byte(fuseReadaheadKB), 0)
}
