package computer

import (
	"context"
	"slices"
	"strings"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/network"
)

// proxyOf returns what a guest is told of its proxy; nil if it never had one.
func (c *Config) proxyOf(ctx context.Context, e machine.Engine, id holt.ComputerID, name string) (*agent.Proxy, error) {
	if !c.ownNetworks(e) {
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

// toldOf derives it from the policy and the secrets. The CA is trusted only while there are
// secrets.
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

// ownNets are the networks of a computer's containers. Other hosts there can be reached without the
// proxy too, as far as the policy allows.
const ownNets = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"

// direct is what a computer reaches without its proxy: itself and its containers, but no host that
// has a secret. A name in no_proxy includes all names below it (a computer may be named dev), and
// Ruby resolves a host before it compares it with the networks, so they are left out if the host of
// a secret can be in one.
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

// sendProxy sends the current proxy settings to the guest.
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

// sendPolicy makes the guest apply a changed policy to its programs. The policy is enforced without
// that.
func (l *live) sendPolicy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, networkWait)
	defer cancel()
	if err := l.do(ctx, networkWait, true, l.sendProxy); err != nil {
		l.log.WarnContext(ctx, "send proxy settings to guest", "computer", l.id, "err", err)
	}
}
