package authz

import (
	"context"
	"io"
	"slices"

	"holt"
)

// runs is [httpapi.Runs].
type runs struct{ w *warden }

func (n runs) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	if err := n.w.inside(ctx, computer, spec.User, change); err != nil {
		return holt.Run{}, err
	}
	return n.w.n.Runs.Start(ctx, computer, spec, key)
}

// run is asked by what is about one run: of which computer it is, and of which user.
func (w *warden) run(ctx context.Context, id holt.RunID, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	r, err := w.n.Runs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !(a.Rights.Computer(r.ComputerID) && a.Rights.User(r.Spec.User)) {
		return denied(a)
	}
	return err
}

func (n runs) Get(ctx context.Context, id holt.RunID) (holt.Run, error) {
	if err := n.w.run(ctx, id, look); err != nil {
		return holt.Run{}, err
	}
	return n.w.n.Runs.Get(ctx, id)
}

// List of all runs is for who covers all of a tenant: what it shows is cut from pages.
func (n runs) List(ctx context.Context, computer string, after holt.RunID, limit int) ([]holt.Run, error) {
	err := error(nil)
	if computer == "" {
		err = n.w.tenant(ctx, look)
	} else {
		err = n.w.computer(ctx, computer, look)
	}
	if err != nil {
		return nil, err
	}
	a, _ := holt.ActorOf(ctx)
	if len(a.Rights.Users) > 0 {
		return nil, denied(a)
	}
	return n.w.n.Runs.List(ctx, computer, after, limit)
}

func (n runs) Follow(ctx context.Context, id holt.RunID, offset int64, emit func(holt.RunEvent) error) error {
	if err := n.w.run(ctx, id, look); err != nil {
		return err
	}
	return n.w.n.Runs.Follow(ctx, id, offset, emit)
}

func (n runs) Input(ctx context.Context, id holt.RunID, offset int64, r io.Reader, eof, wanted bool) (int64, error) {
	if err := n.w.run(ctx, id, change); err != nil {
		return 0, err
	}
	return n.w.n.Runs.Input(ctx, id, offset, r, eof, wanted)
}

func (n runs) Receipt(ctx context.Context, id holt.RunID) (holt.Receipt, error) {
	if err := n.w.run(ctx, id, look); err != nil {
		return holt.Receipt{}, err
	}
	return n.w.n.Runs.Receipt(ctx, id)
}

func (n runs) Signal(ctx context.Context, id holt.RunID, signal, key string) error {
	if err := n.w.run(ctx, id, change); err != nil {
		return err
	}
	return n.w.n.Runs.Signal(ctx, id, signal, key)
}

// terminals is [httpapi.Terminals].
type terminals struct{ w *warden }

// Open returns the terminal of that name that runs: it may be another user's.
func (n terminals) Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error) {
	if err := n.w.inside(ctx, computer, spec.User, change); err != nil {
		return holt.Terminal{}, err
	}
	t, err := n.w.n.Terminals.Open(ctx, computer, spec, key)
	if a, _ := holt.ActorOf(ctx); err == nil && a.Token != "" && !a.Rights.User(t.Spec.User) {
		return holt.Terminal{}, denied(a)
	}
	return t, err
}

// terminal is asked by what is about one terminal: of which user it is.
func (w *warden) terminal(ctx context.Context, computer, ref string, u use) error {
	if err := w.computer(ctx, computer, u); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	t, err := w.n.Terminals.Get(ctx, computer, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(t.Spec.User) {
		return denied(a)
	}
	return err
}

func (n terminals) Get(ctx context.Context, computer, ref string) (holt.Terminal, error) {
	if err := n.w.terminal(ctx, computer, ref, look); err != nil {
		return holt.Terminal{}, err
	}
	return n.w.n.Terminals.Get(ctx, computer, ref)
}

func (n terminals) List(ctx context.Context, computer string) ([]holt.Terminal, error) {
	if err := n.w.computer(ctx, computer, look); err != nil {
		return nil, err
	}
	list, err := n.w.n.Terminals.List(ctx, computer)
	if a, _ := holt.ActorOf(ctx); len(a.Rights.Users) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(t holt.Terminal) bool { return !a.Rights.User(t.Spec.User) })
	}
	return list, err
}

func (n terminals) Signal(ctx context.Context, computer, ref, signal, key string) error {
	if err := n.w.terminal(ctx, computer, ref, change); err != nil {
		return err
	}
	return n.w.n.Terminals.Signal(ctx, computer, ref, signal, key)
}

func (n terminals) Close(ctx context.Context, computer, ref, key string) (holt.Terminal, error) {
	if err := n.w.terminal(ctx, computer, ref, change); err != nil {
		return holt.Terminal{}, err
	}
	return n.w.n.Terminals.Close(ctx, computer, ref, key)
}

// Attach is to type.
func (n terminals) Attach(ctx context.Context, computer, ref string, spec holt.AttachSpec, in <-chan holt.TerminalInput, emit func(holt.TerminalEvent) error) error {
	if err := n.w.terminal(ctx, computer, ref, change); err != nil {
		return err
	}
	return n.w.n.Terminals.Attach(ctx, computer, ref, spec, in, emit)
}

// ports is [httpapi.Ports].
type ports struct{ w *warden }

func (n ports) List(ctx context.Context, computer string) ([]holt.Listener, error) {
	if err := n.w.computer(ctx, computer, look); err != nil {
		return nil, err
	}
	return n.w.n.Ports.List(ctx, computer)
}

// Connect is a change: nobody knows what a program does that is spoken to. The agent opens sockets as root.
func (n ports) Connect(ctx context.Context, computer string, to holt.PortAddress) (holt.PortConn, error) {
	if err := n.w.port(ctx, computer, to); err != nil {
		return nil, err
	}
	return n.w.n.Ports.Connect(ctx, computer, to)
}

func (w *warden) port(ctx context.Context, computer string, to holt.PortAddress) error {
	a, free, err := free(ctx, change)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || to.Socket != "" && !a.Rights.User("root") {
		return denied(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	c, err := w.n.Computers.Get(ctx, computer)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Port(c.ID, to.Port) {
		return denied(a)
	}
	return err
}

// services is [httpapi.Services]: they are units of the computer's systemd, which are root's.
type services struct{ w *warden }

func (n services) Add(ctx context.Context, computer string, spec holt.ServiceSpec, key string) (holt.Service, error) {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return holt.Service{}, err
	}
	return n.w.n.Services.Add(ctx, computer, spec, key)
}

func (n services) List(ctx context.Context, computer string) ([]holt.Service, error) {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return nil, err
	}
	return n.w.n.Services.List(ctx, computer)
}

func (n services) Get(ctx context.Context, computer, name string) (holt.Service, error) {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return holt.Service{}, err
	}
	return n.w.n.Services.Get(ctx, computer, name)
}

func (n services) Do(ctx context.Context, computer, name, verb, key string) (holt.Service, error) {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return holt.Service{}, err
	}
	return n.w.n.Services.Do(ctx, computer, name, verb, key)
}

func (n services) Logs(ctx context.Context, computer, name string, q holt.ServiceLogQuery, out io.Writer) error {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return err
	}
	return n.w.n.Services.Logs(ctx, computer, name, q, out)
}
