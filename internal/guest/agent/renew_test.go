package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt"
)

// A renewed machine has none of its old ids and keys.
func TestRenew(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/machine-id", strings.Repeat("0", 32)+"\n")
	write("var/lib/dbus/machine-id", strings.Repeat("0", 32)+"\n")
	id := Identity{MachineID: strings.Repeat("c0de", 8)}
	done, err := renew(t.Context(), slog.New(slog.DiscardHandler), root, id)
	if err != nil || done.MachineID != id.MachineID || len(done.HostKeys) > 0 || len(done.FormerKeys) > 0 {
		t.Fatalf("without SSH: %+v, %v", done, err)
	}
	if b, _ := os.ReadFile(filepath.Join(root, "var/lib/dbus/machine-id")); string(b) != id.MachineID+"\n" {
		t.Errorf("D-Bus has %q", b)
	}

	for _, key := range []string{"ssh_host_rsa_key", "ssh_host_ecdsa_key", "ssh_host_ed25519_key"} {
		write("etc/ssh/"+key, "the parent's")
		write("etc/ssh/"+key+".pub", "the parent's")
	}
	write("etc/ssh/sshd_config", "kept")
	var former []string
	for range 2 { // the second time over what was made the first time
		before, _ := os.ReadFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"))
		done, err := renew(t.Context(), slog.New(slog.DiscardHandler), root, id)
		if err != nil || len(done.HostKeys) != 2 || former != nil && !slices.Equal(done.FormerKeys, former) {
			t.Fatalf("%+v, %v (this needs ssh-keygen: apt-get install openssh-client)", done, err)
		}
		former = done.HostKeys
		after, err := os.ReadFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"))
		if err != nil || bytes.Equal(before, after) {
			t.Errorf("the key is still %q, %v", after, err)
		}
		for i, kind := range []string{"ecdsa", "ed25519"} {
			said, err := exec.Command("ssh-keygen", "-l", "-f", filepath.Join(root, "etc/ssh/ssh_host_"+kind+"_key.pub")).Output()
			if fields := strings.Fields(string(said)); err != nil || len(fields) < 2 || fields[1] != done.HostKeys[i] {
				t.Errorf("of the %s key ssh-keygen says %q, not %s: %v", kind, said, done.HostKeys[i], err)
			}
		}
		if _, err := vetIdentified(done); err != nil {
			t.Error(err)
		}
	}
	done, err = renew(t.Context(), slog.New(slog.DiscardHandler), root, Identity{NewHostKeys: true}) // it boots for the first time
	if err != nil || done.MachineID != id.MachineID || !slices.Equal(done.FormerKeys, former) || len(done.HostKeys) != 2 || slices.Contains(former, done.HostKeys[0]) {
		t.Errorf("new keys alone: %+v, %v; it had %v", done, err, former)
	}
	former = done.HostKeys
	var names []string
	entries, _ := os.ReadDir(filepath.Join(root, "etc/ssh"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"ssh_host_ecdsa_key", "ssh_host_ecdsa_key.pub", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "sshd_config"}
	if !slices.Equal(names, want) {
		t.Errorf("there are %q", names)
	}

	t.Run("without ssh-keygen", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if done, err := renew(t.Context(), slog.New(slog.DiscardHandler), root, id); err == nil {
			t.Errorf("%+v", done)
		}
		if now, err := hostKeys(filepath.Join(root, "etc/ssh")); err != nil || !slices.Equal(now, former) {
			t.Errorf("it has %q, %v: asked again, it would go without", now, err)
		}
	})
	if done, err := renew(t.Context(), slog.New(slog.DiscardHandler), root, Identity{}); err != nil || done.MachineID != id.MachineID || done.HostKeys != nil {
		t.Errorf("a machine that stays itself: %+v, %v", done, err)
	}
}

// A key in another format has a fingerprint too; a machine with too many keys is an error.
func TestFingerprint(t *testing.T) {
	known := map[string]string{}
	for _, file := range []string{"", "the parent's", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----\n",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA/////w==\n-----END OPENSSH PRIVATE KEY-----\n"} {
		got := fingerprint([]byte(file))
		if other, ok := known[got]; ok || !fingerprintRE.MatchString(got) {
			t.Errorf("%q: %s, as %q", file, got, other)
		}
		known[got] = file
	}
	dir := t.TempDir()
	for i := range maxHostKeys + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("ssh_host_%d_key", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := hostKeys(dir); err == nil {
		t.Error(all)
	}
}

// A guest's identity is valid or refused.
func TestIdentified(t *testing.T) {
	key := fingerprint(nil)
	good := Identified{Hostname: "einstein", Drawn: make([]byte, drawnBytes), HostKeys: []string{key}, FormerKeys: []string{key}}
	if got, err := vetIdentified(good); err != nil || got.Hostname != "einstein" || len(got.HostKeys) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	for _, spoil := range []func(*Identified){
		func(d *Identified) { d.Drawn = make([]byte, drawnBytes-1) },
		func(d *Identified) { d.Drawn = make([]byte, 1<<20) },
		func(d *Identified) { d.HostKeys = slices.Repeat([]string{key}, maxHostKeys+1) },
		func(d *Identified) { d.FormerKeys = slices.Repeat([]string{key}, maxHostKeys+1) },
		func(d *Identified) { d.FormerKeys = []string{key + "\n"} },
		func(d *Identified) { d.HostKeys = []string{strings.Repeat("S", 1<<20)} },
	} {
		bad := good
		spoil(&bad)
		if got, err := vetIdentified(bad); holt.CodeOf(err) != holt.Corrupt {
			t.Errorf("%+v %v", got, err)
		}
	}
}
