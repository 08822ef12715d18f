package sshd

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"holt"
)

func checkMode(t *testing.T, path string) {
	t.Helper()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(path, st.Mode(), err)
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]login{
		"einstein": {"einstein", "", "agent"}, "einstein+root": {"einstein", "", "root"}, "einstein+1001": {"einstein", "", "1001"},
		"cmp_aaaaaaaaaaaaaaaa+www-data": {"cmp_aaaaaaaaaaaaaaaa", "", "www-data"},
		"einstein.team-a":               {"einstein", "team-a", "agent"}, "einstein.team-a+a.b": {"einstein", "team-a", "a.b"}, "cmp_aaaaaaaaaaaaaaaa.x": {"cmp_aaaaaaaaaaaaaaaa", "x", "agent"},
		"einstein+a.b": {"einstein", "", "a.b"}, "einstein.": {}, ".team-a": {}, "einstein.a.b": {}, "einstein.team_a": {}, "einstein..a": {},
		"": {}, "+root": {}, "einstein+": {}, "ein stein": {}, "einstein+ro/ot": {}, "einstein+a+b": {}, "../x": {}, "einstein+-x": {},
		strings.Repeat("a", 300): {}, "einstein+" + strings.Repeat("a", 33): {}, "einstein\x00": {},
	} {
		got, err := parseName(name)
		if (err == nil) != (want.computer != "") || err == nil && got != want {
			t.Errorf("%q: %v %v", name, got, err)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("einstein+root")
	f.Add("einstein.team-a+root")
	f.Fuzz(func(t *testing.T, name string) {
		at, err := parseName(name)
		if err != nil {
			return
		}
		if len(at.computer) > 64 || len(at.tenant) > 64 || len(at.user) > 32 || strings.ContainsAny(at.computer+at.tenant, "/+. \x00\n") || strings.ContainsAny(at.user, "/+ \x00\n") {
			t.Fatalf("%q is taken: %q", name, at)
		}
	})
}

// FuzzRequests: payloads of a session's requests are accepted within their limits or refused.
func FuzzRequests(f *testing.F) {
	f.Add(ssh.Marshal(ptyRequest{"xterm", 80, 24, 0, 0, "\x03\x00\x00\x00\x7f\x00"}))
	f.Add(ssh.Marshal(envRequest{"LANG", "C"}))
	f.Add(ssh.Marshal(textRequest{"TERM"}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if term, err := parsePTY(payload); err == nil {
			if len(term.Modes) > holt.MostTerminalModes || len(term.Type) > mostTerm || term.Size.Rows > holt.MostTerminalSize || term.Size.Cols > holt.MostTerminalSize {
				t.Fatalf("%+v", term)
			}
		}
		var env environment
		for range 2 * mostEnv {
			env.set(payload)
		}
		if len(env.vars) > mostEnv || env.bytes > mostEnvBytes {
			t.Fatalf("%d variables of %d bytes", len(env.vars), env.bytes)
		}
		if name, ok := parseSignal(payload); ok && (name == "" || len(name) > 16) {
			t.Fatalf("signal %q", name)
		}
	})
}

func TestParseModes(t *testing.T) {
	mode := func(op byte, value uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte{op}, value))
	}
	got := parseModes(mode(3, 127) + mode(53, 0) + "\x00" + mode(50, 1))
	if len(got) != 2 || got[0] != (holt.TerminalMode{Op: 3, Value: 127}) || got[1] != (holt.TerminalMode{Op: 53}) {
		t.Errorf("%+v", got)
	}
	if got := parseModes(mode(3, 1) + mode(200, 1)); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if got := parseModes("\x03\x00"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSignalMessages(t *testing.T) {
	for name, want := range map[string]string{"SIGTERM": "TERM", "SIGKILL": "KILL", "SIGSYS": "SYS@openssh.com"} {
		if got := signalMessage(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestKeys: valid keys and their tenants, and errors of invalid ones.
func TestKeys(t *testing.T) {
	o := openDoor(t)
	ctx := t.Context()
	_, first := o.key(ctx, holt.SSHKeySpec{Name: "mine"})
	_, second := o.key(holt.WithActor(ctx, holt.Actor{Name: "robot", Tenant: "team-a"}), holt.SSHKeySpec{})
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := ssh.NewPublicKey(&small.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for what, line := range map[string]string{
		"nothing": "", "a word": "ssh-ed25519", "a weak key": string(ssh.MarshalAuthorizedKey(weak)),
		"a private key": "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n", "options": `command="x" ` + string(ssh.MarshalAuthorizedKey(o.hostKey.PublicKey())),
		"two": strings.Repeat(string(ssh.MarshalAuthorizedKey(o.hostKey.PublicKey())), 2),
	} {
		if _, err := o.Keys().Add(ctx, holt.SSHKeySpec{Key: line}); holt.CodeOf(err) != holt.InvalidArgument || holt.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	line := string(ssh.MarshalAuthorizedKey(o.hostKey.PublicKey()))
	if _, err := o.Keys().Add(ctx, holt.SSHKeySpec{Key: line, Name: "mine"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Keys().Add(ctx, holt.SSHKeySpec{Key: line}); holt.CodeOf(err) != holt.AlreadyExists {
		t.Error("twice:", err)
	}
	teamA, teamB := holt.WithActor(ctx, holt.Actor{Tenant: "team-a"}), holt.WithActor(ctx, holt.Actor{Tenant: "team-b"})
	if _, err := o.Keys().Add(teamA, holt.SSHKeySpec{Key: line, Tenant: "team-b"}); holt.CodeOf(err) != holt.Forbidden {
		t.Error("for another tenant:", err)
	}
	if all, err := o.Keys().List(ctx); err != nil || len(all) != 3 {
		t.Error(all, err)
	}
	if all, err := o.Keys().List(teamA); err != nil || len(all) != 1 || all[0].ID != second.ID {
		t.Error(all, err)
	}
	for _, c := range []struct {
		ref  string
		want holt.Code
	}{{"mine", holt.Conflict}, {"nobody", holt.NotFound}, {string(second.ID), holt.NotFound}} {
		by := ctx
		if c.ref == string(second.ID) {
			by = teamB
		}
		if _, err := o.Keys().Delete(by, c.ref); holt.CodeOf(err) != c.want {
			t.Errorf("delete %s: %v", c.ref, err)
		}
	}
	if got, err := o.Keys().Delete(ctx, string(first.ID)); err != nil || got.ID != first.ID {
		t.Error(got, err)
	}
}
