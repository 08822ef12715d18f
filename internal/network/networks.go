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
	endWait   = 20 * time.Second // for a process to end whose machine has
	groupWait = time.Second      // for the kernel to have it out of its group, which is after its lock is free
	answering = 20 * time.Second // for one to say who it is
)

// Options say how networks are run.
type Options struct {
	// Command is the program that calls [Serve] with its last argument, and its first arguments.
	Command []string
	// Reach returns addresses that count as the internet's, whatever they look like: where the host
	// itself gets packages from. Nil: there are none.
	Reach func(context.Context) []netip.AddrPort
	// Own answers the computer whose machine is in a directory at http://holt.internal/. Nil: nobody does.
	Own func(dir string) http.Handler
	// Groups are those of the machines, which their networks join. Nil: there are none.
	Groups *cgroup.Tree
	// Apart: each process is a user of its own in a jail, see [jail.Check].
	Apart bool
	Log   *slog.Logger
}

// Networks are the networks of a daemon's machines.
type Networks struct{ opt Options }

// New returns the networks of machines, of which none is looked at yet.
func New(o Options) *Networks {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Networks{o}
}

// Write puts a policy where the network of the machine in dir finds it when it begins, or is told by Set.
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

// Set changes the policy of the machine in dir at once: when it returns what is not allowed any more is cut off.
func (n *Networks) Set(ctx context.Context, dir string, p holt.NetworkPolicy) error {
	if err := n.Write(ctx, dir, p); err != nil {
		return err
	}
	return tell(ctx, dir)
}

// tell has the process of a machine read policy and secrets. If there is none the next one does.
func tell(ctx context.Context, dir string) error {
	_, err := reload(ctx, dir)
	return err
}

// reload is tell, and returns what the process says of itself then; nil if there is none.
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

// Traffic returns what the machines in dir have sent and received, in the order of destinations.
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

// takeLock takes the lock of a directory's network; Conflict if a process has it.
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

// hold returns a handle on the process that is the network of the machine which runs in a directory; if
// there is none it is started, with the lock. [machine.ErrGone] if no machine runs there whose network this is.
func (n *Networks) hold(ctx context.Context, d *machine.Dir) (h *machine.Handle, started bool, err error) {
	record, err := d.ReadRecord()
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Lstat(d.File(machine.Socket(machine.PortNetwork))); errors.Is(err, fs.ErrNotExist) {
		return nil, false, machine.Gone(d.Path) // it was started with a network of another kind, or none
	}
	if err := running(record.Process); err != nil {
		return nil, false, err
	}
	lock, err := takeLock(d)
	if err == nil {
		defer lock.Close() // the process has its own
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
			if !d.HeldBy(is.Process.PID, lockFile) { // a guest that has taken it over could have any process moved, and followed
				h.Close()
				return nil, false, errors.Join(holt.Errorf(holt.Unavailable, "the network in %s says that it is process %d, which it is not", d.Path, is.Process.PID), kill(d.Path))
			}
			n.bound(d, is.Process.PID)
			return h, false, tell(ctx, d.Path)
		}
	}
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	// It serves a machine that was here before, or nobody.
	return nil, false, errors.Join(holt.Errorf(holt.Unavailable, "another network is still in %s", d.Path), n.End(d.Path))
}

// trusted are the variables that say whom the host trusts: its proxy does.
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
		return nil, fmt.Errorf("close control socket to others: %w", err)
	}
	log, err := os.OpenFile(d.File(logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of network: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(n.opt.Command[0], append(n.opt.Command[1:len(n.opt.Command):len(n.opt.Command)], d.Path)...)
	cmd.Dir, cmd.ExtraFiles, cmd.Stderr, cmd.Stdout = "/", []*os.File{lock, control}, log, log
	// What it does not need it does not get: a guest speaks to it.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "GOGC=100", "GOMAXPROCS=1", "GOTRACEBACK=single"}
	for _, name := range trusted {
		if where := os.Getenv(name); where != "" {
			cmd.Env = append(cmd.Env, name+"="+where)
		}
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // the daemon's terminal and its signals are not the network's
	if err := n.run(d, cmd); err != nil {
		return nil, fmt.Errorf("start network: %w", err)
	}
	p, err := machine.Identify(cmd.Process.Pid) // a child that nobody has waited for
	var h *machine.Handle
	if err == nil {
		h, err = p.Open()
	}
	n.bound(d, cmd.Process.Pid)
	go cmd.Wait()
	return h, err
}

// bound puts a network into the group of its machine. One that cannot be bounded runs on.
func (n *Networks) bound(d *machine.Dir, pid int) {
	if err := n.opt.Groups.Join(d.Path, pid); err != nil {
		n.opt.Log.Warn("the network of a machine is not bounded", "dir", d.Path, "err", err)
	}
}

// End waits until no network runs in dir, whose machine has ended, and sees to it.
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

// kill ends the processes of the network in dir.
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

// Leftover returns those of them that serve no machine.
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
