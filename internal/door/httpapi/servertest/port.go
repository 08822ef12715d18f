package servertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holt"
)

// ports are those of this host, of which the computers' runs listen at some.
type ports struct{ m *Memory }

func (n ports) List(_ context.Context, computer string) ([]holt.Listener, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(computer)
	if err != nil {
		return nil, err
	}
	c.State = holt.ComputerRunning // it wakes
	all, err := listening()
	if err != nil {
		return nil, err
	}
	list := []holt.Listener{}
	for _, r := range n.m.runs {
		if r.info.ComputerID != c.ID {
			continue
		}
		for _, one := range listenedBy(r.cmd.Process.Pid, all) {
			one.Run = r.info.ID
			list = append(list, one)
		}
	}
	return list, nil
}

// listening are the IPv4 ports of this host that something listens at, by the inodes of their sockets.
func listening() (map[string]holt.Listener, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]holt.Listener{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		var a, b, c, d byte
		var port int
		if len(w) > 9 && w[3] == "0A" { // listening
			if _, err := fmt.Sscanf(w[1], "%02X%02X%02X%02X:%04X", &d, &c, &b, &a, &port); err != nil {
				return nil, err
			}
			all[w[9]] = holt.Listener{Protocol: "tcp", Address: netip.AddrFrom4([4]byte{a, b, c, d}).String(), Port: port}
		}
	}
	return all, nil
}

// listenedBy returns those at which a process group listens.
func listenedBy(group int, all map[string]holt.Listener) (list []holt.Listener) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pgid, err := syscall.Getpgid(pid); err != nil || pgid != group {
			continue
		}
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			one, ok := all[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")]
			if ok && !slices.ContainsFunc(list, func(l holt.Listener) bool { return l.Port == one.Port }) {
				name, _ := os.ReadFile(dir + "/comm")
				one.PID, one.Process, one.User = pid, strings.TrimSpace(string(name)), "agent"
				list = append(list, one)
			}
		}
	}
	return list
}

func (n ports) Connect(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	n.m.mu.Lock()
	c, err := n.m.computer(computer)
	if err == nil {
		c.State = holt.ComputerRunning // it wakes
		computer = c.Name
	}
	n.m.mu.Unlock()
	if err == nil {
		err = to.Check()
	}
	if err != nil {
		return nil, err
	}
	network, address := "tcp", "127.0.0.1:"+strconv.Itoa(to.Port)
	if to.Socket != "" {
		network, address = "unix", string(to.Socket)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, holt.Errorf(holt.Unavailable, "nothing listens at port %s of %s", to, computer).WithHint("holt computer ports %s shows what does", computer)
	}
	return portConn{conn.(interface {
		net.Conn
		CloseWrite() error
	}), computer, to}, nil
}

type portConn struct {
	conn interface {
		net.Conn
		CloseWrite() error
	}
	computer string
	to       holt.PortAddress
}

func (p portConn) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	if err != nil && err != io.EOF {
		err = p.broken(err)
	}
	return n, err
}

func (p portConn) Write(b []byte) (int, error) {
	n, err := p.conn.Write(b)
	if err != nil {
		err = p.broken(err)
	}
	return n, err
}

func (p portConn) CloseWrite() error { return p.conn.CloseWrite() }

// Close without CloseWrite breaks the connection off.
func (p portConn) Close() error {
	err := p.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p portConn) broken(err error) error {
	return holt.Errorf(holt.Unavailable, "the connection to %s of %s broke: %w", p.to, p.computer, err)
}
