package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	mostNamespaces = 1024            // limit of other network namespaces whose connections are reset…
	namespaceLimit = 5 * time.Second // …and time limit; beyond them programs notice only by timeouts
)

// EndConnections is what a sandbox's agent asks of its kernel in place of
// sock_diag, which gVisor lacks: a command of reboot(2) that Linux does not have.
// It resets the TCP connections of the network namespace to other machines, and returns their number.
const EndConnections = 0x686f6c74

// listening is TCP_LISTEN of linux/tcp_states.h.
const listening = 10

// endConnections resets external TCP connections: their far ends belong to
// another machine or have given up. Programs that wait on one get an error at
// once (SOCK_DESTROY, sock_diag(7)), including programs in containers with
// their own network namespaces. Connections within the machine are preserved
// with both ends. proc is the mount point of proc(5). Failures in other network
// namespaces are logged.
func endConnections(ctx context.Context, log *slog.Logger, proc string) (ended int, err error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceLimit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: a thread that was in other namespaces must end
		ended, err = endOnThread(ctx, log, proc)
	}()
	<-done
	return ended, err
}

// endOnThread does the work on the current thread and returns to its namespace,
// because the main thread of a process cannot end.
func endOnThread(ctx context.Context, log *slog.Logger, proc string) (ended int, err error) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return 0, fmt.Errorf("open network namespace: %w", err)
	}
	defer own.Close()
	others, err := otherNetworks(ctx, own, proc)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, one := range others {
			one.Close()
		}
		err = errors.Join(err, enter(own))
	}()
	here := map[netip.Addr]bool{}
	for _, one := range others {
		err := enter(one)
		if err == nil {
			err = addAddresses(here)
		}
		if err != nil {
			log.Warn("list addresses of another network namespace", "err", err)
		}
	}
	if err := errors.Join(enter(own), addAddresses(here)); err != nil {
		return 0, err
	}
	if ended, err = endHere(context.WithoutCancel(ctx), here); err != nil {
		return ended, err
	}
	for _, one := range others {
		if ctx.Err() != nil {
			log.Warn("connections of some network namespaces are not reset", "namespaces", len(others), "err", ctx.Err())
			break
		}
		err, n := enter(one), 0
		if err == nil {
			n, err = endHere(ctx, here)
		}
		if ended += n; err != nil {
			log.Warn("end connections of another network namespace", "err", err)
		}
	}
	return ended, nil
}

func enter(network *os.File) error {
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// otherNetworks opens the network namespaces of other processes. A process that
// ends meanwhile is no error. It stops at the limits of number and time.
func otherNetworks(ctx context.Context, own *os.File, proc string) (all []*os.File, err error) {
	type key struct{ device, inode uint64 }
	of := func(st *unix.Stat_t) key { return key{uint64(st.Dev), st.Ino} }
	var st unix.Stat_t
	if err := unix.Fstat(int(own.Fd()), &st); err != nil {
		return nil, fmt.Errorf("identify network namespace: %w", err)
	}
	seen := map[key]bool{of(&st): true}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if len(all) == mostNamespaces || ctx.Err() != nil {
			break
		}
		path := filepath.Join(proc, e.Name(), "ns/net")
		if unix.Stat(path, &st) != nil || seen[of(&st)] {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Fstat(int(f.Fd()), &st) != nil || seen[of(&st)] { // the pid was reused, or the namespace is known
			f.Close()
			continue
		}
		seen[of(&st)] = true
		all = append(all, f)
	}
	return all, nil
}

// addAddresses adds the addresses of the thread's network namespace.
func addAddresses(to map[netip.Addr]bool) error {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				to[ip.Unmap()] = true
			}
		}
	}
	return nil
}

// endHere resets the connections of the thread's network namespace, except
// those to local addresses.
func endHere(ctx context.Context, here map[netip.Addr]bool) (ended int, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // the latter includes IPv4-mapped connections
		all, err := netlink.SocketDiagTCP(family)
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			n, _, errno := unix.Syscall(unix.SYS_REBOOT, unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, EndConnections)
			if errno != 0 {
				return ended, fmt.Errorf("end connections: %w", errno)
			}
			return ended + int(n), nil // of both families
		}
		if err != nil {
			return ended, fmt.Errorf("list connections: %w", err)
		}
		for _, s := range all {
			local, remote := s.ID.Source.To4(), s.ID.Destination.To4()
			if s.State == listening || local == nil || remote == nil || local.IsLoopback() || remote.IsUnspecified() || here[netip.AddrFrom4([4]byte(remote))] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return ended, err
			}
			err := netlink.SocketDestroy(&net.TCPAddr{IP: local, Port: int(s.ID.SourcePort)}, &net.TCPAddr{IP: remote, Port: int(s.ID.DestinationPort)})
			switch {
			case err == nil:
				ended++
			case !errors.Is(err, unix.ENOENT): // it has ended
				return ended, fmt.Errorf("end connection: %w", err)
			}
		}
	}
	return ended, nil
}
