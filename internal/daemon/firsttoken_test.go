package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
)

// firstSecret is what the file of the first token has, "" if there is no such file. It is the owner's alone.
func firstSecret(t *testing.T, dir string) string {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "token"))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// admits wants that the file's secret is an admin's, and that there is no other admin's.
func admits(t *testing.T, d *daemon.Daemon, dir string) {
	t.Helper()
	token, err := d.Tokens().Check(t.Context(), firstSecret(t, dir))
	if err != nil || !token.Rights.Admin {
		t.Errorf("the file's token: %+v, %v", token, err)
	}
	all, err := d.Tokens().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Rights.Admin && one.ExpiresAt == nil && one.ID != token.ID {
			t.Errorf("another admin: %+v", one)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "token.new")); !errors.Is(err, os.ErrNotExist) {
		t.Error("token.new was left:", err)
	}
}

// TestFirstToken: a daemon that is to be reached over TCP has written its first token down before it listens anywhere;
// who has been given something else before does not count, and it is made once.
func TestFirstToken(t *testing.T) {
	cfg := config(t, home(t))
	d := open(t, cfg)
	if firstSecret(t, cfg.DataDir) != "" {
		t.Error("a token was made without TCP")
	}
	for _, other := range []func() error{
		func() error { _, _, err := d.Tokens().CreateFor(t.Context(), "default", "ci", 0); return err },
		func() error { _, _, err := d.Tokens().CreateFor(t.Context(), "team-a", "owner", 0); return err },
		func() error {
			_, _, err := d.Tokens().CreateFor(t.Context(), "default", "brief", time.Hour, "admin")
			return err
		},
	} {
		if err := other(); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	cfg.TCP = true
	d = open(t, cfg) // and it ends before it has listened: the port is taken
	d.Close()
	d = open(t, cfg)
	admits(t, d, cfg.DataDir)
	secret := firstSecret(t, cfg.DataDir)
	token, err := d.Tokens().Check(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if err := os.Remove(filepath.Join(cfg.DataDir, "token")); err != nil { // it is kept elsewhere
		t.Fatal(err)
	}
	d = open(t, cfg)
	if firstSecret(t, cfg.DataDir) != "" {
		t.Error("a second first token")
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, "token"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Tokens().Delete(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = up(t, cfg)
	if firstSecret(t, cfg.DataDir) != secret {
		t.Error("the one that was revoked was made again")
	}
}

// TestFirstTokenKilled: wherever a daemon ends while it makes its first token, the next one has it in its file.
func TestFirstTokenKilled(t *testing.T) {
	for _, point := range []string{"token.kept", "token.made"} {
		cfg := config(t, home(t))
		cfg.TCP = true
		killed := errors.New("killed")
		cfg.Fail = func(p string) error {
			if p == point {
				return killed
			}
			return nil
		}
		if _, err := daemon.Open(t.Context(), cfg); !errors.Is(err, killed) {
			t.Fatalf("%s: %v", point, err)
		}
		if firstSecret(t, cfg.DataDir) != "" {
			t.Errorf("%s: the file is there already", point)
		}
		cfg.Fail = nil
		d := up(t, cfg)
		admits(t, d, cfg.DataDir)
		if all, err := d.Tokens().List(holt.WithActor(t.Context(), holt.Actor{})); err != nil || len(all) != 1 {
			t.Errorf("%s: %d tokens, %v", point, len(all), err)
		}
	}
}
