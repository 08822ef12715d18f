package sandbox

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
)

const (
	maxGroup = 2 << 10 // of a cgroup's path in an announcement; the rest is omitted
	maxKnown = 1 << 14 // threads
	// maxThreads is more than a guest has processes and threads (see the agent's limits): each may block one.
	maxThreads = 1 << 16
)

// announcer tells the keeper for which thread of the guest a thread of the
// sentry is about to change files. The workspace is bound into the sandbox, so
// that the FUSE request which follows bears the id of the sentry's thread.
//
// An announcement is one datagram, "THREAD\x00NAME\x00CGROUP": the thread in the
// sentry's PID namespace; the guest thread's name if it is the mark of an
// operation, else nothing; and its cgroup as in the root container's /proc. It
// holds until the next one for that thread, and is sent only if it says something
// new: programs of one run share it.
//
// The keeper always drains the socket, whatever else it waits for, so that a
// write to a full one ends.
//
// Not attributed are changes that no call of the guest makes: the kernel writes
// pages of a shared mapping at a time of its own, at msync, munmap or close too,
// with no process. A write by io_submit is made by some thread, and has what was
// announced last for that thread; so has one to an open file of an overlay that
// the guest has mounted itself with a layer in the workspace.
type announcer struct {
	fd     int       // connected before seccomp forbids it
	begun  sync.Once // the first call: what needs the guest's kernel
	memory memoryWatch

	mu    sync.Mutex
	known map[int]announced // by thread
}

// announced is what was announced for a thread. The zero value says nothing.
type announced struct {
	mark  string
	group kernel.Cgroup2
}

// hook changes gVisor's table of system calls, which nothing uses yet. fd is a
// datagram socket connected to the keeper.
func hook(fd int) {
	debug.SetMaxThreads(maxThreads)
	h := &announcer{fd: fd, known: map[int]announced{}, memory: memoryWatch{limit: memoryLimit(os.Args)}}
	for _, n := range slices.Concat(pathCalls, archPathCalls) {
		h.wrap(n, func(*kernel.Task, arch.SyscallArguments) bool { return true })
	}
	for _, n := range fileCalls {
		h.wrap(n, onGofer(0))
	}
	for _, n := range copyCalls {
		h.wrap(n, onGofer(2))
	}
	for n, flags := range openCalls {
		h.wrap(n, func(_ *kernel.Task, args arch.SyscallArguments) bool {
			return args[flags].Uint()&(unix.O_CREAT|unix.O_TRUNC) != 0
		})
	}
	h.replace(unix.SYS_REBOOT, h.reboot)
	table.Init()
}

// Calls that change files by path. A call that gVisor does not have is skipped.
var pathCalls = []uintptr{
	unix.SYS_OPENAT2, // its flags are in the guest's memory
	unix.SYS_TRUNCATE, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_UNLINKAT,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// Calls that change the file of their first argument.
var fileCalls = []uintptr{
	unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_SENDFILE,
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FSETXATTR, unix.SYS_FREMOVEXATTR,
}

// Calls that change the file of their third argument.
var copyCalls = []uintptr{unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE}

// onGofer returns whether the file of an argument is on a file system of the host.
func onGofer(argument int) func(*kernel.Task, arch.SyscallArguments) bool {
	return func(t *kernel.Task, args arch.SyscallArguments) bool {
		f := t.GetFile(args[argument].Int())
		if f == nil {
			return false
		}
		defer f.DecRef(t)
		return f.Mount().Filesystem().FilesystemType().Name() == gofer.Name
	}
}

// replace replaces a call in the table.
func (h *announcer) replace(n uintptr, by func(kernel.SyscallFn) kernel.SyscallFn) {
	if call, ok := table.Table[n]; ok {
		call.Fn = by(call.Fn)
		table.Table[n] = call
	}
}

// wrap makes a call announce its task if it may change files. Its goroutine
// stays on the announced thread until it is done.
func (h *announcer) wrap(n uintptr, changes func(*kernel.Task, arch.SyscallArguments) bool) {
	h.replace(n, func(call kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			h.begun.Do(func() {
				keepConnections(t.Kernel())
				go h.memory.watch(t.Kernel())
			})
			if changes(t, args) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				h.announce(t)
			}
			return call(t, sysno, args)
		}
	})
}

