package sandbox

import (
	"encoding/binary"
	"reflect"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

// wantedFDs is how many descriptors of one poll or select are inspected.
const wantedFDs = 1024

// inputWanted returns 1 if a thread of the guest waits to read from a pipe, of
// which the caller has the other end as descriptor fd. gVisor's /proc does not
// tell in which system call a thread waits, and what an epoll watches.
func inputWanted(t *kernel.Task, fd int32) (uintptr, error) {
	f := t.GetFile(fd)
	if f == nil {
		return 0, linuxerr.EBADF
	}
	defer f.DecRef(t)
	for _, other := range t.PIDNamespace().Tasks() {
		if waitsFor(t, other, f.Dentry()) {
			return 1, nil
		}
	}
	return 0, nil
}

// waitsFor reports whether a task waits to read from a pipe.
func waitsFor(t, other *kernel.Task, pipe *vfs.Dentry) bool {
	var nr uintptr
	var args arch.SyscallArguments
	var m *mm.MemoryManager
	blocked := false
	other.WithMuLocked(func(o *kernel.Task) {
		// A task that is blocked in a system call changes neither its registers nor its descriptors.
		if blocked = o.TaskGoroutineState() == kernel.TaskGoroutineBlockedInterruptible && o.FDTable() != nil; blocked {
			nr, args, m = o.Arch().SyscallNo(), o.Arch().SyscallArgs(), o.MemoryManager()
		}
	})
	if !blocked {
		return false
	}
	if like, ok := archWaits[nr]; ok {
		nr = like
	}
	reads := func(fd int32) bool { return readsFrom(t, other, fd, pipe, false) }
	switch nr {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_PREADV2, unix.SYS_SPLICE, unix.SYS_TEE:
		return reads(args[0].Int())
	case unix.SYS_SENDFILE:
		return reads(args[1].Int())
	case unix.SYS_PPOLL:
		b := memoryOf(t, m, args[0].Pointer(), 8*min(args[1].SizeT(), wantedFDs))
		for ; len(b) >= 8; b = b[8:] {
			if binary.NativeEndian.Uint16(b[4:])&(linux.POLLIN|linux.POLLRDNORM) != 0 && reads(int32(binary.NativeEndian.Uint32(b))) {
				return true
			}
		}
	case unix.SYS_PSELECT6:
		n := min(max(args[0].Int(), 0), wantedFDs)
		b := memoryOf(t, m, args[1].Pointer(), uint((n+63)/64*8))
		for fd := range n {
			if int(fd/8) < len(b) && b[fd/8]&(1<<(fd%8)) != 0 && reads(fd) {
				return true
			}
		}
	case unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2:
		var fds []int32
		other.WithMuLocked(func(o *kernel.Task) {
			if table := o.FDTable(); table != nil {
				fds = table.GetFDs(t)
			}
		})
		for _, fd := range fds[:min(len(fds), wantedFDs)] {
			if readsFrom(t, other, fd, pipe, true) {
				return true
			}
		}
	}
	return false
}

// readsFrom reports whether a descriptor of a task is the end of a pipe to read from, and, if watched is set, in an epoll.
func readsFrom(t, other *kernel.Task, fd int32, pipe *vfs.Dentry, watched bool) bool {
	var f *vfs.FileDescription
	other.WithMuLocked(func(o *kernel.Task) {
		if table := o.FDTable(); table != nil {
			f, _ = table.Get(fd)
		}
	})
	if f == nil {
		return false
	}
	defer f.DecRef(t)
	if f.Dentry() != pipe || !f.IsReadable() {
		return false
	}
	if !watched {
		return true
	}
	epolls := reflect.ValueOf(f).Elem().FieldByName("epolls") // gVisor has no other way
	return !epolls.IsValid() || epolls.Len() > 0
}

// memoryOf reads memory of a task.
func memoryOf(t *kernel.Task, m *mm.MemoryManager, at hostarch.Addr, n uint) []byte {
	if m == nil || !m.IncUsers() {
		return nil
	}
	defer m.DecUsers(t)
	b := make([]byte, n)
	got, _ := m.CopyIn(t, at, b, usermem.IOOpts{IgnorePermissions: true})
	return b[:got]
}
