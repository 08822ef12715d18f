package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ioctlTrim = 0xc0185879 // FITRIM, linux/fs.h
	// trimStep is how much of a file system is looked at before the time is: bytes.
	trimStep = 1 << 30
	// trimLeast is what the host's disk gives back at the least: a cluster of qcow2.
	trimLeast = 64 << 10
)

// trimRange is struct fstrim_range.
type trimRange struct{ start, length, least uint64 }

type trimArgs struct {
	LimitMS int64 `json:"limit_ms"`
}

// trim tells the disk which bytes of the root file system are in no file any more, so
// that the host has them back. What it has told once it does not tell again. One
// that takes longer than it may is broken off: the next one goes on.
func (s *Server) trim(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[trimArgs](raw)
	if err != nil {
		return nil, err
	}
	if !s.opt.Machine {
		return nil, errNoMachine
	}
	s.trimming.Lock() // a host whose session broke asks again while the first is at work
	defer s.trimming.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(args.LimitMS)*time.Millisecond)
	defer cancel()
	return nil, trimFS(ctx, "/")
}

func trimFS(ctx context.Context, dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return fmt.Errorf("trim %s: %w", dir, err)
	}
	if err := unix.Syncfs(int(root.Fd())); err != nil { // what was freed can be told once that is on the disk
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	size := st.Blocks * uint64(st.Bsize)
	size += trimStep // what the file system needs for itself is not in there
	for at := uint64(0); at < size && ctx.Err() == nil; at += trimStep {
		r := trimRange{start: at, length: trimStep, least: trimLeast}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ioctlTrim, uintptr(unsafe.Pointer(&r)))
		runtime.KeepAlive(&r)
		switch {
		case errors.Is(errno, unix.EINVAL) && at > 0: // behind its end
			return nil
		case errors.Is(errno, unix.EOPNOTSUPP), errors.Is(errno, unix.ENOTTY):
			return nil // a file system, or a disk, that cannot
		case errno != 0:
			return fmt.Errorf("trim %s: %w", dir, errno)
		}
	}
	return nil
}
