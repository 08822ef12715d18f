package qemu

import (
	"context"
	"fmt"

	"holt/internal/engine/machine"
)

const networkSocket = machine.PortNetwork + ".sock"

// listening returns when QEMU waits for the guest's network. A thread of QEMU begins to listen, and the main loop takes
// note of that when it has nothing else to do; in QEMU 7.2 and others (net/stream.c) a frame of the guest before then is
// written to a socket that is not there, which ends the process. A restored guest has such a frame when it goes on:
// QEMU announces where it is now. That somebody can connect shows that all of it was done.
func (g *guest) listening(ctx context.Context) error {
	if !g.spec.Network {
		return nil
	}
	conn, err := g.Dir.DialFrames(ctx, networkSocket)
	if err != nil {
		return err
	}
	defer conn.Close() // QEMU waits for another then
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
