package servertest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"holt"
	"holt/internal/network/netstack"
)

// secrets remembers host secrets without their values, and adds none to anything.
type secrets struct{ m *Memory }

// lend gives a computer that is made the secrets of another, "": of none; the lock is held.
func (m *Memory) lend(id holt.ComputerID, of string) error {
	if of == "" {
		return nil
	}
	from, err := m.computer(of)
	if err == nil {
		m.secrets[id] = maps.Clone(m.secrets[from.ID])
	}
	return err
}

func (n secrets) List(_ context.Context, ref string) ([]holt.ComputerSecret, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	c, err := n.m.computer(ref)
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(n.m.secrets[c.ID]), func(a, b holt.ComputerSecret) int { return cmp.Compare(a.Name, b.Name) }), nil
}

func (n secrets) Set(_ context.Context, ref, name string, secret holt.HostSecret) (holt.ComputerSecret, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	shown := secret.Shown(name, time.Now().UTC())
	if _, err := holt.ParseSecretName(name); err != nil {
		return shown, err
	}
	if _, err := netstack.ParseSecrets([]holt.HostSecret{secret}); err != nil {
		return shown, err
	}
	c, err := n.m.computer(ref)
	if err != nil {
		return shown, err
	}
	if n.m.secrets[c.ID] == nil {
		n.m.secrets[c.ID] = map[string]holt.ComputerSecret{}
	}
	n.m.secrets[c.ID][name] = shown
	return shown, nil
}

func (n secrets) Delete(_ context.Context, ref, name, key string) error {
	_, err := once(n.m, key, []any{"secret.delete", ref, name}, func() (struct{}, error) {
		c, err := n.m.computer(ref)
		if err != nil {
			return struct{}{}, err
		}
		if _, found := n.m.secrets[c.ID][name]; !found {
			return struct{}{}, holt.Errorf(holt.NotFound, "%s has no secret %q", c.Name, name)
		}
		delete(n.m.secrets[c.ID], name)
		return struct{}{}, nil
	})
	return err
}
