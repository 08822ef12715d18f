package network

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

// secretsFile has the secrets of a machine's proxy, 0600. It is written before the process starts. It is absent
// without secrets.
const secretsFile = "network-secrets.json"

// Secrets are the secrets that a machine's proxy adds to requests, and the CA of its certificates for their hosts.
type Secrets struct {
	Hosts       []holt.HostSecret `json:"hosts"`
	Certificate string            `json:"certificate"` // PEM
	Key         string            `json:"key"`         // PEM
}

// CheckSecrets returns InvalidArgument for secrets that cannot be added to requests. The error has no value of a secret.
func CheckSecrets(all []holt.HostSecret) error {
	_, err := netstack.ParseSecrets(all)
	return err
}

// NewAuthority makes the certificate and key of a computer's CA, in PEM.
func NewAuthority(computer string) (certificate, key string, err error) {
	c, k, err := netstack.NewCA(computer)
	return string(c), string(k), err
}

// WriteSecrets writes the secrets of the machine in dir. Its network reads them when it starts, or at SetSecrets.
func (n *Networks) WriteSecrets(dir string, all Secrets) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return machine.Gone(dir)
	}
	if len(all.Hosts) > 0 {
		return replace(dir, secretsFile, all)
	}
	if err := os.Remove(filepath.Join(dir, secretsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove secrets: %w", err)
	}
	return nil
}

// SetSecrets changes the secrets of the machine in dir, also if it runs. Errors: Unsupported (its network is of a
// version without secrets).
func (n *Networks) SetSecrets(ctx context.Context, dir string, all Secrets) error {
	if err := n.WriteSecrets(dir, all); err != nil {
		return err
	}
	is, err := reload(ctx, dir)
	if err == nil && is != nil && is.Secrets != len(all.Hosts) {
		return holt.Errorf(holt.Unsupported, "the computer's network was started by an older holt, which does not support secrets").
			WithHint("the secrets are saved and take effect after holt computer stop and start, or pause and resume")
	}
	return err
}

// reloadSecrets reads the secrets again.
func (p *process) reloadSecrets() error {
	var s Secrets
	if err := readJSON(p.dir, secretsFile, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, err := netstack.ParseSecrets(s.Hosts)
	if err != nil {
		return err
	}
	if len(s.Hosts) > 0 {
		ca, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key))
		if err != nil {
			return fmt.Errorf("read the CA: %w", err)
		}
		if err := p.stack.SetCA(ca); err != nil {
			return err
		}
	}
	p.stack.SetSecrets(all)
	p.secrets.Store(int64(len(s.Hosts)))
	return nil
}