// announce announces a task for the calling thread, to which the goroutine is locked.
func (h *announcer) announce(t *kernel.Task) {
	// A task changes both its name and its cgroup.
	now := announced{group: t.Cgroup2()}
	if name := t.Name(); strings.HasPrefix(name, agent.ThreadPrefix) {
		now.mark = name
	}
	thread := unix.Gettid()
	h.mu.Lock()
	known := h.known[thread] == now
	h.mu.Unlock()
	if known {
		return
	}
	b := strconv.AppendInt(make([]byte, 0, 256), int64(thread), 10)
	b = append(append(b, 0), now.mark...)
	group := t.GetCgroup2Entry(rootNamespace(t)).Path
	b = append(append(b, 0), group[:min(len(group), maxGroup)]...)
	if !h.send(b) {
		return
	}
	h.mu.Lock()
	if len(h.known) >= maxKnown {
		clear(h.known) // of threads that have ended; the others are announced again
	}
	h.known[thread] = now
	h.mu.Unlock()
}

// rootNamespace returns the cgroup namespace of the guest's init; nil if there is none.
func rootNamespace(t *kernel.Task) *kernel.CgroupNamespace {
	if init := t.Kernel().GlobalInit(); init != nil {
		if leader := init.Leader(); leader != nil {
			return leader.CgroupNamespace()
		}
	}
	return nil
}

// send sends a datagram. It waits while the socket is full, and fails if the keeper is gone.
func (h *announcer) send(b []byte) bool {
	for {
		if _, err := unix.Write(h.fd, b); err != unix.EINTR {
			return err == nil
		}
	}
}

// abortConnections ends the TCP connections of the task's network namespace whose
// far ends are outside of the machine, and returns their number.
func abortConnections(t *kernel.Task) (n uintptr) {
	s, ok := t.NetworkNamespace().Stack().(*netstack.Stack)
	if !ok {
		return 0
	}
	for _, e := range s.Stack.RegisteredEndpoints() {
		connection, ok := e.(*tcp.Endpoint)
		if !ok {
			continue
		}
		id := connection.Info().(*stack.TransportEndpointInfo).ID
		if id.RemotePort == 0 || s.Stack.CheckLocalAddress(0, header.IPv4ProtocolNumber, id.RemoteAddress) != 0 || header.IsV4LoopbackAddress(id.RemoteAddress) || id.RemoteAddress == header.IPv6Loopback {
			continue // it listens, or both ends are here
		}
		connection.Abort()
		n++
	}
	return n
}

// What is sent in place of an announcement when the guest ends the machine.
const (
	endReboot = string(machine.EndReboot)
	endOff    = string(machine.EndOff)
)

// rebootMagic are the values of reboot's second argument, see reboot(2).
var rebootMagic = []uint32{unix.LINUX_REBOOT_MAGIC2, 85072278, 369367448, 537993216}

// reboot tells the keeper that the guest's last act was to restart or to stop
// the machine, and waits for the keeper to kill the sandbox.
func (h *announcer) reboot(call kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if !t.HasRootCapability(linux.CAP_SYS_BOOT) || t.PIDNamespace() != t.Kernel().RootPIDNamespace() {
			return call(t, sysno, args) // a container within the guest does not end the machine
		}
		if args[0].Uint() != unix.LINUX_REBOOT_MAGIC1 || !slices.Contains(rebootMagic, args[1].Uint()) {
			return 0, nil, linuxerr.EINVAL
		}
		end := ""
		switch args[2].Uint() {
		case unix.LINUX_REBOOT_CMD_RESTART, unix.LINUX_REBOOT_CMD_RESTART2:
			end = endReboot
		case unix.LINUX_REBOOT_CMD_HALT, unix.LINUX_REBOOT_CMD_POWER_OFF:
			end = endOff
		case unix.LINUX_REBOOT_CMD_CAD_ON, unix.LINUX_REBOOT_CMD_CAD_OFF:
			return 0, nil, nil // a machine without a keyboard
		case agent.EndConnections:
			return abortConnections(t), nil, nil
		case agent.InputWanted:
			n, err := inputWanted(t, args[3].Int())
			return n, nil, err
		case agent.KernelLog:
			n, err := t.CopyOutBytes(args[3].Pointer(), h.memory.log(agent.KernelLogBytes))
			return uintptr(n), nil, err
		default:
			return call(t, sysno, args)
		}
		h.send([]byte(end))
		t.Block(nil)                           // until a signal: the last one, or a snapshot's,
		return 0, nil, linuxerr.ERESTARTNOINTR // after which it says so again
	}
}
