package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	ioctlAdd    = 0x40085203 // RNDADDENTROPY, linux/random.h
	ioctlReseed = 0x5207     // RNDRESEEDCRNG

	maxEntropy = 512 // bytes
	drawnBytes = 32
	maxHosts   = 256 // entries
)

var errNoMachine = holt.Errorf(holt.Unsupported, "this agent does not own its machine").
	WithHint("the local engine's machines share the host's disk, clock and power")

// sync writes the dirty pages of the workspace. It cannot be interrupted, so
// only one runs at a time: repeated calls do not use more threads.
func (s *Server) sync(context.Context, json.RawMessage) (any, error) {
	select {
	case s.syncing <- struct{}{}:
		defer func() { <-s.syncing }()
	default:
		return nil, holt.Errorf(holt.Conflict, "the workspace is being synced already")
	}
	fd, err := unix.Open(s.opt.Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		return nil, fmt.Errorf("sync workspace: %w", err)
	}
	return nil, nil
}

// shutdown starts a power-off. Without systemd, which ends the agent last, it
// first lets the answer out.
func (s *Server) shutdown(ctx context.Context, _ json.RawMessage) (any, error) {
	if !s.opt.Machine || s.opt.Sandbox && !systemdRuns() { // the agent is PID 1
		s.log.Info("shutting down")
		time.AfterFunc(answerTime, s.halt)
		return nil, nil
	}
	if systemdRuns() {
		err := askSystemd(ctx)
		if err == nil {
			s.opt.Ending()
		}
		return nil, err
	}
	time.AfterFunc(answerTime, func() {
		s.runs.end()
		s.terms.end()
		powerOff()
	})
	return nil, nil
}

// answerTime is how long an answer gets to be sent before the connection ends.
const answerTime = 50 * time.Millisecond

// halt ends the process: Serve returns, and with PID 1 its namespace ends.
func (s *Server) halt() {
	s.haltOnce.Do(func() {
		s.runs.end()
		s.terms.end()
		close(s.halted)
	})
}

// systemdSocket exists once systemd handles signals. Before that the kernel
// drops them, as for any PID 1 without handlers.
const systemdSocket = "/run/systemd/private"

// askSystemd makes systemd start poweroff.target (SIGRTMIN+4, systemd(1)).
// After a start it waits for systemd.
func askSystemd(ctx context.Context) error {
	if err := awaitSystemd(ctx); err != nil {
		return err
	}
	if err := unix.Kill(1, syscall.Signal(34+4)); err != nil {
		return fmt.Errorf("ask systemd to power off: %w", err)
	}
	return nil
}

func systemdRuns() bool {
	b, err := os.ReadFile("/proc/1/comm")
	return err == nil && strings.TrimSpace(string(b)) == "systemd"
}

