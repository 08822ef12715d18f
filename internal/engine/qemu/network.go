package qemu

import (
	"context"
	"fmt"

	"holt/internal/engine/machine"
)

const networkSocket = machine.PortNetwork + ".sock"

// listening waits until QEMU accepts connections for the guest's network. A
// QEMU thread starts to listen, and the main loop registers that when it is
// idle; in QEMU 7.2 and others (net/stream.c) a frame of the guest before that
// is written to a missing socket, which ends the process. A restored guest
// sends such a frame at once: QEMU announces its location. A successful
// connection shows that the registration is done.
func (g *guest) listening(ctx context.Context) error {
	if !g.spec.Network {
		return nil
	}
	conn, err := g.Dir.DialFrames(ctx, networkSocket)
	if err != nil {
		return err
	}
	defer conn.Close() // QEMU then waits for another
	for {
		select {
		case e, ok := <-g.monitor.events:
			if !ok {
				return errMonitorClosed
			}
			if e.name == "NETDEV_STREAM_CONNECTED" {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the socket of the guest's network: %w", ctx.Err())
		}
	}
}
