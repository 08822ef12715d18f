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

// Users are in a range that neither distributions, nor service managers nor containers give out
// (systemd's UIDS-GIDS.md has them all): 2^28 from firstUser on, but for the last 2^17.
const (
	firstUser = 0x7000_0000
	users     = 1<<28 - 1<<17
)

// User is the user, and the group, for what is called name: always the same, and with a probability of
// 1 - 4e-9 another than for any other name.
func User(name string) int {
	sum := sha256.Sum256([]byte(name))
	return firstUser + int(binary.BigEndian.Uint32(sum[:])%users)
}

// Users are the first and the last that [User] returns.
func Users() (first, last int) { return firstUser, firstUser + users - 1 }

// File is a file or directory of the host that is shown in a jail.
type File struct {
	Path  string // absolute
	Write bool   // else it can only be read
	Hide  bool   // it is in a directory that is shown, and looks like /dev/null
}

// Cell is a jail that is not there yet.
type Cell struct {
	User  int
	Files []File
	// Private are files that the program opens for writing too (O_RDWR, no other flag), but only ever maps for
	// itself: it can read them, and a mapping is its own (on amd64; elsewhere it can write to them). Once it has opened
	// them all it can open nothing more with just that flag.
	Private []string
	Devices []string // of the host, which the user may use, as /dev/kvm
	Network bool     // it has the host's network, its names and the certificates of whom it trusts
}

// Thread runs f in a thread of its own, which ends with it: what f changes of it is nobody else's. What f
// starts inherits it. It is never the program's first thread: that would not end, and /proc/self is what it sees;
// nor one that has children, who may be killed when it ends (PR_SET_PDEATHSIG).
func Thread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if children, _ := os.ReadFile("/proc/thread-self/children"); unix.Gettid() == unix.Getpid() || len(children) > 0 {
			defer runtime.UnlockOSThread()
			done <- Thread(f) // this thread is kept meanwhile
			return
		}
		done <- f() // and never unlocked
	}()
	return <-done
}

// Start starts the command in the jail. It is called in a [Thread], which has the jail's root afterwards.
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

// privateWait bounds how long a program may take until it has opened its private files.
const privateWait = time.Minute

// Forbid makes a process of a jail, which this thread has started, leave no core. This thread has its user as
// its real one afterwards: a root that lacks CAP_SYS_RESOURCE may limit only who is itself (prlimit(2)).
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

// Check says why there can be no jails for files in these directories, which exist; nil: there can be.
// program is tried in one: it says its version.
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

// Of tells whether a process is in a jail, and as whom.
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
