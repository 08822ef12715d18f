package authz

import (
	"context"
	"net"

	"holt"
	"holt/internal/door/sshd"
	"holt/internal/nouns"
)

// Sessions returns what the gate of SSH clients calls, which asks first. of are the computers as they are, unguarded.
func Sessions(of nouns.Computers, inner sshd.Computers) sshd.Computers {
	return sessions{&warden{nouns.Set{Computers: of}}, inner}
}

// sessions is [sshd.Computers].
type sessions struct {
	w     *warden
	inner sshd.Computers
}

func (n sessions) Get(ctx context.Context, ref string) (holt.Computer, error) {
	if err := n.w.named(ctx, ref); err != nil {
		return holt.Computer{}, err
	}
	return n.inner.Get(ctx, ref)
}

func (n sessions) Open(ctx context.Context, ref string, spec holt.SessionSpec, from string) (holt.Session, error) {
	if err := n.w.inside(ctx, ref, spec.User, change); err != nil {
		return nil, err
	}
	return n.inner.Open(ctx, ref, spec, from)
}

// Dial goes anywhere that the computer gets to, so it is for who covers all of it; who covers a port gets to that, on its loopback.
func (n sessions) Dial(ctx context.Context, ref string, to holt.SessionAddress, from string) (holt.PortConn, error) {
	err := n.w.inside(ctx, ref, to.User, change)
	if a, _ := holt.ActorOf(ctx); holt.CodeOf(err) == holt.Forbidden && a.Token != "" && len(a.Rights.Ports) > 0 && a.Rights.User(to.User) && to.Socket == "" && loopback(to.Host) {
		err = n.w.port(ctx, ref, holt.PortAddress{Port: to.Port})
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
	if err := n.w.inside(ctx, ref, at.User, change); err != nil {
		return nil, err
	}
	return n.inner.Listen(ctx, ref, at, from)
}

// Port returns what says whether a call may connect to a TCP port of a computer, for the door of previews.
func Port(of nouns.Computers) func(ctx context.Context, computer holt.ComputerID, port int) error {
	w := &warden{nouns.Set{Computers: of}}
	return func(ctx context.Context, computer holt.ComputerID, port int) error {
		return w.port(ctx, string(computer), holt.PortAddress{Port: port})
	}
}
