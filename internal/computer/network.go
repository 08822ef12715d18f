package computer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/hosterror"
	"holt/internal/network"
	"holt/internal/store/db"
)

// openNetwork is the default policy, and that of templates.
var openNetwork = holt.NetworkPolicy{Egress: holt.EgressOpen}

// networkWait bounds how long a computer that is otherwise ready waits for its network.
const networkWait = 5 * time.Second

// Networks is the network policies and the traffic of computers.
type Networks struct{ *registry }

// Networks returns the networks of all computers.
func (s *Store) Networks() *Networks { return s.networks }

// Get returns the policy of a computer. Errors: NotFound, Unsupported (the engine has no network
// per computer).
func (n *Networks) Get(ctx context.Context, ref string) (holt.NetworkPolicy, error) {
	r, err := n.table.find(ctx, ref)
	if err == nil {
		err = n.cfg.hasNetworks(n.cfg.engine(r))
	}
	if err != nil {
		return holt.NetworkPolicy{}, err
	}
	return n.cfg.policy(ctx, r.ID)
}

// Set changes the policy of a computer. When it returns, connections that are not allowed any more
// are closed.
//
// Errors: NotFound, InvalidArgument, Unsupported, Unavailable (its network does not answer).
func (n *Networks) Set(ctx context.Context, ref string, p holt.NetworkPolicy) (holt.NetworkPolicy, error) {
	if err := network.Check(p); err != nil {
		return p, err
	}
	r, unlock, err := n.hold(ctx, ref)
	if err != nil {
		return p, err
	}
	defer unlock()
	if err := n.cfg.hasNetworks(n.cfg.engine(r)); err != nil {
		return p, err
	}
	dir := n.cfg.dir(r.ID)
	if err := writeSync(ctx, n.cfg.DB, func(tx *db.Tx) error { return savePolicy(tx, r.ID, p) }); err != nil {
		return p, err
	}
	if err := n.cfg.Networks.Set(ctx, dir, p); err != nil && !errors.Is(err, machine.ErrGone) { // it was never started
		return p, hosterror.Full(err)
	}
	n.log.InfoContext(ctx, "network policy changed", "computer", r.ID, "name", r.Name, "egress", p.Egress)
	if l := n.machines.live(r.ID); l != nil {
		l.sendPolicy(ctx)
	}
	return p, nil
}

// Traffic returns what a computer has sent and received since it was created. Errors: NotFound,
// Unsupported.
func (n *Networks) Traffic(ctx context.Context, ref string) (out holt.NetworkTraffic, err error) {
	r, err := n.table.find(ctx, ref)
	if err == nil {
		err = n.cfg.hasNetworks(n.cfg.engine(r))
	}
	if err != nil {
		return out, err
	}
	all, err := n.cfg.Networks.Traffic(ctx, n.cfg.dir(r.ID))
	return holt.SumTraffic(all), err
}

// hasNetworks returns Unsupported if computers of an engine have no network of their own.
func (c *Config) hasNetworks(e machine.Engine) error {
	if c.ownNetworks(e) {
		return nil
	}
	return holt.Errorf(holt.Unsupported, "the engine %s has no network per computer", e.Name()).
		WithHint("its computers share the network of the host; " + machine.UseVirtual)
}

func (c *Config) ownNetworks(e machine.Engine) bool {
	return c.Networks != nil && e.Capabilities().OwnNetwork
}

// checkNetwork refuses an invalid policy for a computer of an engine; nil is valid.
func (c *Config) checkNetwork(e machine.Engine, p *holt.NetworkPolicy) error {
	if p == nil {
		return nil
	}
	if err := c.hasNetworks(e); err != nil {
		return err
	}
	return network.Check(*p)
}

// policy returns the policy of a computer.
func (c *Config) policy(ctx context.Context, id holt.ComputerID) (holt.NetworkPolicy, error) {
	p, _, err := c.policyOf(ctx, id)
	return p, err
}

