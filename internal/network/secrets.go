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

// secretsFile has what the proxy of a machine adds to requests, 0600. A process that begins has it before
// the first frame; without secrets there is no file.
const secretsFile = "network-secrets.json"

// Secrets are what the proxy of a machine adds to requests, and the CA by which it speaks as their hosts.
type Secrets struct {
	Hosts       []holt.HostSecret `json:"hosts"`
	Certificate string            `json:"certificate"` // PEM
	Key         string            `json:"key"`         // PEM
}

// CheckSecrets returns InvalidArgument for secrets that cannot be added to requests; it names no value.
func CheckSecrets(all []holt.HostSecret) error {
	_, err := netstack.ParseSecrets(all)
	return err
}

// NewAuthority makes the certificate and key of a computer's CA, in PEM.
func NewAuthority(computer string) (certificate, key string, err error) {
	c, k, err := netstack.NewCA(computer)
	return string(c), string(k), err
}

// WriteSecrets puts secrets where the network of the machine in dir finds them when it begins, or is told by SetSecrets.
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

// SetSecrets changes the secrets of the machine in dir at once. Errors: Unsupported when its network is of
// a holt that had none.
func (n *Networks) SetSecrets(ctx context.Context, dir string, all Secrets) error {
	if err := n.WriteSecrets(dir, all); err != nil {
		return err
	}
	is, err := reload(ctx, dir)
	if err == nil && is != nil && is.Secrets != len(all.Hosts) {
		return holt.Errorf(holt.Unsupported, "the computer's network was started by an older holt, which adds no secrets").
			WithHint("they count from the computer's next start: holt computer stop and start, or pause and resume")
	}
	return err
}

// reloadSecrets reads the secrets anew.
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
