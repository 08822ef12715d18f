package servertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"holt"
)

// ssh is an SSH door that nobody comes through: it has a key, and records of others.
type ssh struct {
	m *Memory
}

func (ssh) Host() holt.SSHHost {
	return holt.SSHHost{Type: "ssh-ed25519", Fingerprint: "SHA256:none", Key: "ssh-ed25519 none"}
}

func (n ssh) Connect(ctx context.Context, computer string) (holt.PortConn, error) {
	if _, err := n.m.computer(computer); err != nil {
		return nil, err
	}
	return nil, holt.Errorf(holt.Unsupported, "computers in memory have no SSH")
}

// sshKeys keep keys as they are given: what is one the gate knows.
type sshKeys struct {
	mu  sync.Mutex
	all []holt.SSHKey
	of  map[string]bool // lines that are on record
}

func (k *sshKeys) List(context.Context) ([]holt.SSHKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all), nil
}

func (k *sshKeys) Add(_ context.Context, spec holt.SSHKeySpec, _ string) (holt.SSHKey, error) {
	words := strings.Fields(spec.Key)
	if len(words) < 2 || !strings.HasPrefix(words[0], "ssh-") || !strings.HasPrefix(words[1], "AAAA") {
		return holt.SSHKey{}, holt.Errorf(holt.InvalidArgument, "invalid public key")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of[words[1]] {
		return holt.SSHKey{}, holt.Errorf(holt.AlreadyExists, "the key is on record already")
	}
	if k.of == nil {
		k.of = map[string]bool{}
	}
	k.of[words[1]] = true
	one := holt.SSHKey{ID: holt.NewSSHKeyID(), Name: spec.Name, Type: words[0], Fingerprint: "SHA256:" + words[1], AllowAgentForwarding: spec.AllowAgentForwarding, CreatedAt: time.Now().UTC()}
	if one.Name == "" {
		one.Name = words[len(words)-1]
	}
	k.all = append(k.all, one)
	return one, nil
}

func (k *sshKeys) Delete(_ context.Context, ref, _ string) (holt.SSHKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, one := range k.all {
		if string(one.ID) == ref || one.Name == ref || one.Fingerprint == ref {
			k.all = slices.Delete(k.all, i, i+1)
			delete(k.of, strings.TrimPrefix(one.Fingerprint, "SHA256:"))
			return one, nil
		}
	}
	return holt.SSHKey{}, holt.Errorf(holt.NotFound, "there is no SSH key %q", ref)
}