// policyOf is policy; given reports whether it was ever set.
func (c *Config) policyOf(ctx context.Context, id holt.ComputerID) (p holt.NetworkPolicy, given bool, err error) {
	p = openNetwork
	err = read(ctx, c.DB, func(tx *db.Tx) error {
		var text string
		text, given, err = textOf(tx, `SELECT policy FROM network WHERE computer = ?`, id)
		if err != nil || !given {
			return err
		}
		return json.Unmarshal([]byte(text), &p)
	})
	if err != nil {
		return p, given, fmt.Errorf("read network policy: %w", err)
	}
	return p, given, nil
}

// insertPolicy records the network policy of a new computer.
func insertPolicy(tx *db.Tx, r *record) error {
	switch {
	case r.network != nil:
		return savePolicy(tx, r.ID, *r.network)
	case r.Parent != nil:
		return tx.Exec(`INSERT INTO network SELECT ?, policy FROM network WHERE computer = ?`, r.ID, r.Parent.ID)
	}
	return nil
}

func savePolicy(tx *db.Tx, id holt.ComputerID, p holt.NetworkPolicy) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return tx.Exec(`INSERT INTO network VALUES (?1, ?2) ON CONFLICT (computer) DO UPDATE SET policy = ?2`, id, string(b))
}

// join gives the machine in dir its network, see [network.Networks.Join]; nil if there are no
// networks.
func (c *Config) join(ctx context.Context, e machine.Engine, dir string, p holt.NetworkPolicy, begun bool, cut func(context.Context)) (*network.Link, error) {
	if !c.ownNetworks(e) {
		return nil, nil
	}
	if err := c.Networks.Write(ctx, dir, p); err != nil {
		return nil, hosterror.Full(err)
	}
	return c.Networks.Join(dir, begun, cut), nil
}

// inheritNames copies the parent's table of addresses that stand for names to a fork with its
// memory: programs that have an address do not look the name up again.
func (m *transition) inheritNames() {
	if m.r.State != holt.ComputerCreating || m.r.Parent == nil || !m.memory() || !m.s.cfg.ownNetworks(m.engine()) {
		return
	}
	if err := m.s.cfg.Networks.Inherit(m.s.cfg.dir(m.r.Parent.ID), m.s.cfg.dir(m.r.ID)); err != nil { // they are asked for again
		m.s.log.Warn("copy name table to fork", "computer", m.r.ID, "parent", m.r.Parent.ID, "err", err)
	}
}

// plug gives the machine its network. begun: the machine was already running.
func (l *live) plug(ctx context.Context, s *Store, begun bool) error {
	p, err := s.cfg.policy(ctx, l.id)
	if err == nil {
		err = s.cfg.writeSecrets(ctx, l.engine, l.id)
	}
	if err == nil {
		l.net, err = s.cfg.join(ctx, l.engine, s.cfg.dir(l.id), p, begun, func(ctx context.Context) {
			if begun || s.machines.live(l.id) == l { // else it has not been spoken to yet
				l.cutOff(ctx)
			}
		})
	}
	return err
}

// cutOff resets the guest's connections after its network was replaced.
func (l *live) cutOff(ctx context.Context) {
	err := l.do(ctx, l.limits.Answer, true, func(ctx context.Context, c *agent.Client) error {
		_, err := c.Configure(ctx, agent.Identity{Restored: true})
		return err
	})
	if err != nil {
		l.log.WarnContext(ctx, "reset connections of guest", "computer", l.id, "err", err)
	}
}

// unplug releases the network, which ends with the machine; ended: the machine has ended.
func (l *live) unplug(ended bool) error {
	switch {
	case l.net == nil:
	case ended:
		return l.net.End()
	default:
		l.net.Release()
	}
	return nil
}

// awaitNetwork waits for the network for a while. Its link keeps trying afterwards.
func (l *live) awaitNetwork(ctx context.Context) {
	if l.net == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkWait)
	defer cancel()
	if err := l.net.Ready(ctx); err != nil {
		l.log.WarnContext(ctx, "network of computer is not ready", "computer", l.id, "err", err)
	}
}
