package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// ready waits until init has started everything. It does not access the
// workspace, which may not be served yet.
func (s *Server) ready(ctx context.Context, raw json.RawMessage) (any, error) {
	args, err := decode[readyArgs](raw)
	if err != nil {
		return nil, err
	}
	if !s.opt.Machine {
		return nil, errNoMachine
	}
	r := Readiness{State: "running"}
	if _, err := os.Lstat(initPath); !errors.Is(err, fs.ErrNotExist) {
		if r.State, err = awaitStarted(ctx, time.Duration(args.LimitMS)*time.Millisecond); err != nil {
			return nil, err
		}
		if s.opt.Standing() == Hostless || s.opt.Sandbox { // this is a template; other sandboxes are not asked
			if err := s.startEarlySession(ctx); err != nil {
				s.log.Warn("the default user has no systemd session", "err", err)
			}
		}
		if r.Unready, err = unready(ctx, args.Units); err != nil {
			return nil, err
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

// awaitStarted waits until systemd has started everything, or limit has passed,
// and returns systemd's state.
func awaitStarted(ctx context.Context, limit time.Duration) (state string, err error) {
	bounded, cancel := ctx, func() {}
	if limit > 0 {
		bounded, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	if err := awaitSystemd(bounded); err != nil {
		return "", err
	}
	// The exit status is not 0 unless the state is running; only the output counts.
	out, err := exec.CommandContext(bounded, "systemctl", "is-system-running", "--wait").Output()
	if len(out) == 0 && bounded.Err() != nil {
		out, err = exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	}
	if state = strings.TrimSpace(string(out)); state == "" {
		return "", fmt.Errorf("wait for systemd to start everything: %w", err)
	}
	return state, nil
}

// unready returns the units that are neither up nor done, with the end of their logs.
func unready(ctx context.Context, units []string) (all []Unit, err error) {
	if len(units) == 0 {
		return nil, nil
	}
	args := append([]string{"show", "--property=LoadState,ActiveState,SubState,Result", "--"}, units...)
	out, err := exec.CommandContext(ctx, "systemctl", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("ask systemd for units: %w", err)
	}
	shown := strings.Split(strings.TrimSpace(string(out)), "\n\n") // in the order of the arguments
	if len(shown) != len(units) {
		return nil, fmt.Errorf("systemd shows %d units of %d", len(shown), len(units))
	}
	for i, text := range shown {
		state := unreadyState(text)
		if state == "" || len(all) == mostUnready {
			continue
		}
		said, err := exec.CommandContext(ctx, "journalctl", "--boot", "--unit="+units[i], "--lines="+strconv.Itoa(mostLines), "--output=cat", "--no-pager").Output()
		if err != nil {
			said = []byte("journalctl: " + err.Error())
		}
		said = said[max(0, len(said)-mostLines*maxWord):]
		all = append(all, Unit{Name: units[i], State: state, Log: strings.TrimSpace(string(said))})
	}
	return all, nil
}

// unreadyState returns the state of a unit from systemctl's output, "" if it is up or done.
func unreadyState(shown string) string {
	p := map[string]string{}
	for line := range strings.Lines(shown) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		p[name] = value
	}
	switch {
	case p["LoadState"] != "loaded":
		return cmp.Or(p["LoadState"], "unknown")
	case p["ActiveState"] == "active", p["ActiveState"] == "reloading", p["ActiveState"] == "inactive" && (p["Result"] == "success" || p["Result"] == ""):
		return ""
	}
	return p["ActiveState"] + " (" + p["SubState"] + ")"
}

// awaitSystemd waits until systemd handles signals and requests.
func awaitSystemd(ctx context.Context) error { return awaitSocket(ctx, systemdSocket) }

func awaitSocket(ctx context.Context, path string) error {
	poll := time.NewTicker(answerTime)
	defer poll.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", path, ctx.Err())
		}
	}
}

const (
	mib      = 1 << 20
	diskWait = 10 * time.Second // for the kernel to see a larger disk
)

// growTo grows the root file system to a disk of sizeMB MiB, once the kernel sees the new size.
func growTo(ctx context.Context, sizeMB int) error {
	if sizeMB < 0 {
		return holt.Errorf(holt.InvalidArgument, "invalid disk size of %d MiB", sizeMB)
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
			return holt.Errorf(holt.Unavailable, "the root disk has %d bytes instead of %d MiB", size, sizeMB)
		}
	}
	if err := growRoot(rootDevice(args), "/"); err != nil {
		return fmt.Errorf("grow root disk: %w", err)
	}
	return nil
}
