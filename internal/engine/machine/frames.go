package machine

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ListenFrames is [Dir.Listen] for a socket that keeps apart what is written (SOCK_SEQPACKET), as [PortNetwork] is.
func (d *Dir) ListenFrames(socket string) (*os.File, error) {
	return d.listen(socket, unix.SOCK_SEQPACKET)
}

// DialFrames is [Dir.Dial] for such a socket, or for the stream that it was in machines of an older holt.
func (d *Dir) DialFrames(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := d.dial(ctx, "unixpacket", socket)
	if errors.Is(err, unix.EPROTOTYPE) {
		return d.dial(ctx, "unix", socket)
	}
	return conn, err
}
