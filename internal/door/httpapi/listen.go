package httpapi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// ListenLocal listens on a unix socket that only this user may open, in a
// directory that holds nothing but what the caller's lock protects: a socket
// of that name that is already there is taken for a dead daemon's and replaced.
//
// A socket's address holds at most 107 bytes and data directories may be
// longer, so it is bound through /proc/self/fd.
func ListenLocal(path string) (net.Listener, error) {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the socket's directory: %w", err)
	}
	defer dir.Close()
	fresh := path + ".new" // renamed once it is protected, so there is no snapshot without a socket
	if err := os.Remove(fresh); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove a half-made socket: %w", err)
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(fresh))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // that name dies with dir
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		l.Close()
		os.Remove(fresh)
		return nil, fmt.Errorf("protect %s: %w", path, err)
	}
	return &localListener{UnixListener: l, path: path}, nil
}

// localListener removes the socket when it is closed.
type localListener struct {
	*net.UnixListener
	path string
	once sync.Once
}

func (l *localListener) Close() error {
	l.once.Do(func() { os.Remove(l.path) }) // first: who finds it must find someone behind it
	return l.UnixListener.Close()
}
