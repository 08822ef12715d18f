package agent

import (
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

// as calls do on a thread with a user's rights: the effective ids and groups are
// the user's, and the change of the user id removes root's capabilities. (gVisor
// has no setfsuid(2).) The thread ends with the call. Goroutines that do starts
// have the agent's rights.
func as(user account, do func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		failed <- func() error {
			const keep = ^uintptr(0) // of the real and the saved id
			groups := append([]uint32{user.GID}, user.Groups...)
			// Raw system calls affect this thread only; package syscall changes all threads.
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); errno != 0 {
				return errno
			}
			unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(user.GID), keep)
			unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(user.UID), keep)
			// An invalid id may change nothing, without an error.
			gid, _, _ := unix.RawSyscall(unix.SYS_GETEGID, 0, 0, 0)
			uid, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0)
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
	// The non-blocking connect does not wait: a full queue returns EAGAIN.
	if err := as(user, func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) }); err != nil {
		return nil, socketError("dial", path, user, err)
	}
	return net.FileConn(f)
}

// listenAs creates a unix socket that belongs to a user and that only that user can connect to.
func listenAs(user account, path string) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Fchmod(fd, 0o600); err != nil { // bind creates the file with this mode, less the umask
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
		return holt.Errorf(holt.Forbidden, "%s %s: user %s has no permission", verb, clip(path), user.Name)
	case unix.EADDRINUSE:
		return holt.Errorf(holt.AlreadyExists, "%s %s: a file of that name exists", verb, clip(path))
	case unix.ENOENT, unix.ENOTDIR:
		return holt.Errorf(holt.NotFound, "%s %s: %w", verb, clip(path), err)
	case unix.ECONNREFUSED:
		return holt.Errorf(holt.NotFound, "%s %s: nothing listens there", verb, clip(path))
	}
	return holt.Errorf(holt.Unavailable, "%s %s: %w", verb, clip(path), err)
}
