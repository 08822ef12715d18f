package agent

import (
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

// as calls do on a thread that has a user's rights to files, and no other: its fsuid, fsgid and groups are the
// user's, and with the fsuid the kernel takes root's capabilities over files away. The thread ends with the call. What
// do starts in other goroutines has the agent's rights.
func as(user account, do func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread
		failed <- func() error {
			groups := append([]uint32{user.GID}, user.Groups...)
			// The raw calls are this thread's; those of package syscall are all threads'.
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
				return errno
			}
			unix.RawSyscall(unix.SYS_SETFSGID, uintptr(user.GID), 0, 0)
			unix.RawSyscall(unix.SYS_SETFSUID, uintptr(user.UID), 0, 0)
			// They fail in silence; with an id that cannot be they only say what it is.
			gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0)
			uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
			if uint32(uid) != user.UID || uint32(gid) != user.GID {
				return unix.EPERM
			}
			return do()
		}()
	}()
	return <-failed
}

// dialAs connects to a unix socket with the rights of a user.
func dialAs(name, path string) (net.Conn, error) {
	user, err := findAccount(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	// A socket that does not block is not waited for: one whose queue is full is EAGAIN.
	if err := as(user, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		return nil, socketError("dial", path, user, err)
	}
	return net.FileConn(f)
}

// listenAs makes a unix socket that is a user's, which others than it cannot connect to.
func listenAs(user account, path string) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Fchmod(fd, 0o600); err != nil { // what bind makes has that mode, less the umask
		return nil, err
	}
	err = as(user, func() error {
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		return unix.Listen(fd, listenBacklog)
	})
	if err != nil {
		return nil, socketError("listen at", path, user, err)
	}
	return net.FileListener(f)
}

func socketError(verb, path string, user account, err error) error {
	switch err {
	case unix.EACCES, unix.EPERM:
		return holt.Errorf(holt.Forbidden, "%s %s: %s may not", verb, clip(path), user.Name)
	case unix.EADDRINUSE:
		return holt.Errorf(holt.AlreadyExists, "%s %s: there is something of that name", verb, clip(path))
	case unix.ENOENT, unix.ENOTDIR:
		return holt.Errorf(holt.NotFound, "%s %s: %w", verb, clip(path), err)
	case unix.ECONNREFUSED:
		return holt.Errorf(holt.NotFound, "%s %s: nothing listens there", verb, clip(path))
	}
	return holt.Errorf(holt.Unavailable, "%s %s: %w", verb, clip(path), err)
}
