package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// openMount mounts FUSE on dir, with noatime, and returns the descriptor to
// serve it. No child process inherits the descriptor: one that outlives this
// process, such as a machine, would keep an unserved mount from ending.
func openMount(ctx context.Context, dir string, readOnly bool) (fd int, err error) {
	options := []string{fmt.Sprintf("max_read=%d", maxTransfer), "default_permissions"}
	if os.Geteuid() != 0 {
		// Without root, allow_other may be forbidden, and the mount is only for its user.
		options = append(options, "fsname=holt", "subtype=holt", "nosuid", "nodev", "noatime")
		if readOnly {
			options = append(options, "ro")
		}
		return fusermount(ctx, dir, strings.Join(options, ","))
	}
	fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/fuse: %w", err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	options = append(options, "allow_other", fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd))
	if err := unix.Mount("holt", dir, "fuse.holt", flags, strings.Join(options, ",")); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// fusermount mounts with the set-uid helper of fuse3, and receives the descriptor from it.
func fusermount(ctx context.Context, dir, options string) (fd int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "fusermount")
	cmd := exec.CommandContext(ctx, "fusermount3", "-o", options, "--", dir)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	out, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil {
		return -1, fmt.Errorf("fusermount3: %w: %s", err, bytes.TrimSpace(out))
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 8), control, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return -1, fmt.Errorf("receive from fusermount3: %w", err)
	}
	fds, err := parseRights(control[:n])
	if err != nil || len(fds) != 1 {
		closeAll(fds)
		return -1, errors.Join(errors.New("fusermount3 sent no descriptor"), err)
	}
	return fds[0], nil
}

// parseRights returns the descriptors received with a message.
func parseRights(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		some, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
