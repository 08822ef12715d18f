package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
	"holt/internal/store/flock"
)

const (
	endWait   = 20 * time.Second // for a process to end after its machine
	groupWait = time.Second      // for the kernel to remove an ended process from its control group
	answering = 20 * time.Second // for a process to answer /status
)

// Options are the options of [Networks].
type Options struct {
	// Command is a program and its first arguments. It calls [Serve] with its last argument.
	Command []string
	// Reach returns addresses that count as public, even if they are not: the servers of the host's
	// packages. Nil: none.
	Reach func(context.Context) []netip.AddrPort
	// Own serves http://holt.internal/ for the computer whose machine is in a directory. Nil: not served.
	Own func(dir string) http.Handler
	// Groups are the control groups of the machines, which their networks join. Nil: none.
	Groups *cgroup.Tree
	// Apart runs each process as its own user in a jail, see [jail.Check].
	Apart bool
	Log   *slog.Logger
}

// Networks are the networks of a daemon's machines.
type Networks struct{ opt Options }

// New returns the networks of a daemon.
func New(o Options) *Networks {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Networks{o}
}

// Write writes the policy of the machine in dir. Its network reads it when it starts, or at Set.
func (n *Networks) Write(ctx context.Context, dir string, p holt.NetworkPolicy) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return machine.Gone(dir)
	}
	s := settings{Policy: p}
	if n.opt.Reach != nil {
		s.Reach = n.opt.Reach(ctx)
	}
	return replace(dir, settingsFile, s)
}

// Set changes the policy of the machine in dir, also if it runs. When Set returns, flows that are no longer allowed are
// reset.
func (n *Networks) Set(ctx context.Context, dir string, p holt.NetworkPolicy) error {
	if err := n.Write(ctx, dir, p); err != nil {
		return err
	}
	return tell(ctx, dir)
}

// tell makes the process of a machine, if there is one, read policy and secrets again.
func tell(ctx context.Context, dir string) error {
	_, err := reload(ctx, dir)
	return err
}

// reload is tell, and returns the status of the process; nil if there is none.
func reload(ctx context.Context, dir string) (*status, error) {
	d, err := machine.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var is status
	err = call(ctx, d, "POST", "/reload", &is)
	if err == nil {
		return &is, nil
	}
	if lock, free := takeLock(d); free == nil {
		return nil, lock.Close()
	}
	return nil, err
}

