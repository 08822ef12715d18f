package authz

import (
	"context"
	"net"

	"holt"
	"holt/internal/door/sshd"
	"holt/internal/nouns"
)

// Sessions returns the computers of the SSH gate with authorisation checks. of looks computers up without a check.
func Sessions(of nouns.Computers, inner sshd.Computers) sshd.Computers {
	return sessions{&guard{nouns.Set{Computers: of}}, inner}
}

// sessions is [sshd.Computers] with checks. It embeds nothing: a method that is added to the interface must be written here.
type sessions struct {
	g     *guard
	inner sshd.Computers
}

func (n sessions) Get(ctx context.Context, ref string) (holt.Computer, error) {
	if err := n.g.seeComputer(ctx, ref); err != nil {
		return holt.Computer{}, err
	}
	return n.inner.Get(ctx, ref)
}

func (n sessions) Open(ctx context.Context, ref string, spec holt.SessionSpec, from string) (holt.Session, error) {
	if err := n.g.asUser(ctx, ref, spec.User, write); err != nil {
		return nil, err
	}
	return n.inner.Open(ctx, ref, spec, from)
}

// Dial can reach every destination of the computer, so it needs a token that covers all of it. A token for a port may
// dial that port on the computer's loopback.
func (n sessions) Dial(ctx context.Context, ref string, to holt.SessionAddress, from string) (holt.PortConn, error) {
	err := n.g.asUser(ctx, ref, to.User, write)
	if a, _ := holt.ActorOf(ctx); holt.CodeOf(err) == holt.Forbidden && a.Token != "" && len(a.Rights.Ports) > 0 && a.Rights.User(to.User) && to.Socket == "" && loopback(to.Host) {
		err = n.g.port(ctx, ref, holt.PortAddress{Port: to.Port})
	}
	if err != nil {
		return nil, err
	}
	return n.inner.Dial(ctx, ref, to, from)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (n sessions) Listen(ctx context.Context, ref string, at holt.SessionAddress, from string) (holt.SessionListener, error) {
	if err := n.g.asUser(ctx, ref, at.User, write); err != nil {
		return nil, err
	}
	return n.inner.Listen(ctx, ref, at, from)
}

// Port returns the check of a preview's connection to a TCP port of a computer.
func Port(of nouns.Computers) func(ctx context.Context, computer holt.ComputerID, port int) error {
	g := &guard{nouns.Set{Computers: of}}
	return func(ctx context.Context, computer holt.ComputerID, port int) error {
		return g.port(ctx, string(computer), holt.PortAddress{Port: port})
	}
}
