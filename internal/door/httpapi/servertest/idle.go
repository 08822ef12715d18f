package servertest

import (
	"context"
	"slices"
	"time"

	"holt"
)

// Its computers are never paused for being idle: what it says of that is what was asked for.

func (n computers) Awake(_ context.Context, ref string) (holt.Awake, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(ref)
	if err != nil {
		return holt.Awake{}, err
	}
	a := holt.Awake{ComputerID: c.ID, Computer: c.Name, State: c.State, Uses: []holt.Use{}, IdleTimeout: c.IdleTimeout, Note: "the engine memory pauses none that is idle"}
	for _, h := range n.m.holdsOf(c.ID) {
		a.Uses = append(a.Uses, holt.Use{Kind: holt.UseHold, ID: string(h.ID), Detail: h.Reason, Since: h.CreatedAt, Until: &h.ExpiresAt})
	}
	return a, nil
}

// holdsOf returns the holds of a computer that have not expired; the lock is held.
func (m *Memory) holdsOf(id holt.ComputerID) []holt.Hold {
	m.holds = slices.DeleteFunc(m.holds, func(h holt.Hold) bool { return !h.ExpiresAt.After(time.Now()) })
	of := []holt.Hold{}
	for _, h := range m.holds {
		if h.ComputerID == id {
			of = append(of, h)
		}
	}
	return of
}

func (n computers) Update(_ context.Context, ref string, change holt.ComputerUpdate, key string) (holt.Computer, error) {
	return once(n.m, key, []any{"update computer", ref, change}, func() (holt.Computer, error) {
		if change == (holt.ComputerUpdate{}) {
			return holt.Computer{}, holt.Errorf(holt.InvalidArgument, "nothing is to be changed").WithHint("give name, or idle_timeout as 15m or null")
		}
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Computer{}, err
		}
		if change.Name != "" {
			if err := n.m.rename(c, change.Name); err != nil {
				return holt.Computer{}, err
			}
		}
		if change.IdleTimeout != 0 {
			c.IdleTimeout = change.IdleTimeout
		}
		return *c, nil
	})
}

// rename gives a computer another name; the lock is held.
func (m *Memory) rename(c *holt.Computer, name string) error {
	name, err := holt.ParseName(name)
	if err != nil {
		return err
	}
	if other, err := m.computer(name); err == nil && other != c {
		return holt.Errorf(holt.AlreadyExists, "there is a computer %q already", name).WithHint("choose another name")
	}
	for _, w := range m.workspaces {
		if w.Computer == c.Name {
			w.Computer = name
		}
	}
	c.Name = name
	m.happened(holt.EventComputerChanged, c)
	return nil
}

func (n computers) Hold(_ context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error) {
	return once(n.m, key, []any{"hold computer", ref, spec}, func() (holt.Hold, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return holt.Hold{}, err
		}
		const week = 7 * 24 * time.Hour
		if spec.Reason == "" || spec.ForMS > week.Milliseconds() {
			return holt.Hold{}, holt.Errorf(holt.InvalidArgument, "a hold needs a reason and lasts 7 days at most").WithHint("say what is waited for, as thinking")
		}
		span := 30 * time.Minute
		if spec.ForMS > 0 {
			span = time.Duration(spec.ForMS) * time.Millisecond
		}
		now := time.Now().UTC()
		h := holt.Hold{ID: holt.NewHoldID(), ComputerID: c.ID, Reason: spec.Reason, CreatedAt: now, ExpiresAt: now.Add(span)}
		n.m.holds = append(n.m.holds, h)
		return h, nil
	})
}

func (n computers) Holds(_ context.Context, ref string) ([]holt.Hold, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(ref)
	if err != nil {
		return nil, err
	}
	return n.m.holdsOf(c.ID), nil
}

func (n computers) Release(_ context.Context, ref string, id holt.HoldID, key string) error {
	_, err := once(n.m, key, []any{"release hold", ref, id}, func() (struct{}, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return struct{}{}, err
		}
		i := slices.IndexFunc(n.m.holdsOf(c.ID), func(h holt.Hold) bool { return h.ID == id })
		if i < 0 {
			return struct{}{}, holt.Errorf(holt.NotFound, "there is no hold %s", id).WithHint("it has expired or was released")
		}
		n.m.holds = slices.DeleteFunc(n.m.holds, func(h holt.Hold) bool { return h.ID == id })
		return struct{}{}, nil
	})
	return err
}
