package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var machineIDRE = regexp.MustCompile(`^[0-9a-f]{32}$`)

// renew makes a machine that continues from a snapshot independent: if it is
// given a machine id, it becomes a new machine, and in any case its inherited
// connections are reset. A machine that boots for the first time only needs new
// SSH host keys, if its image has some.
func renew(ctx context.Context, log *slog.Logger, root string, id Identity) (done Identified, err error) {
	if id.MachineID != "" {
		if err := setMachineID(root, id.MachineID); err != nil {
			return done, err
		}
	}
	if id.MachineID != "" || id.NewHostKeys {
		if done.FormerKeys, done.HostKeys, err = newHostKeys(ctx, filepath.Join(root, "etc/ssh")); err != nil {
			return done, err
		}
		// Otherwise a fork that is killed would come back with its parent's identity.
		if err := syncPath(filepath.Join(root, "etc")); err != nil {
			return done, fmt.Errorf("sync identity: %w", err)
		}
	}
	if id.Restored {
		if done.Ended, err = endConnections(ctx, log, filepath.Join(root, "proc")); err != nil {
			return done, err
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return done, fmt.Errorf("read machine id: %w", err)
	}
	done.MachineID = strings.TrimSpace(string(b))
	done.Hostname, _ = os.Hostname()
	done.Now = time.Now()
	return done, nil
}

// setMachineID writes machine-id(5), and D-Bus's copy if that is a separate file.
func setMachineID(root, id string) error {
	paths := []string{filepath.Join(root, "etc/machine-id")}
	dbus := filepath.Join(root, "var/lib/dbus/machine-id")
	if st, err := os.Lstat(dbus); err == nil && st.Mode().IsRegular() {
		paths = append(paths, dbus)
	}
	for _, path := range paths {
		if err := replaceFile(path, id+"\n"); err != nil {
			return fmt.Errorf("set machine id: %w", err)
		}
		if err := os.Chmod(path, 0o444); err != nil {
			return fmt.Errorf("set machine id: %w", err)
		}
	}
	return nil
}
