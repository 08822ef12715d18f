package sandbox

import (
	"context"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// connections is saved with a kernel, so that a restored one keeps its TCP
// connections until the agent asks for their end ([abortConnections]). By itself
// gVisor closes them at a restore such that programs read the end of the stream,
// as if they had received all of it.
//
// Its methods are what gVisor's generator would write for package state.
type connections struct{ stack *stack.Stack }

// keepConnections adds it to the images of a kernel.
func keepConnections(k *kernel.Kernel) {
	if s, ok := k.RootNetworkNamespace().Stack().(*netstack.Stack); ok {
		k.AddStateToCheckpoint("holt.connections", &connections{s.Stack})
	}
}

func (*connections) StateTypeName() string { return "holt.connections" }

func (*connections) StateFields() []string { return []string{"stack"} }

func (c *connections) StateSave(sink state.Sink) { sink.Save(0, &c.stack) }

func (c *connections) StateLoad(_ context.Context, source state.Source) {
	source.Load(0, &c.stack)
	source.AfterLoad(func() { c.stack.SetAllowLiveTCPMigration(true) })
}

func init() { state.Register((*connections)(nil)) }
