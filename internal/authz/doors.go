package authz

import (
	"context"
	"net"

	"holt"
	"holt/internal/door/httpapi"
	"holt/internal/door/sshd"
)

// ssh is [httpapi.SSH].
type ssh struct{ w *warden }

func (n ssh) Host() holt.SSHHost { return n.w.n.SSH.Host() }

// Connect lets in who covers the computer; what is asked for there is asked about again, see [Sessions].
func (n ssh) Connect(ctx context.Context, computer string) (holt.PortConn, error) {
	if err := n.w.computer(ctx, computer, change); err != nil {
		return nil, err
	}
	return n.w.n.SSH.Connect(ctx, computer)
}

// sshKeys is [httpapi.SSHKeys]: nobody sees or removes a key that may do more than they. One that they add has their rights.
type sshKeys struct{ w *warden }

func (n sshKeys) Add(ctx context.Context, spec holt.SSHKeySpec, key string) (holt.SSHKey, error) {
	if _, err := n.w.mine(ctx, change); err != nil {
		return holt.SSHKey{}, err
	}
	return n.w.n.SSHKeys.Add(ctx, spec, key)
}

func (n sshKeys) List(ctx context.Context) ([]holt.SSHKey, error) {
	a, err := n.w.mine(ctx, look)
	if err != nil {
		return nil, err
	}
	all, err := n.w.n.SSHKeys.List(ctx)
	if err != nil || a.Person() {
		return all, err
	}
	kept := []holt.SSHKey{}
	for _, k := range all {
		ok, err := n.covers(ctx, a, k)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, k)
		}
	}
	return kept, nil
}

// covers says whether a key may do nothing that a call may not.
func (n sshKeys) covers(ctx context.Context, a holt.Actor, k holt.SSHKey) (bool, error) {
	switch k.Token {
	case a.Token:
		return true, nil
	case "": // all of its tenant
		return holt.Rights{}.Within(a.Rights), nil
	}
	t, err := n.w.n.Tokens.Get(ctx, string(k.Token))
	if holt.CodeOf(err) == holt.NotFound { // it was revoked, and nobody comes by the key any more
		return a.Rights.All(), nil
	}
	return err == nil && within(a, t), err
}

func (n sshKeys) Delete(ctx context.Context, ref, key string) (holt.SSHKey, error) {
	a, err := n.w.mine(ctx, change)
	if err != nil {
		return holt.SSHKey{}, err
	}
	if a.Person() {
		return n.w.n.SSHKeys.Delete(ctx, ref, key)
	}
	all, err := n.w.n.SSHKeys.List(ctx)
	if err != nil {
		return holt.SSHKey{}, err
	}
	for _, k := range all {
		if string(k.ID) != ref && k.Fingerprint != ref && k.Name != ref {
			continue
		}
		switch ok, err := n.covers(ctx, a, k); {
		case err != nil:
			return holt.SSHKey{}, err
		case !ok: // in the same words as if it were not there
			return holt.SSHKey{}, holt.Errorf(holt.NotFound, "there is no SSH key %q", holt.Clip(ref, 64)).WithHint("holt ssh-key list shows those there are")
		}
	}
	return n.w.n.SSHKeys.Delete(ctx, ref, key)
}

// previews is [httpapi.Previews]: what makes or changes one shows a port to others, so it is a change of the computer.
type previews struct{ w *warden }

// shows is computer for what shows a port of it. It asks for no Linux user, as connecting to a port does not: a port is no
// user's.
func (n previews) shows(ctx context.Context, computer string) error {
	return n.w.computer(ctx, computer, change)
}

func (n previews) List(ctx context.Context, computer string) ([]holt.Preview, error) {
	if err := n.w.computer(ctx, computer, look); err != nil {
		return nil, err
	}
	return n.w.n.Previews.List(ctx, computer)
}

func (n previews) Set(ctx context.Context, computer string, port int, spec holt.PreviewSpec) (holt.Preview, error) {
	if err := n.shows(ctx, computer); err != nil {
		return holt.Preview{}, err
	}
	return n.w.n.Previews.Set(ctx, computer, port, spec)
}

func (n previews) Delete(ctx context.Context, computer string, port int, key string) error {
	if err := n.shows(ctx, computer); err != nil {
		return err
	}
	return n.w.n.Previews.Delete(ctx, computer, port, key)
}

func (n previews) Link(ctx context.Context, computer string, port int, spec holt.PreviewLinkSpec) (holt.PreviewLink, error) {
	if err := n.shows(ctx, computer); err != nil {
		return holt.PreviewLink{}, err
	}
	return n.w.n.Previews.Link(ctx, computer, port, spec)
}

func (n previews) Domains(ctx context.Context, computer string) ([]holt.PreviewDomain, error) {
	if err := n.w.computer(ctx, computer, look); err != nil {
		return nil, err
	}
	return n.w.n.Previews.Domains(ctx, computer)
}

func (n previews) SetDomain(ctx context.Context, computer, domain string, spec holt.PreviewDomainSpec) (holt.PreviewDomain, error) {
	if err := n.shows(ctx, computer); err != nil {
		return holt.PreviewDomain{}, err
	}
	return n.w.n.Previews.SetDomain(ctx, computer, domain, spec)
}

func (n previews) DeleteDomain(ctx context.Context, computer, domain, key string) error {
	if err := n.shows(ctx, computer); err != nil {
		return err
	}
	return n.w.n.Previews.DeleteDomain(ctx, computer, domain, key)
}

// Sessions returns what the gate of SSH clients calls, which asks first. of are the computers as they are, unguarded.
func Sessions(of httpapi.Computers, inner sshd.Computers) sshd.Computers {
	return sessions{&warden{httpapi.Nouns{Computers: of}}, inner}
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
func Port(of httpapi.Computers) func(ctx context.Context, computer holt.ComputerID, port int) error {
	w := &warden{httpapi.Nouns{Computers: of}}
	return func(ctx context.Context, computer holt.ComputerID, port int) error {
		return w.port(ctx, string(computer), holt.PortAddress{Port: port})
	}
}
