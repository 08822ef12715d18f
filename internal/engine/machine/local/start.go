package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const (
	// maxConsole is the maximum size of the console log at the start of a machine, bytes.
	maxConsole = 1 << 20
	// startWait is the timeout of a start without another deadline.
	startWait = time.Minute
	// socketPoll is how often a start checks whether the agent listens.
	socketPoll = 2 * time.Millisecond
)

// sockets are the agent's listening sockets.
var sockets = [...]string{machine.PortControl + ".sock", machine.PortFiles + ".sock"}

// script runs as PID 1 of the new namespaces and becomes the agent. File
// descriptor 3 is the lock, which the agent keeps open; 4 is the agent's program.
// $1 is the name of its cgroup.
//
// The working directory stays the machine's: the agent creates its sockets there,
// whatever its root is. Paths for overlayfs are relative, since its options
// cannot quote a comma.
const script = `mount --make-rslave / || exit
lay() { # lay DIR: the host's DIR, to be written on without its knowing
	mkdir -p "upper$1" "work$1" "root$1" && mount -t overlay -o lowerdir="$1",upperdir="upper$1",workdir="work$1" overlay "root$1"
}
view() {
	mkdir -p scratch && mount -t tmpfs -o mode=755 holt scratch && cd scratch && lay / || return
	while read -r _ d _; do
		case $d in
		/|/*/*|/proc|/home) ;;
		/dev|/sys) mount --rbind "$d" "root$d" || return ;;
		*) lay "$d" || echo "holt: $d of the host is not there" >&2 ;;
		esac
	done </proc/self/mounts
	mount -t proc proc root/proc && mkdir -p root/.host && cd ..
}
here=$(pwd)
if view; then
	pivot_root scratch/root scratch/root/.host && umount -l /.host && rmdir /.host || exit
else
	cd "$here"
	echo 'holt: there is no overlayfs: what the guest writes outside of its workspace, it writes on the host' >&2
	mount -t proc proc /proc || exit
fi
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /home &&
mkdir -p /root && mount -t tmpfs -o mode=700,nosuid,nodev tmpfs /root &&
exec /proc/self/fd/4 agent --control-socket control.sock --files-socket files.sock --cgroup "$1"`

// Start implements [machine.Engine]. It returns when the agent listens.
//
// Errors: Unsupported without root or without the holt-guest program.
func (e *Engine) Start(ctx context.Context, spec machine.Spec) (m machine.Machine, err error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Restore != "" {
		return nil, noMemory()
	}
	if os.Geteuid() != 0 {
		return nil, holt.Errorf(holt.Unsupported, "the local engine needs root to create namespaces and mounts").
			WithHint("run holt as root, or use virtual machines: holt up --engine qemu")
	}
	dir, err := machine.MakeDir(spec.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := dir.Lock()
	if err != nil {
		dir.Close()
		return nil, err
	}
	defer lock.Close() // the agent has a copy
	g := &guest{engine: e, disk: spec.Disk, Hold: machine.Hold{Dir: dir, Ports: machine.Ports{Dir: dir}}}
	defer func() {
		if err != nil {
			g.undo()
		}
	}()
	if err := g.launch(lock); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := g.listening(bounded); err != nil {
		return nil, err
	}
	err = dir.WriteRecord(machine.Record{
		Engine:    engineName,
		Process:   g.Handle.Process,
		Spec:      spec,
		StartedAt: time.Now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	g.Watch(g.supervise)
	return g, nil
}

// launch starts the process.
func (g *guest) launch(lock *os.File) error {
	if err := g.Dir.Remove(append([]string{endFile}, sockets[:]...)...); err != nil {
		return fmt.Errorf("remove sockets of a former machine: %w", err)
	}
	program, err := os.Open(g.engine.guest)
	if err != nil {
		return holt.Errorf(holt.Unsupported, "open the guest agent: %w", err).
			WithHint("install the program holt-guest, which the local engine runs")
	}
	defer program.Close()
	console, err := openConsole(g.Console())
	if err != nil {
		return err
	}
	defer console.Close()
	cmd := exec.Command("/bin/sh", "-c", script, "holt-guest", cgroupName(g.Dir.Path))
	cmd.Dir, cmd.ExtraFiles = g.Dir.Path, []*os.File{lock, program}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} // the daemon's environment may have secrets
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return holt.Errorf(holt.Unsupported, "start the guest agent in namespaces of its own: %w", err)
	}
	g.child = cmd.Process
	// It is an unreaped child, so its process id is not reused.
	p, err := machine.Identify(cmd.Process.Pid)
	if err == nil {
		g.Handle, err = p.Open()
	}
	g.reaped.Go(func() {
		if cmd.Wait(); cmd.ProcessState != nil {
			g.status = unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus))
		}
	})
	if err != nil {
		return fmt.Errorf("open a pidfd of the guest agent: %w", err)
	}
	g.engine.claims.Add(p)
	return nil
}

// openConsole opens the log for appending. It truncates the log if it is long.
func openConsole(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open console log: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.Size() > maxConsole {
		f.Truncate(0)
	}
	return f, nil
}

// listening returns when both of the agent's sockets accept connections.
func (g *guest) listening(ctx context.Context) error {
	tick := time.NewTicker(socketPoll)
	defer tick.Stop()
	for _, name := range sockets {
		for {
			conn, err := g.Dir.Dial(ctx, name)
			if err == nil {
				conn.Close()
				break
			}
			if !errors.Is(err, machine.ErrGone) && ctx.Err() == nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return holt.Errorf(holt.Timeout, "start the guest agent in %s: %w", g.Dir.Path, ctx.Err())
			case <-g.Handle.Done():
				return holt.Errorf(holt.Internal, "the guest agent in %s ended at once: %s", g.Dir.Path, machine.EndOfLog(g.Console()))
			}
		}
	}
	return nil
}

// undo undoes a failed start, in reverse.
func (g *guest) undo() {
	switch {
	case g.Handle != nil: // KillInit also aborts its mounts
		if err := machine.KillInit(g.Handle.Process); err != nil {
			g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
		}
	case g.child != nil:
		g.child.Kill()
		g.reaped.Wait()
	}
	g.Let(&g.engine.claims)
	sweepCgroups(g.Dir.Path)
	if err := g.Dir.Remove(append([]string{machine.RecordFile}, sockets[:]...)...); err != nil {
		g.engine.log.Warn("undo start of machine", "dir", g.Dir.Path, "err", err)
	}
	g.Dir.Close()
}
