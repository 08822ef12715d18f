package servertest

import (
	"slices"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// networkVerbs changes what a computer may reach, where it has a network of its own.
func networkVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "einstein")
	_, err := n.Networks.Get(ctx, "einstein")
	off := holt.NetworkPolicy{Egress: holt.EgressOff}
	if holt.CodeOf(err) == holt.Unsupported {
		_, err = n.Networks.Set(ctx, "einstein", off)
		WantCode(t, err, holt.Unsupported)
		_, err = n.Networks.Traffic(ctx, "einstein")
		WantCode(t, err, holt.Unsupported)
		_, err = n.Computers.Create(ctx, holt.ComputerSpec{Network: &off}, "")
		WantCode(t, err, holt.Unsupported)
		return
	}
	_, err = n.Networks.Get(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	_, err = n.Networks.Traffic(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	if p := Must(n.Networks.Get(ctx, "einstein"))(t); p.Egress != holt.EgressOpen || len(p.Allow) != 0 {
		t.Errorf("at first %+v", p)
	}
	some := holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"*.example.com", "host.holt.internal:8080"}}
	Must(n.Networks.Set(ctx, "einstein", some))(t)
	for _, bad := range []holt.NetworkPolicy{{}, {Egress: "closed"}, {Egress: holt.EgressAllow, Allow: []string{"127.0.0.1:80"}}, {Egress: holt.EgressAllow, Allow: []string{"a b"}}} {
		_, err = n.Networks.Set(ctx, "einstein", bad)
		WantCode(t, err, holt.InvalidArgument)
		_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "bad", Network: &bad}, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	forked := Must(n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "curie"}, ""))(t)
	other := Must(n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr", Network: &off}, ""))(t)
	for ref, want := range map[string]holt.NetworkPolicy{"einstein": some, string(forked.Computers[0].ID): some, string(other.Computers[0].ID): off} {
		if p := Must(n.Networks.Get(ctx, ref))(t); p.Egress != want.Egress || !slices.Equal(p.Allow, want.Allow) {
			t.Errorf("%s may reach %+v, not %+v", ref, p, want)
		}
	}
	if got := Must(n.Networks.Traffic(ctx, "curie"))(t); got.Destinations == nil || len(got.Destinations) != 0 || got.Sent != 0 {
		t.Errorf("a fork begins with traffic %+v", got)
	}
}
