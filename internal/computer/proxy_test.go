package computer

import (
	"testing"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/network"
	"holt/internal/store/db"
)

// TestTold: programs are told of their computer's proxy while it may not reach the internet, and to trust its CA while
// it has secrets; nobody has a policy that was not given.
func TestTold(t *testing.T) {
	const ca, direct = "the CA", "dev," + ownNets
	allow := holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"example.org"}}
	with := secretsRecord{given: network.Secrets{Certificate: ca}, shown: make([]holt.ComputerSecret, 1)}
	without := secretsRecord{given: network.Secrets{Certificate: ca}}
	for i, one := range []struct {
		policy  holt.NetworkPolicy
		secrets secretsRecord
		want    agent.Proxy
	}{
		{openNetwork, with, agent.Proxy{Certificate: ca, Direct: direct}},
		{openNetwork, without, agent.Proxy{}},
		{allow, with, agent.Proxy{Certificate: ca, Refuses: true, Direct: direct}},
		{allow, without, agent.Proxy{Refuses: true, Direct: direct}},
		{holt.NetworkPolicy{Egress: holt.EgressOff}, secretsRecord{}, agent.Proxy{Refuses: true, Direct: direct}},
	} {
		if p := toldOf("dev", one.policy, one.secrets); p != one.want {
			t.Errorf("%d: told %+v, not %+v", i, p, one.want)
		}
	}
	_, d := openKeys(t)
	s := &Store{registry: &registry{cfg: Config{DB: d}}}
	if p, given, err := s.cfg.policyOf(t.Context(), "cmp_a"); err != nil || given || p.Egress != holt.EgressOpen {
		t.Errorf("of nobody's saying: %+v %v %v", p, given, err)
	}
	if err := writeSync(t.Context(), d, func(tx *db.Tx) error { return savePolicy(tx, "cmp_a", allow) }); err != nil {
		t.Fatal(err)
	}
	if p, given, err := s.cfg.policyOf(t.Context(), "cmp_a"); err != nil || !given || p.Egress != holt.EgressAllow {
		t.Errorf("as it was given: %+v %v %v", p, given, err)
	}
}

// TestDirect: a computer reaches itself and its containers without its proxy, but no host that it has a secret for.
func TestDirect(t *testing.T) {
	for i, one := range []struct {
		allow  []string
		secret string // its host; "": none
		want   string
	}{
		{nil, "", "dev," + ownNets},
		{[]string{"10.0.0.0/8"}, "", "dev," + ownNets},
		{nil, "api.example.com", "dev," + ownNets},
		{[]string{"example.com"}, "api.example.com", "dev," + ownNets},
		{nil, "web.dev", ownNets},
		{nil, "Web.DEV.:8443", ownNets},
		{nil, "dev:8443", ownNets},
		{nil, "api.webdev", "dev," + ownNets},
		{[]string{"10.0.0.0/8:443"}, "git.corp", "dev"},
		{[]string{"host.holt.internal:8443"}, "host.holt.internal:8443", "dev"},
		{[]string{"10.1.2.3"}, "git.dev", ""},
	} {
		var all []holt.ComputerSecret
		if one.secret != "" {
			all = []holt.ComputerSecret{{Host: one.secret}}
		}
		if got := direct("dev", holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: one.allow}, all); got != one.want {
			t.Errorf("%d: %q, not %q", i, got, one.want)
		}
	}
}
