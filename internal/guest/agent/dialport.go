package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const dialTimeout = 10 * time.Second

// dialPort connects the stream to an address in the guest.
func dialPort(ctx context.Context, st *serverStream) error {
	args, err := decode[dialArgs](st.args)
	if err != nil {
		return err
	}
	if args.Network != "tcp" && args.Network != "unix" {
		return holt.Errorf(holt.InvalidArgument, "dial %q: network must be tcp or unix", clip(args.Network))
	}
	conn, err := dialLocal(ctx, args)
	if err != nil {
		return dialError(args, err)
	}
	defer conn.Close()
	if err := st.agree(nil); err != nil {
		return err
	}
	return carryConn(st, conn)
}

// carryConn copies bytes between an agreed stream and a connection.
func carryConn(st *serverStream, conn net.Conn) (err error) {
	far := newPortConn(st, portChunk)
	taken, host := make(chan struct{}), make(chan struct{})
	go func() { // host to port
		defer close(host)
		_, err := io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{far}, make([]byte, smallChunk))
		if err == nil {
			conn.(interface{ CloseWrite() error }).CloseWrite()
			close(taken)
			io.ReadFull(st, make([]byte, 1)) // until the host closes the stream
		}
		conn.Close()
		st.SetWriteDeadline(time.Unix(1, 0))
	}()
	if _, err = far.out.ReadFrom(conn); err == nil {
		err = far.CloseWrite()
	} else {
		st.Close() // no end of chunks: the host sees a broken connection
	}
	select { // both directions have ended, or the host is gone
	case <-taken:
	case <-host:
	}
	return err
}

// localhost in an address means any address of the machine with a listener at
// that port: first the loopback, then others.
const localhost = "localhost:"

func dialLocal(ctx context.Context, args dialArgs) (conn net.Conn, err error) {
	if args.Network == "unix" && args.User != "" {
		return dialAs(args.User, args.Address)
	}
	d := net.Dialer{Timeout: dialTimeout}
	port, local := strings.CutPrefix(args.Address, localhost)
	if args.Network != "tcp" || !local {
		return d.DialContext(ctx, args.Network, args.Address)
	}
	hosts := []string{"127.0.0.1", "::1"}
	for i := 0; i < len(hosts) && i < mostHosts; i++ {
		conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(hosts[i], port))
		if err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return conn, err
		}
		if i == 1 {
			hosts = append(hosts, listenHosts(port)...)
		}
	}
	return nil, unix.ECONNREFUSED
}

// mostHosts limits the addresses to try.
const mostHosts = 10

// listenHosts returns the non-loopback addresses with a listener at a TCP port.
func listenHosts(port string) (hosts []string) {
	ports, _ := sockets()
	for _, p := range ports {
		if p.Protocol == "tcp" && strconv.Itoa(p.Port) == port && !slices.Contains(hosts, p.Address) {
			if at, err := netip.ParseAddr(p.Address); err == nil && !at.IsUnspecified() {
				hosts = append(hosts, p.Address)
			}
		}
	}
	return hosts
}

func dialError(args dialArgs, err error) error {
	var timeout net.Error
	var known *holt.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return holt.Errorf(holt.NotFound, "dial %s %s: nothing listens there: %w", args.Network, args.Address, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return holt.Errorf(holt.Timeout, "dial %s %s: %w", args.Network, args.Address, err)
	}
	return holt.Errorf(holt.Unavailable, "dial %s %s: %w", args.Network, args.Address, err)
}
