package computer

import (
	"context"

	"holt"
	"holt/agent"
)

// proxyOf is what a computer's guest is told of its proxy; nil: nothing, it never was.
func (c *Config) proxyOf(ctx context.Context, id holt.ComputerID) (*agent.Proxy, error) {
	if !c.ownNetworks() {
		return nil, nil
	}
	all, err := c.secretsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	policy, given, err := c.policyOf(ctx, id)
	if err != nil || !given && all.given.Certificate == "" {
		return nil, err
	}
	p := toldOf(policy, all)
	return &p, nil
}

// toldOf is what is said of a proxy by what a computer may reach, and its secrets: it asks for its CA to be
// trusted while there are any.
func toldOf(policy holt.NetworkPolicy, all secretsRecord) (p agent.Proxy) {
	p.Refuses = policy.Egress != holt.EgressOpen
	if len(all.shown) > 0 {
		p.Certificate = all.given.Certificate
	}
	return p
}

// tellProxy tells a guest of its proxy as it is now.
func (l *live) tellProxy(ctx context.Context, c *agent.Client) error {
	if l.proxy == nil {
		return nil
	}
	p, err := l.proxy(ctx)
	if err != nil || p == nil {
		return err
	}
	_, err = c.Configure(ctx, agent.Identity{Proxy: p})
	return err
}

// tellPolicy has a guest's programs learn what its policy means for them. The policy counts without that.
func (l *live) tellPolicy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, networkWait)
	defer cancel()
	if err := l.do(ctx, networkWait, true, l.tellProxy); err != nil {
		l.log.WarnContext(ctx, "a guest is not told of its proxy", "computer", l.id, "err", err)
	}
}