func powerOff() {
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// configure sets the machine's identity. An agent without a machine sets only
// the host name, in its own UTS namespace.
func (s *Server) configure(ctx context.Context, raw json.RawMessage) (any, error) {
	id, err := decode[Identity](raw)
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(id); err != nil {
		return nil, err
	}
	if id.Hostname != "" {
		if err := unix.Sethostname([]byte(id.Hostname)); err != nil {
			return nil, fmt.Errorf("set host name: %w", err)
		}
	}
	if !s.opt.Machine {
		name, err := os.Hostname()
		return Identified{Hostname: name, Now: time.Now()}, err // it uses the host's clock
	}
	s.configuring.Lock() // after a broken session a host may repeat a call that still runs
	defer s.configuring.Unlock()
	if id.DiskSizeMB != 0 && !s.opt.Sandbox { // first: the disk may be full, and names need space
		if err := growTo(ctx, id.DiskSizeMB); err != nil {
			return nil, err
		}
	}
	now := id.Now
	if s.opt.Sandbox {
		now = time.Time{} // it has the host's clock
	}
	drawn, err := s.reseed(id.Entropy)
	if err := errors.Join(err, setClock(now), setNames("/etc", id), setProxy("/", id.Proxy)); err != nil {
		return nil, err
	}
	done, err := renew(ctx, s.log, "/", id)
	done.Drawn = drawn
	if err != nil {
		return done, err
	}
	if s.opt.Sandbox && id.Restored && id.MachineID != "" {
		go s.keepSession(ctx) // its workspace is another one now, and may have units
	}
	return done, s.generation(ctx, id)
}

// generation writes the first generation of a machine that has booted, or the next one in a copy.
func (s *Server) generation(ctx context.Context, id Identity) error {
	copied := id.MachineID != "" || id.Repeats
	if _, err := os.Stat("/" + generationFile); err == nil && !copied {
		return nil
	}
	var restart func(context.Context) error
	if copied && id.Restored && systemdRuns() { // when booting nothing has run yet
		restart = restartForked
	}
	return newGeneration(ctx, s.log, "/", restart)
}

var (
	hostRE    = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	addressRE = regexp.MustCompile(`^[0-9a-fA-F:.]{2,45}$`)
)

func checkIdentity(id Identity) error {
	if id.Hostname != "" && (!hostRE.MatchString(id.Hostname) || len(id.Hostname) > 64) {
		return holt.Errorf(holt.InvalidArgument, "invalid host name %q", clip(id.Hostname))
	}
	if len(id.Entropy) > maxEntropy || len(id.Hosts) > maxHosts {
		return holt.Errorf(holt.InvalidArgument, "identity is too large")
	}
	if id.MachineID != "" && !machineIDRE.MatchString(id.MachineID) {
		return holt.Errorf(holt.InvalidArgument, "invalid machine id %q", clip(id.MachineID))
	}
	if err := checkProxy(id.Proxy); err != nil {
		return err
	}
	for _, h := range id.Hosts {
		if !addressRE.MatchString(h.Address) || len(h.Names) == 0 {
			return holt.Errorf(holt.InvalidArgument, "invalid address %q", clip(h.Address))
		}
		for _, n := range h.Names {
			if !hostRE.MatchString(n) {
				return holt.Errorf(holt.InvalidArgument, "invalid host name %q", clip(n))
			}
		}
	}
	return nil
}

// clockSlack is how far the clock may be ahead of the host's time without being
// set. The host's time is delayed in transit, so the host is ahead too; and a
// step back would put the newest files into the future.
const clockSlack = 500 * time.Millisecond

func clockStands(is, told time.Time) bool {
	ahead := is.Sub(told)
	return ahead >= 0 && ahead < clockSlack
}

func setClock(now time.Time) error {
	if now.IsZero() || clockStands(time.Now(), now) {
		return nil
	}
	ts := unix.NsecToTimespec(now.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// reseed reseeds the kernel's generator, except in a sandbox, which draws from
// the host's. It returns bytes drawn afterwards.
func (s *Server) reseed(entropy []byte) (drawn []byte, err error) {
	if len(entropy) == 0 {
		return nil, nil
	}
	if !s.opt.Sandbox {
		if err := addEntropy(entropy); err != nil {
			return nil, fmt.Errorf("reseed: %w", err)
		}
	}
	u, err := os.Open("/dev/urandom")
	if err != nil {
		return nil, fmt.Errorf("reseed: %w", err)
	}
	defer u.Close()
	drawn = make([]byte, drawnBytes)
	if _, err := io.ReadFull(u, drawn); err != nil {
		return nil, fmt.Errorf("reseed: draw: %w", err)
	}
	return drawn, nil
}

// addEntropy adds entropy to the kernel's generator (struct rand_pool_info) and
// reseeds it at once.
func addEntropy(entropy []byte) error {
	f, err := os.OpenFile("/dev/random", os.O_RDWR, 0) // the device that programs do not read from
	if err != nil {
		return err
	}
	defer f.Close()
	b := binary.NativeEndian.AppendUint32(nil, uint32(8*len(entropy)))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(entropy)))
	b = append(b, entropy...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlAdd, uintptr(unsafe.Pointer(&b[0]))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlReseed, 0); errno != 0 {
		return errno
	}
	return nil
}

const (
	hostsBegin = "# begin holt"
	hostsEnd   = "# end holt"
	hostSelf   = "127.0.1.1" // Debian's address for a machine's own name
)

// setNames writes etc/hostname and holt's block in etc/hosts.
func setNames(etc string, id Identity) error {
	if id.Hostname != "" {
		if err := replaceFile(etc+"/hostname", id.Hostname+"\n"); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if id.Hostname == "" && id.Hosts == nil {
		return nil
	}
	old, err := os.ReadFile(etc + "/hosts")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set hosts: %w", err)
	}
	if err := replaceFile(etc+"/hosts", hostsFile(string(old), id)); err != nil {
		return fmt.Errorf("set hosts: %w", err)
	}
	return nil
}

// hostsFile returns a hosts file with holt's block replaced.
func hostsFile(old string, id Identity) string {
	var out strings.Builder
	inside := false
	var name string
	for line := range strings.Lines(old) {
		trimmed := strings.TrimRight(line, "\n")
		switch {
		case trimmed == hostsBegin:
			inside = true
		case trimmed == hostsEnd:
			inside = false
		case inside && strings.HasPrefix(trimmed, hostSelf+" "):
			name = strings.TrimPrefix(trimmed, hostSelf+" ")
		case !inside:
			out.WriteString(trimmed + "\n")
		}
	}
	if id.Hostname != "" {
		name = id.Hostname
	}
	out.WriteString(hostsBegin + "\n")
	given := slices.ContainsFunc(id.Hosts, func(h HostEntry) bool { return h.Address == hostSelf })
	if name != "" && !given {
		out.WriteString(hostSelf + " " + name + "\n") // otherwise sudo warns
	}
	for _, h := range id.Hosts {
		out.WriteString(h.Address + " " + strings.Join(h.Names, " ") + "\n")
	}
	out.WriteString(hostsEnd + "\n")
	return out.String()
}

// replaceFile replaces the content of a small file of root atomically, also on
// power failure (ext4(5), auto_da_alloc). A file with that content is not
// changed.
func replaceFile(path, content string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return nil
	}
	f, err := createTemp(path)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// syncPath syncs a file, or the names in a directory; on ext4 also all earlier renames anywhere.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
