package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A user's session is the user's own systemd (user@UID.service) with a D-Bus.
// The default user's session lingers: it runs without a login. In a template it
// starts before the snapshot, so that computers made from the template have it
// at once.

const (
	lingerDir    = "/var/lib/systemd/linger" // of logind: a file for each lingering user
	busSocket    = "/run/dbus/system_bus_socket"
	runtimeDirs  = "/run/user"
	sessionStart = 90 * time.Second       // how long a template waits for it
	sessionCheck = 100 * time.Millisecond // how often the workspace's mount is checked
)

// sessionVariables adds the variables of a user's session, if the user has one
// in the machine with its root at root.
func sessionVariables(vars map[string]string, root string, user account) {
	dir := filepath.Join(runtimeDirs, strconv.FormatUint(uint64(user.UID), 10))
	if !isThere(root+GuestPath) || !isThere(root+dir) && !lingers(root, user.Name) {
		return // or there is no machine of its own
	}
	vars["XDG_RUNTIME_DIR"] = dir
	vars["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=" + dir + "/bus"
}

func lingers(root, name string) bool {
	return isThere(filepath.Join(root+lingerDir, filepath.Base(name)))
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// linger makes logind start the default user's session, now and at each boot.
func linger(ctx context.Context) error {
	if err := awaitSocket(ctx, busSocket); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "loginctl", "enable-linger", defaultUser).CombinedOutput(); err != nil {
		return fmt.Errorf("let %s linger: %w: %s", defaultUser, err, clip(string(out)))
	}
	return nil
}

// startEarlySession starts the session in a template, whose workspace is not
// served: an empty directory covers it meanwhile, since the user's systemd
// looks for units in the user's home.
func (s *Server) startEarlySession(ctx context.Context) error {
	user, err := findAccount("")
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", s.opt.Workspace, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, "mode=755,size=4k"); err != nil {
		return fmt.Errorf("cover the workspace: %w", err)
	}
	defer unix.Unmount(s.opt.Workspace, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	ctx, cancel := context.WithTimeout(ctx, sessionStart)
	defer cancel()
	if err := linger(ctx); err != nil {
		return err
	}
	// With the units for all users.
	_, err = systemctl(ctx, "start", fmt.Sprintf("user@%d.service", user.UID))
	return err
}

// keepSession ensures, once the workspace is served, that the default user's
// session runs with the units in the user's home. It runs in the background,
// because the workspace may not respond.
func (s *Server) keepSession(ctx context.Context) {
	if err := s.raiseSession(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("the default user has no systemd session", "err", err)
	}
}

func (s *Server) raiseSession(ctx context.Context) error {
	if err := s.awaitStanding(ctx, Unwelcome); err != nil { // never returns in a template
		return err
	}
	user, err := findAccount("")
	if err != nil {
		return err
	}
	early := isThere(managerSocket(user))
	if !early && os.MkdirAll(lingerDir, 0o755) == nil {
		// Without logind, which may not be up: programs that start earlier also get the
		// session's variables.
		os.WriteFile(filepath.Join(lingerDir, user.Name), nil, 0o644)
	}
	if err := s.awaitStanding(ctx, Served); err != nil {
		return err
	}
	if !early {
		return linger(ctx)
	}
	if hasUnits(user.Home) {
		return startOwnUnits(ctx, user)
	}
	return nil
}

// awaitStanding waits until the workspace has reached a standing.
func (s *Server) awaitStanding(ctx context.Context, is Standing) error {
	poll := time.NewTicker(sessionCheck)
	defer poll.Stop()
	for s.opt.Standing() < is {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// managerSocket returns the socket of the user's systemd.
func managerSocket(user account) string {
	return filepath.Join(runtimeDirs, strconv.FormatUint(uint64(user.UID), 10), "systemd/private")
}

// hasUnits reports whether a home has units or environment files for the user's systemd.
func hasUnits(home string) bool {
	for _, dir := range []string{".config/systemd", ".config/environment.d", ".local/share/systemd/user"} {
		if _, err := os.Lstat(filepath.Join(home, dir)); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// startOwnUnits makes a user's systemd that started without the user's home
// read it, and start the enabled units.
func startOwnUnits(ctx context.Context, user account) error {
	vars := map[string]string{}
	sessionVariables(vars, "", user)
	for _, args := range [][]string{{"daemon-reload"}, {"start", "--no-block", "default.target"}} {
		cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...)
		cmd.Env = []string{"PATH=" + guestPath, "HOME=" + user.Home}
		for k, v := range vars {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("start units of %s: %w: %s", user.Name, err, clip(string(out)))
		}
	}
	return nil
}
