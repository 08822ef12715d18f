package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/fusectl"
)

// Keeper says how a host mount outlives the daemon that serves it: a small
// process of its own holds what the kernel knows the mount by, and the memory of
// the requests that are being answered, and gives both to whoever asks. What is
// asked of the mount meanwhile waits.
type Keeper struct {
	Command []string // the program, with its first arguments, that calls [Keep] with the one before its last
	Dir     string   // of the keepers' sockets
}

const (
	keeperListen = 3 // inherited descriptors: see [exec.Cmd]
	keeperFuse   = 4
	keeperMemory = 5

	handWait = 5 * time.Second // for a keeper to hand over what it has
)

// socket is where the keeper of a mount listens. A keeper that ends late removes its socket, so the
// name is the mount's and not its directory's: the next mount on the directory has another.
func (k *Keeper) socket(id [16]byte) string { return fmt.Sprintf("%x.sock", id) }

// Clear removes the socket that a killed keeper has left.
func (k *Keeper) Clear(id [16]byte) error {
	if err := os.Remove(filepath.Join(k.Dir, k.socket(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of a keeper: %w", err)
	}
	return nil
}

// start starts a keeper of a mount.
func (k *Keeper) start(dir string, dev int, mem *memory) error {
	at, err := machine.MakeDir(k.Dir)
	if err != nil {
		return err
	}
	defer at.Close()
	socket := k.socket(mem.id())
	listen, err := at.Listen(socket)
	if err != nil {
		return err
	}
	defer listen.Close()
	held, err := unix.FcntlInt(uintptr(dev), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate a mount's descriptor: %w", err)
	}
	file := os.NewFile(uintptr(held), "/dev/fuse")
	defer file.Close()
	cmd := exec.Command(k.Command[0], append(k.Command[1:len(k.Command):len(k.Command)], at.File(socket), dir)...)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{listen, file, mem.file}
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=single"}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // the daemon's terminal and its signals are not the keeper's
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper of a mount: %w", err)
	}
	go cmd.Wait()
	return nil
}

// Kept is a mount that a keeper holds, as this process got it from there.
type Kept struct {
	dir  string
	dev  *agent.FuseDevice
	mem  *memory
	conn net.Conn // while it is open, the keeper knows that somebody serves the mount
}

// Find takes the mount of that id on dir over from its keeper. NotFound if there is no keeper.
func (k *Keeper) Find(ctx context.Context, dir string, id [16]byte) (*Kept, error) {
	at, err := machine.OpenDir(k.Dir)
	if err != nil {
		return nil, notKept(dir, err)
	}
	defer at.Close()
	ctx, cancel := context.WithTimeout(ctx, handWait)
	defer cancel()
	conn, err := at.Dial(ctx, k.socket(id))
	if err != nil {
		return nil, notKept(dir, err)
	}
	kept, err := receive(ctx, conn.(*net.UnixConn), dir)
	if err != nil {
		conn.Close()
	}
	return kept, err
}

func notKept(dir string, err error) error {
	if errors.Is(err, machine.ErrGone) {
		return holt.Errorf(holt.NotFound, "no keeper process holds a mount on %s", dir)
	}
	return err
}

func receive(ctx context.Context, conn *net.UnixConn, dir string) (*Kept, error) {
	if end, ok := ctx.Deadline(); ok {
		conn.SetReadDeadline(end)
	}
	control := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, fmt.Errorf("take a mount over from its keeper: %w", err)
	}
	fds, err := parseRights(control[:n])
	if err == nil && len(fds) != 2 {
		closeAll(fds)
		err = fmt.Errorf("%d descriptors", len(fds))
	}
	if err != nil {
		return nil, fmt.Errorf("take a mount over from its keeper: %w", err)
	}
	unix.SetNonblock(fds[0], true)
	dev, err := agent.NewFuseDevice(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, err
	}
	mem, err := openMemory(os.NewFile(uintptr(fds[1]), "holt-mount"))
	if err != nil {
		dev.Close()
		return nil, err
	}
	return &Kept{dir: dir, dev: dev, mem: mem, conn: conn}, nil
}

// ID is the id of the mount, and of its epoch.
func (k *Kept) ID() [16]byte { return k.mem.id() }

// End ends a mount that nobody will serve: what uses it gets ENOTCONN.
func (k *Kept) End() error {
	defer k.close()
	return k.abort()
}

func (k *Kept) abort() error { return errors.Join(fusectl.Abort(k.device()), detach(k.dir)) }

func (k *Kept) device() uint32 { return uint32(k.mem.word(atDevice).Load()) }

func (k *Kept) close() {
	k.dev.Close()
	k.mem.close()
	if k.conn != nil {
		k.conn.Close()
	}
}

// Keep is a keeper's process: it holds what it inherited until the mount is gone, and removes its socket then.
func Keep(socket string) error {
	defer os.Remove(socket)
	served := -1 // the connection to who serves the mount
	for {
		// Who serves a mount learns its end first. A descriptor that is watched is woken for each request.
		watch := []unix.PollFd{{Fd: keeperListen, Events: unix.POLLIN}, {Fd: keeperFuse}}
		if served >= 0 {
			watch[1] = unix.PollFd{Fd: int32(served), Events: unix.POLLIN}
		}
		if _, err := unix.Poll(watch, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for a daemon: %w", err)
		}
		gone := watch[1].Revents != 0
		if gone && served < 0 {
			return nil
		}
		if gone {
			unix.Close(served)
			served = -1
		}
		if watch[0].Revents != 0 {
			if served >= 0 {
				unix.Close(served)
			}
			served = hand()
		}
	}
}

// hand gives a daemon what is held, and returns the connection to it; -1 if it has gone.
func hand() int {
	conn, _, err := unix.Accept4(keeperListen, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return -1
	}
	if err := unix.Sendmsg(conn, []byte{0}, unix.UnixRights(keeperFuse, keeperMemory), nil, 0); err != nil {
		unix.Close(conn)
		return -1
	}
	return conn
}
