package jail

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Users are in a range that distributions, service managers and containers do
// not allocate (see systemd's UIDS-GIDS.md): 2^28 from firstUser on, without
// the last 2^17.
const (
	firstUser = 0x7000_0000
	users     = 1<<28 - 1<<17
)

// User returns the user and group id for a name. It is always the same for one
// name, and different for two names with probability 1 - 4e-9.
func User(name string) int {
	sum := sha256.Sum256([]byte(name))
	return firstUser + int(binary.BigEndian.Uint32(sum[:])%users)
}

// Users returns the first and last id that [User] returns.
func Users() (first, last int) { return firstUser, firstUser + users - 1 }

// File is a file or directory of the host to show in a jail.
type File struct {
	Path  string // absolute
	Write bool   // otherwise read-only
	Hide  bool   // replace it, in a shown directory, by /dev/null
}

// Cell describes a jail to start.
type Cell struct {
	User  int
	Files []File
	// Private are files that the program opens for writing too (O_RDWR and no other
	// flag) but maps only privately. The jail opens them read-only, so a mapping is
	// copy-on-write (on amd64; elsewhere the program can write to them). Once it
	// has opened all of them it can open no other file with just that flag.
	Private []string
	Devices []string // of the host that the user may use, such as /dev/kvm
	Network bool     // share the host's network, resolver configuration and CA certificates
}

// Thread runs f in a new thread that ends with it, so that changes to the
// thread's state do not leak. Processes that f starts inherit that state. The
// thread is never the program's main thread, which cannot end and is what
// /proc/self shows, nor one with children, which could be killed when it ends
// (PR_SET_PDEATHSIG).
func Thread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if children, _ := os.ReadFile("/proc/thread-self/children"); unix.Gettid() == unix.Getpid() || len(children) > 0 {
			defer runtime.UnlockOSThread()
			done <- Thread(f) // this thread stays locked until then
			return
		}
		done <- f() // never unlocked: the thread ends
	}()
	return <-done
}

// Start starts the command in the jail. It must be called in a [Thread], whose
// root it changes to the jail's.
func (c Cell) Start(cmd *exec.Cmd) error {
	for _, path := range c.Private {
		c.Files = append(c.Files[:len(c.Files):len(c.Files)], File{Path: path, Write: !traces})
	}
	r, err := c.build(cmd.Path)
	if err == nil {
		err = r.enter()
	}
	if err != nil {
		return fmt.Errorf("make jail: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	cmd.Dir = "/"
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &unix.SysProcAttr{}
	}
	traced := traces && len(c.Private) > 0
	if traced {
		if err := announce(); err != nil {
			return err
		}
	}
	cmd.SysProcAttr.Ptrace = traced
	cmd.SysProcAttr.Credential = &credential{Uid: uint32(c.User), Gid: uint32(c.User)}
	cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !c.Network {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil || !traced {
		return err
	}
	late := time.AfterFunc(privateWait, func() { cmd.Process.Kill() })
	defer late.Stop()
	err = private(cmd.Process.Pid, c.Private)
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
	return err
}

// privateWait is the timeout for a program to open its private files.
const privateWait = time.Minute

// Forbid disables core dumps of a jailed process that this thread has started.
// Afterwards the thread's real user is the process's: a root without
// CAP_SYS_RESOURCE may limit only processes of its own user (prlimit(2)).
func (c Cell) Forbid(pid int) error {
	id := uintptr(c.User)
	const same = ^uintptr(0)
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		if _, _, errno := unix.RawSyscall(call, id, same, same); errno != 0 {
			return errno
		}
	}
	return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
}

// Check returns why jails for files in these existing directories do not work,
// or nil. It runs program in a jail to print its version.
func Check(program string, dirs ...string) error {
	if os.Geteuid() != 0 {
		return errors.New("the daemon is not root")
	}
	files := []File{}
	for _, dir := range dirs {
		files = append(files, File{Path: dir})
	}
	return Thread(func() error {
		cmd := exec.Command(program, "--version")
		if err := (Cell{User: User("try"), Files: files}).Start(cmd); err != nil {
			return err
		}
		return cmd.Wait()
	})
}

// Of reports whether a process is in a jail, and its user.
func Of(pid int) (user int, jailed bool) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, false
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil || its == own {
		return 0, false
	}
	info, err := os.Stat(filepath.Join("/proc", fmt.Sprint(pid)))
	if err != nil {
		return 0, false
	}
	user = int(ownerOf(info).uid)
	return user, user >= firstUser && user < firstUser+users
}
