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

// Keeper makes a host mount outlive the daemon that serves it: a small process
// holds the mount's descriptor and the memory of the requests in progress, and
// passes both to the next daemon. Requests wait in the meantime.
type Keeper struct {
	Command []string // program and first arguments; it must call [Keep] with its last argument but one
	Dir     string   // directory of the keepers' sockets
}

const (
	keeperListen = 3 // inherited descriptors, see [exec.Cmd]
	keeperFuse   = 4
	keeperMemory = 5

	handWait = 5 * time.Second // timeout of the handover by a keeper
)

// socket returns the socket of a mount's keeper. It is named after the mount,
// not the directory, because a keeper may remove its socket late, when the
// directory has the next mount.
func (k *Keeper) socket(id [16]byte) string { return fmt.Sprintf("%x.sock", id) }

// Clear removes the socket of a killed keeper.
func (k *Keeper) Clear(id [16]byte) error {
	if err := os.Remove(filepath.Join(k.Dir, k.socket(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of a keeper: %w", err)
	}
	return nil
}

// start starts the keeper of a mount.
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
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // detach it from the daemon's terminal and signals
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper of a mount: %w", err)
	}
	go cmd.Wait()
	return nil
}

// Kept is a mount that this process received from its keeper.
type Kept struct {
	dir  string
	dev  *agent.FuseDevice
	mem  *memory
	conn net.Conn // while it is open, the keeper knows that the mount is served
}

// Find takes over the mount with that id on dir from its keeper. It returns
// NotFound if there is no keeper.
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

// ID returns the id of the mount and of its epoch.
func (k *Kept) ID() [16]byte { return k.mem.id() }

// End ends a mount that will not be served: its users get ENOTCONN.
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

// Keep is the main function of a keeper: it holds the inherited files until the
// mount is gone, and then removes its socket.
func Keep(socket string) error {
	defer os.Remove(socket)
	served := -1 // the connection to the serving daemon
	for {
		// While a daemon serves the mount, only its connection is watched: watching the
		// mount's descriptor would wake this process for each request.
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

// hand passes the files to a daemon and returns the connection to it; -1 if it has gone.
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
