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

// A user's session is a systemd of the user's own (user@UID.service) with a D-Bus. The default user's lingers: it
// is up without a login. In a template it starts before the template is kept, so a computer made from one has it at once.

const (
	lingerDir    = "/var/lib/systemd/linger" // logind's: a file for each user that lingers
	busSocket    = "/run/dbus/system_bus_socket"
	runtimeDirs  = "/run/user"
	sessionStart = 90 * time.Second       // what a template waits for it
	sessionCheck = 100 * time.Millisecond // how often the workspace is looked at until it is there
)

// sessionVariables adds where a user's session is, if the user has one in the machine whose root is at root.
func sessionVariables(vars map[string]string, root string, user account) {
	dir := filepath.Join(runtimeDirs, strconv.FormatUint(uint64(user.UID), 10))
	if !isThere(root+GuestPath) || !isThere(root+dir) && !lingers(root, user.Name) {
		return // or it is no machine of its own
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

// linger has logind start the default user's session, now and at each start.
func linger(ctx context.Context) error {
	if err := awaitSocket(ctx, busSocket); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "loginctl", "enable-linger", defaultUser).CombinedOutput(); err != nil {
		return fmt.Errorf("let %s linger: %w: %s", defaultUser, err, clip(string(out)))
	}
	return nil
}

// startEarlySession starts the session in a template, whose workspace answers nobody: meanwhile an empty
// directory covers it, since the user's systemd looks for units in the user's home.
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
	// With the units that all users have.
	_, err = systemctl(ctx, "start", fmt.Sprintf("user@%d.service", user.UID))
	return err
}

// keepSession sees to it, once a workspace is there, that the default user's session is up and has the units in the
// user's home. Nobody waits for it: a workspace may not answer.
func (s *Server) keepSession(ctx context.Context) {
	if err := s.raiseSession(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("the default user has no systemd session", "err", err)
	}
}

func (s *Server) raiseSession(ctx context.Context) error {
	if err := s.awaitStanding(ctx, Unwelcome); err != nil { // for ever in a template
		return err
	}
	user, err := findAccount("")
	if err != nil {
		return err
	}
	early := isThere(managerSocket(user))
	if !early && os.MkdirAll(lingerDir, 0o755) == nil {
		// Without logind, which may not be up: programs that start before it are told of the session as well.
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

// awaitStanding waits until the workspace is as far as that.
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

// managerSocket is what the user's systemd listens at.
func managerSocket(user account) string {
	return filepath.Join(runtimeDirs, strconv.FormatUint(uint64(user.UID), 10), "systemd/private")
}

// hasUnits says whether a home has units or an environment for the user's systemd.
func hasUnits(home string) bool {
	for _, dir := range []string{".config/systemd", ".config/environment.d", ".local/share/systemd/user"} {
		if _, err := os.Lstat(filepath.Join(home, dir)); !errors.Is(err, os.ErrNotExist) {
			return true
		}
	}
	return false
}

// startOwnUnits has a user's systemd that started without the user's home read it, and start what is enabled there.
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
