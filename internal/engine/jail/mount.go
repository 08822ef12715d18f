package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type credential = syscall.Credential

// programs are the host's directories of programs, libraries and the linker's configuration.
var programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/ld.so.cache", "/etc/alternatives"}

// names are needed for network access: resolver configuration, CA certificates, and /proc.
var names = []string{"/proc", "/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"}

// devices are in every jail.
var devices = []string{"/dev/null", "/dev/urandom"}

type owner struct{ uid, gid uint32 }

func ownerOf(info fs.FileInfo) owner {
	st := info.Sys().(*syscall.Stat_t)
	return owner{st.Uid, st.Gid}
}

// tree is a file, directory, link or device to show in a jail.
type tree struct {
	path   string
	link   string // target of a symbolic link
	fd     int    // detached mount; -1: none
	dir    bool
	device uint64 // number of a device to create; 0: none
	user   int
}

// root is the content of a jail's root directory.
type root []tree

// build opens everything to show, as it is on the host.
func (c Cell) build(program string) (r root, err error) {
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	add := func(t tree, err error) error {
		if err == nil {
			r = append(r, t)
		}
		return err
	}
	all := programs
	if c.Network {
		all = append(all[:len(all):len(all)], names...)
	}
	for _, path := range append(all, devices...) {
		if err := add(plain(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("show %s: %w", path, err)
		}
	}
	for _, path := range c.Devices {
		if err := add(deviceOf(path, c.User)); err != nil {
			return r, fmt.Errorf("show %s: %w", path, err)
		}
	}
	maps := idmaps{user: c.User}
	defer maps.close()
	files := c.Files
	if !strings.HasPrefix(program, "/proc/") { // /proc names this program itself
		files = append([]File{{Path: program}}, files...)
	}
	for _, f := range files {
		if f.Hide {
			if err := add(hidden(f.Path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return r, fmt.Errorf("hide %s: %w", f.Path, err)
			}
			continue
		}
		if err := add(maps.open(f)); err != nil {
			return r, fmt.Errorf("show %s: %w", f.Path, err)
		}
	}
	return r, nil
}

// plain opens a path as it is, read-only.
func plain(path string) (tree, error) {
	t := tree{path: path, fd: -1}
	info, err := os.Lstat(path)
	if err != nil {
		return t, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		t.link, err = os.Readlink(path)
		return t, err
	}
	t.dir = info.IsDir()
	if t.fd, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
		return t, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_PRIVATE}
	if info.Mode()&fs.ModeDevice == 0 {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV
	}
	if err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(t.fd)
		return t, err
	}
	return t, nil
}

// hidden returns an empty replacement for a file.
func hidden(path string) (tree, error) {
	if _, err := os.Lstat(path); err != nil {
		return tree{}, err
	}
	t, err := plain(os.DevNull)
	t.path = path
	return t, err
}

// deviceOf returns a device of the host, owned by the user.
func deviceOf(path string, user int) (tree, error) {
	info, err := os.Stat(path)
	if err != nil {
		return tree{}, err
	}
	return tree{path: path, fd: -1, device: info.Sys().(*syscall.Stat_t).Rdev, user: user}, nil
}

// idmaps are user namespaces that map the owner of a file to the user, by owner.
type idmaps struct {
	user int
	of   map[owner]*os.File
}

func (m *idmaps) close() {
	for _, f := range m.of {
		f.Close()
	}
}

// open opens a file with its owner mapped to the user.
func (m *idmaps) open(f File) (tree, error) {
	t := tree{path: f.Path, fd: -1}
	var err error
	if t.fd, err = unix.OpenTree(unix.AT_FDCWD, f.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
		return t, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(t.fd, &st); err == nil {
		t.dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
		err = m.set(t.fd, owner{st.Uid, st.Gid}, f.Write)
	}
	if err != nil {
		unix.Close(t.fd)
	}
	return t, err
}

func (m *idmaps) set(fd int, of owner, write bool) error {
	ns := m.of[of]
	if ns == nil {
		var err error
		if ns, err = userNamespace(of, m.user); err != nil {
			return fmt.Errorf("make user namespace: %w", err)
		}
		if m.of == nil {
			m.of = map[owner]*os.File{}
		}
		m.of[of] = ns
	}
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd:   uint64(ns.Fd()),
		Propagation: unix.MS_PRIVATE,
	}
	if !write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
}

// userNamespace returns a user namespace that maps an owner to the user. No
// code runs in it: its first process is stopped before its first instruction,
// and killed.
func userNamespace(of owner, user int) (*os.File, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(of.uid), HostID: user, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(of.gid), HostID: user, Size: 1}},
		Ptrace:      true, Pdeathsig: unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
}

func (r root) close() {
	for _, t := range r {
		if t.fd >= 0 {
			unix.Close(t.fd)
		}
	}
}

// enter makes the jail the root of this thread, in a mount namespace that has nothing else.
func (r root) enter() error {
	defer r.close()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const at = "/proc" // any directory; the mount covers its content
	if err := unix.Mount("jail", at, "tmpfs", unix.MS_NOSUID, "mode=755,size=1m"); err != nil {
		return err
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // see pivot_root(2), pivot_root(".", ".")
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	for _, t := range r {
		if err := t.place(); err != nil {
			return fmt.Errorf("show %s: %w", t.path, err)
		}
	}
	return nil
}

// place mounts t at its path, over an earlier mount there.
func (t tree) place() error {
	if _, err := os.Lstat(t.path); errors.Is(err, fs.ErrNotExist) {
		if err := t.prepare(); err != nil || t.fd < 0 {
			return err
		}
	} else if err != nil || t.fd < 0 {
		return err
	}
	return unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// prepare creates the mount point, or t itself if it is not a mount.
func (t tree) prepare() error {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return err
	}
	switch {
	case t.link != "":
		return os.Symlink(t.link, t.path)
	case t.device != 0:
		if err := unix.Mknod(t.path, unix.S_IFCHR|0o600, int(t.device)); err != nil {
			return err
		}
		return os.Chown(t.path, t.user, t.user)
	case t.dir:
		return os.Mkdir(t.path, 0o755)
	}
	return os.WriteFile(t.path, nil, 0o444)
}
