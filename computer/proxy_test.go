package computer

import (
	"testing"

	"holt"
	"holt/agent"
	"holt/db"
	"holt/network"
)

// TestTold: programs are told of their computer's proxy while it may not reach the internet, and to trust its CA while
// it has secrets; nobody has a policy that was not given.
func TestTold(t *testing.T) {
	const ca = "the CA"
	allow := holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"example.org"}}
	with := secretsRecord{given: network.Secrets{Certificate: ca}, shown: make([]holt.ComputerSecret, 1)}
	without := secretsRecord{given: network.Secrets{Certificate: ca}}
	for i, one := range []struct {
		policy  holt.NetworkPolicy
		secrets secretsRecord
		want    agent.Proxy
	}{
		{openNetwork, with, agent.Proxy{Certificate: ca}},
		{openNetwork, without, agent.Proxy{}},
		{allow, with, agent.Proxy{Certificate: ca, Refuses: true}},
		{allow, without, agent.Proxy{Refuses: true}},
		{holt.NetworkPolicy{Egress: holt.EgressOff}, secretsRecord{}, agent.Proxy{Refuses: true}},
	} {
		if p := toldOf(one.policy, one.secrets); p != one.want {
			t.Errorf("%d: told %+v, not %+v", i, p, one.want)
		}
	}
	_, d := openKeys(t)
	s := &Store{cfg: Config{DB: d}}
	if p, given, err := s.cfg.policyOf(t.Context(), "cmp_a"); err != nil || given || p.Egress != holt.EgressOpen {
		t.Errorf("of nobody's saying: %+v %v %v", p, given, err)
	}
	if err := writeSync(t.Context(), d, func(tx *db.Tx) error { return networks{s}.save(tx, "cmp_a", allow) }); err != nil {
		t.Fatal(err)
	}
	if p, given, err := s.cfg.policyOf(t.Context(), "cmp_a"); err != nil || !given || p.Egress != holt.EgressAllow {
		t.Errorf("as it was given: %+v %v %v", p, given, err)
	}
}
