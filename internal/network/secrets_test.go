package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// TestSecrets: secrets take effect at once, and in the next process from its start. Their file has mode 0600, and is
// removed with the last secret.
func TestSecrets(t *testing.T) {
	f, ctx, n := newFake(t), t.Context(), networks(t)
	certificate, key, err := NewAuthority("curie")
	if err != nil {
		t.Fatal(err)
	}
	one := Secrets{Certificate: certificate, Key: key, Hosts: []holt.HostSecret{{Host: "api.example", Value: "sk-hunter2"}}}
	file := filepath.Join(f.dir, secretsFile)
	has := func(want int) {
		t.Helper()
		is, err := reload(ctx, f.dir)
		if err != nil || is == nil || is.Secrets != want {
			t.Errorf("it has %+v %v, not %d", is, err, want)
		}
	}
	if err := n.Write(ctx, f.dir, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
		t.Fatal(err)
	}
	if err := n.SetSecrets(ctx, f.dir, one); err != nil {
		t.Error("of a machine without a network: ", err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	l := n.Join(f.dir, false, func(context.Context) {})
	f.joined()
	ready(t, l)
	has(1)
	two := one
	two.Hosts = append(two.Hosts, holt.HostSecret{Host: "other.example", Value: "x", Header: "X-Key"})
	if err := n.SetSecrets(ctx, f.dir, two); err != nil {
		t.Error(err)
	}
	has(2)
	if err := unix.Kill(f.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.joined()
	has(2)
	if err := n.SetSecrets(ctx, f.dir, Secrets{Certificate: certificate, Key: key}); err != nil {
		t.Error(err)
	}
	has(0)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of no secrets: %v", err)
	}
	if err := n.SetSecrets(ctx, f.dir, Secrets{Hosts: one.Hosts, Certificate: "x"}); err == nil {
		t.Error("an invalid CA is accepted")
	}
	if err := n.WriteSecrets(filepath.Join(f.dir, "nowhere"), one); err == nil {
		t.Error("secrets of a machine without a directory are written")
	}
	f.process.Kill()
	if err := l.End(); err != nil {
		t.Error(err)
	}
}
