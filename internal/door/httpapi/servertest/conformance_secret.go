package servertest

import (
	"testing"

	"holt"
	"holt/internal/nouns"
)

// secretVerbs gives a computer host secrets, where it has a network of its own.
func secretVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "einstein")
	api := holt.HostSecret{Host: "api.example.com", Value: "sk-hunter2"}
	_, err := n.Secrets.List(ctx, "einstein")
	if holt.CodeOf(err) == holt.Unsupported {
		_, err = n.Secrets.Set(ctx, "einstein", "API_KEY", api)
		WantCode(t, err, holt.Unsupported)
		WantCode(t, n.Secrets.Delete(ctx, "einstein", "API_KEY", ""), holt.Unsupported)
		return
	}
	_, err = n.Secrets.List(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	_, err = n.Secrets.Set(ctx, "nobody", "API_KEY", api)
	WantCode(t, err, holt.NotFound)
	WantCode(t, n.Secrets.Delete(ctx, "einstein", "API_KEY", ""), holt.NotFound)
	if all := Must(n.Secrets.List(ctx, "einstein"))(t); len(all) != 0 {
		t.Errorf("at first %+v", all)
	}
	for _, bad := range []holt.HostSecret{
		{Host: "api.example.com"}, {Host: "*.example.com", Value: "x"}, {Host: "192.0.2.1", Value: "x"}, {Host: "a.example:0", Value: "x"},
		{Host: "a.example", Value: "x\ny"}, {Host: "a.example", Header: "Host", Value: "x"}, {Host: "a.example", Placeholder: "short", Value: "x"},
	} {
		_, err = n.Secrets.Set(ctx, "einstein", "BAD", bad)
		WantCode(t, err, holt.InvalidArgument)
	}
	_, err = n.Secrets.Set(ctx, "einstein", "a b", api)
	WantCode(t, err, holt.InvalidArgument)
	Must(n.Secrets.Set(ctx, "einstein", "B", api))(t)
	Must(n.Secrets.Set(ctx, "einstein", "A", holt.HostSecret{Host: "other.example", Header: "X-Key", Placeholder: "replace-me", Plain: true, Value: "v"}))(t)
	got := Must(n.Secrets.Set(ctx, "einstein", "B", holt.HostSecret{Host: "api.example.com:8443", Value: "sk-hunter3"}))(t)
	all := Must(n.Secrets.List(ctx, "einstein"))(t)
	if len(all) != 2 || all[0].Name != "A" || all[0].Header != "X-Key" || all[0].Placeholder != "replace-me" || !all[0].Plain || all[1] != got || got.Host != "api.example.com:8443" || got.SetAt.IsZero() {
		t.Errorf("%+v", all)
	}
	bare := Must(n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "curie"}, ""))(t)
	same := Must(n.Computers.Fork(ctx, "einstein", holt.ComputerForkSpec{Name: "bohr", WithSecrets: true}, ""))(t)
	for ref, want := range map[holt.ComputerID]int{bare.Computers[0].ID: 0, same.Computers[0].ID: 2} {
		if all := Must(n.Secrets.List(ctx, string(ref)))(t); len(all) != want {
			t.Errorf("%s has %+v", ref, all)
		}
	}
	if err := n.Secrets.Delete(ctx, "einstein", "A", ""); err != nil {
		t.Error(err)
	}
	if all := Must(n.Secrets.List(ctx, "einstein"))(t); len(all) != 1 || all[0].Name != "B" {
		t.Errorf("%+v", all)
	}
	if all := Must(n.Secrets.List(ctx, "bohr"))(t); len(all) != 2 {
		t.Errorf("what a fork has: %+v", all)
	}
}
