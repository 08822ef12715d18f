package machine

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ListenFrames is [Dir.Listen] for a socket that preserves message boundaries
// (SOCK_SEQPACKET), such as [PortNetwork].
func (d *Dir) ListenFrames(socket string) (*os.File, error) {
	return d.listen(socket, unix.SOCK_SEQPACKET)
}

// DialFrames is [Dir.Dial] for such a socket, or for the stream socket of
// machines of an older holt.
func (d *Dir) DialFrames(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := d.dial(ctx, "unixpacket", socket)
	if errors.Is(err, unix.EPROTOTYPE) {
		return d.dial(ctx, "unix", socket)
	}
	return conn, err
}
