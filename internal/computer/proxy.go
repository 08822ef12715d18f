package computer

import (
	"context"
	"slices"
	"strings"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/network"
)

// proxyOf is what a computer's guest is told of its proxy; nil: nothing, it never was.
func (c *Config) proxyOf(ctx context.Context, id holt.ComputerID, name string) (*agent.Proxy, error) {
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
	p := toldOf(name, policy, all)
	return &p, nil
}

// toldOf is what is said of a proxy by what a computer of that name may reach, and its secrets: it asks for its CA to be
// trusted while there are any.
func toldOf(name string, policy holt.NetworkPolicy, all secretsRecord) (p agent.Proxy) {
	p.Refuses = policy.Egress != holt.EgressOpen
	if len(all.shown) > 0 {
		p.Certificate = all.given.Certificate
	}
	if p.Refuses || p.Certificate != "" {
		p.Direct = direct(name, policy, all.shown)
	}
	return p
}

// ownNets are where a computer's containers are. What is not its own there is reached by the policy without its proxy, too.
const ownNets = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"

// direct is what a computer of that name reaches without its proxy: itself and its containers, but nothing that has a
// secret for it. A name in no_proxy is all below it too (a computer may be called dev); and Ruby looks a host's address up
// among the networks there, so they are none of it where a secret's host can be in one.
func direct(name string, policy holt.NetworkPolicy, secrets []holt.ComputerSecret) string {
	var all []string
	if !slices.ContainsFunc(secrets, func(s holt.ComputerSecret) bool {
		host, _, _ := strings.Cut(strings.ToLower(s.Host), ":")
		return strings.HasSuffix("."+strings.TrimSuffix(host, "."), "."+name)
	}) {
		all = append(all, name)
	}
	if len(secrets) == 0 || !network.GrantsInner(policy) {
		all = append(all, ownNets)
	}
	return strings.Join(all, ",")
}

// sendProxy tells a guest of its proxy as it is now.
func (l *live) sendProxy(ctx context.Context, c *agent.Client) error {
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

// sendPolicy has a guest's programs learn what its policy means for them. The policy counts without that.
func (l *live) sendPolicy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, networkWait)
	defer cancel()
	if err := l.do(ctx, networkWait, true, l.sendProxy); err != nil {
		l.log.WarnContext(ctx, "send proxy settings to guest", "computer", l.id, "err", err)
	}
}
