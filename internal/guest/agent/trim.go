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
	// trimStep is how much of a file system is trimmed between checks of the time: bytes.
	trimStep = 1 << 30
	// trimLeast is the smallest range that the host's disk frees: a cluster of qcow2.
	trimLeast = 64 << 10
)

// trimRange is struct fstrim_range.
type trimRange struct{ start, length, least uint64 }

type trimArgs struct {
	LimitMS int64 `json:"limit_ms"`
}

// trim discards the unused blocks of the root file system, so that the host
// frees them. Blocks that were discarded are not discarded again. It stops at
// its time limit; the next call continues.
func (s *Server) trim(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[trimArgs](raw)
	if err != nil {
		return nil, err
	}
	if !s.opt.Machine {
		return nil, errNoMachine
	}
	if s.opt.Sandbox {
		return nil, nil // its files are its host's, which frees them
	}
	s.trimming.Lock() // after a broken session a host may repeat a call that still runs
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
	if err := unix.Syncfs(int(root.Fd())); err != nil { // freed blocks can be discarded after they are synced
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	size := st.Blocks * uint64(st.Bsize)
	size += trimStep // statfs excludes the file system's own blocks
	for at := uint64(0); at < size && ctx.Err() == nil; at += trimStep {
		r := trimRange{start: at, length: trimStep, least: trimLeast}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ioctlTrim, uintptr(unsafe.Pointer(&r)))
		runtime.KeepAlive(&r)
		switch {
		case errors.Is(errno, unix.EINVAL) && at > 0: // beyond the end
			return nil
		case errors.Is(errno, unix.EOPNOTSUPP), errors.Is(errno, unix.ENOTTY):
			return nil // not supported by the file system or disk
		case errno != 0:
			return fmt.Errorf("trim %s: %w", dir, errno)
		}
	}
	return nil
}
