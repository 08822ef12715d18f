package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A machine that becomes another has neither the id nor a key of the first.
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
	done, err := renew(t.Context(), root, id)
	if err != nil || done.MachineID != id.MachineID || len(done.HostKeys) > 0 {
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
	for range 2 { // the second time over what was made the first time
		before, _ := os.ReadFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"))
		done, err := renew(t.Context(), root, id)
		if err != nil || !slices.Equal(done.HostKeys, []string{"ed25519", "ecdsa"}) {
			t.Fatalf("%+v, %v (this needs ssh-keygen: apt-get install openssh-client)", done, err)
		}
		after, err := os.ReadFile(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key"))
		if err != nil || bytes.Equal(before, after) {
			t.Errorf("the key is still %q, %v", after, err)
		}
	}
	var names []string
	entries, _ := os.ReadDir(filepath.Join(root, "etc/ssh"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"ssh_host_ecdsa_key", "ssh_host_ecdsa_key.pub", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "sshd_config"}
	if !slices.Equal(names, want) {
		t.Errorf("there are %q", names)
	}

	if done, err := renew(t.Context(), root, Identity{}); err != nil || done.MachineID != id.MachineID || done.HostKeys != nil {
		t.Errorf("a machine that stays itself: %+v, %v", done, err)
	}
}