// Traffic returns the traffic of the machines in dir, sorted by destination.
func (n *Networks) Traffic(ctx context.Context, dir string) ([]holt.Traffic, error) {
	d, err := machine.OpenDir(dir)
	if errors.Is(err, machine.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var all few[holt.Traffic]
	if call(ctx, d, "GET", "/traffic", &all) == nil {
		return all, nil
	}
	return readTraffic(d)
}

// takeLock takes the lock of a directory's network, or returns Conflict if a process has it.
func takeLock(d *machine.Dir) (*os.File, error) {
	f, err := flock.Open(d.File(lockFile), 0o600)
	if errors.Is(err, flock.ErrHeld) {
		return nil, holt.Errorf(holt.Conflict, "a network runs in %s", d.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock network: %w", err)
	}
	return f, nil
}

// hold returns a handle of the network's process of the machine in a directory, and starts the process if there is
// none. It returns [machine.ErrGone] if no machine with a network of this kind runs there.
func (n *Networks) hold(ctx context.Context, d *machine.Dir) (h *machine.Handle, started bool, err error) {
	record, err := d.ReadRecord()
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Lstat(d.File(machine.Socket(machine.PortNetwork))); errors.Is(err, fs.ErrNotExist) {
		return nil, false, machine.Gone(d.Path) // the machine has no network, or one of another kind
	}
	if err := running(record.Process); err != nil {
		return nil, false, err
	}
	lock, err := takeLock(d)
	if err == nil {
		defer lock.Close() // the process has inherited it
		h, err = n.start(d, lock)
		return h, true, err
	}
	if holt.CodeOf(err) != holt.Conflict {
		return nil, false, err
	}
	within, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	var is status
	if err = call(within, d, "GET", "/status", &is); err == nil && is.Machine == record.Process {
		if h, err := is.Process.Open(); err == nil {
			if !d.HeldBy(is.Process.PID, lockFile) { // a guest that has taken over the process could give the id of any process
				h.Close()
				return nil, false, errors.Join(holt.Errorf(holt.Unavailable, "the network in %s reports the process id %d, which does not have its lock", d.Path, is.Process.PID), kill(d.Path))
			}
			n.bound(d, is.Process.PID)
			return h, false, tell(ctx, d.Path)
		}
	}
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	// The process serves a former machine, or none.
	return nil, false, errors.Join(holt.Errorf(holt.Unavailable, "the network of a former machine still runs in %s", d.Path), n.End(d.Path))
}

// trusted are the environment variables of the host's CA certificates, which the proxy trusts.
var trusted = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// start starts the process.
func (n *Networks) start(d *machine.Dir, lock *os.File) (*machine.Handle, error) {
	if err := d.Remove(controlSocket); err != nil {
		return nil, fmt.Errorf("remove control socket of a former network: %w", err)
	}
	control, err := d.Listen(controlSocket)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	if err := os.Chmod(d.File(controlSocket), 0o600); err != nil {
		return nil, fmt.Errorf("set mode of control socket: %w", err)
	}
	log, err := os.OpenFile(d.File(logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of network: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(n.opt.Command[0], append(n.opt.Command[1:len(n.opt.Command):len(n.opt.Command)], d.Path)...)
	cmd.Dir, cmd.ExtraFiles, cmd.Stderr, cmd.Stdout = "/", []*os.File{lock, control}, log, log
	// A minimal environment, since a hostile guest may take the process over.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "GOGC=100", "GOMAXPROCS=1", "GOTRACEBACK=single"}
	for _, name := range trusted {
		if where := os.Getenv(name); where != "" {
			cmd.Env = append(cmd.Env, name+"="+where)
		}
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // detached from the daemon's terminal and its signals
	if err := n.run(d, cmd); err != nil {
		return nil, fmt.Errorf("start network: %w", err)
	}
	p, err := machine.Identify(cmd.Process.Pid) // the child is not reaped yet, so the id is valid
	var h *machine.Handle
	if err == nil {
		h, err = p.Open()
	}
	n.bound(d, cmd.Process.Pid)
	go cmd.Wait()
	return h, err
}

// bound moves a network's process into the control group of its machine. It logs errors.
func (n *Networks) bound(d *machine.Dir, pid int) {
	if err := n.opt.Groups.Join(d.Path, pid); err != nil {
		n.opt.Log.Warn("move the network of a machine into its control group: it runs without limits", "dir", d.Path, "err", err)
	}
}

// End waits until the network in dir, whose machine has ended, ends too, and kills it after endWait.
func (n *Networks) End(dir string) error {
	d, err := machine.OpenDir(dir)
	if errors.Is(err, machine.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	defer n.opt.Groups.Remove(dir, groupWait)
	if _, err := os.Lstat(d.File(lockFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for end := time.Now().Add(endWait); ; time.Sleep(2 * time.Millisecond) {
		lock, err := takeLock(d)
		if err == nil {
			return lock.Close()
		}
		if holt.CodeOf(err) != holt.Conflict {
			return err
		}
		if time.Now().After(end) {
			break
		}
	}
	return kill(dir)
}

// kill kills the processes of the network in dir.
func kill(dir string) error {
	all, err := Strays(dir)
	for _, one := range all {
		err = errors.Join(err, one.Kill())
	}
	return err
}

// Strays returns the processes of networks in directories under root.
func Strays(root string) ([]machine.Stray, error) {
	return machine.FindHolders(root, lockFile, func(machine.Process) bool { return true }, machine.Process.Kill)
}

// Leftover returns the processes of networks whose machine does not run.
func Leftover(root string) (all []machine.Stray, err error) {
	found, err := Strays(root)
	for _, one := range found {
		d, err := machine.OpenDir(one.Dir)
		if err == nil {
			serves := alive(d)
			d.Close()
			if serves {
				continue
			}
		}
		all = append(all, one)
	}
	return all, err
}
