package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// ready waits until init has started what it starts by itself. The workspace may
// not be served yet, so nothing here looks at it.
func (s *Server) ready(ctx context.Context, _ json.RawMessage) (any, error) {
	if !s.opt.Machine {
		return nil, errNoMachine
	}
	r := Readiness{State: "running"}
	if _, err := os.Lstat(initPath); !errors.Is(err, fs.ErrNotExist) {
		if err := awaitSystemd(ctx); err != nil {
			return nil, err
		}
		// Its exit status is not 0 unless all is well; what it says counts.
		out, err := exec.CommandContext(ctx, "systemctl", "is-system-running", "--wait").Output()
		if r.State = strings.TrimSpace(string(out)); r.State == "" {
			return nil, fmt.Errorf("ask systemd whether all is started: %w", err)
		}
	}
	root, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		return nil, fmt.Errorf("sync root file system: %w", err)
	}
	return r, nil
}

// awaitSystemd waits until systemd heeds signals and answers.
func awaitSystemd(ctx context.Context) error {
	poll := time.NewTicker(answerTime)
	defer poll.Stop()
	for {
		if _, err := os.Stat(systemdSocket); err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for systemd: %w", ctx.Err())
		}
	}
}

const (
	mib      = 1 << 20
	diskWait = 10 * time.Second // for the kernel to hear of a larger disk
)

// growTo makes the root file system as large as a disk of sizeMB MiB, once the
// kernel sees that its disk is one.
func growTo(ctx context.Context, sizeMB int) error {
	if sizeMB < 0 {
		return holt.Errorf(holt.InvalidArgument, "a disk cannot have %d MiB", sizeMB)
	}
	args, err := kernelArgs()
	if err != nil {
		return fmt.Errorf("grow root disk: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, diskWait)
	defer cancel()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for {
		size, err := deviceSize(rootDevice(args))
		if err != nil {
			return fmt.Errorf("grow root disk: %w", err)
		}
		if size == uint64(sizeMB)*mib {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return holt.Errorf(holt.Unavailable, "the root disk has %d bytes and not %d MiB", size, sizeMB)
		}
	}
	if err := growRoot(rootDevice(args), "/"); err != nil {
		return fmt.Errorf("grow root disk: %w", err)
	}
	return nil
}
