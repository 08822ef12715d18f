package servertest

import (
	"testing"

	"holt"
	"holt/internal/nouns"
)

// someKey is a public key that nobody has the other half of any more.
const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINkpHcIo1W9l8ROPsskmnqC5pV02/r5wikJ4cGI3JuBe laptop"

// sshVerbs puts a key on record and takes it off.
func sshVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	if h := n.SSH.Host(); h.Key == "" || h.Fingerprint == "" {
		t.Errorf("%+v", h)
	}
	_, err := n.SSH.Connect(ctx, "nobody")
	WantCode(t, err, holt.NotFound)
	_, err = n.SSHKeys.Add(ctx, holt.SSHKeySpec{Key: "no key"}, "")
	WantCode(t, err, holt.InvalidArgument)
	one := Must(n.SSHKeys.Add(ctx, holt.SSHKeySpec{Key: someKey, AllowAgentForwarding: true}, ""))(t)
	if one.Name != "laptop" || one.Type != "ssh-ed25519" || !one.AllowAgentForwarding {
		t.Errorf("%+v", one)
	}
	_, err = n.SSHKeys.Add(ctx, holt.SSHKeySpec{Key: someKey}, "")
	WantCode(t, err, holt.AlreadyExists)
	if all := Must(n.SSHKeys.List(ctx))(t); len(all) != 1 || all[0].ID != one.ID {
		t.Errorf("%+v", all)
	}
	if gone := Must(n.SSHKeys.Delete(ctx, "laptop", ""))(t); gone.ID != one.ID {
		t.Errorf("%+v", gone)
	}
	_, err = n.SSHKeys.Delete(ctx, string(one.ID), "")
	WantCode(t, err, holt.NotFound)
}
