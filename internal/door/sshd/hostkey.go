package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"holt"
)

// hostKeyFile is the host key in the data directory, in OpenSSH's format, 0600. All current clients support ed25519, so
// there is no other.
const hostKeyFile = "ssh_host_ed25519_key"

// openHostKey reads the host key of a data directory, and makes it if there is none.
func openHostKey(dir string) (ssh.Signer, error) {
	path := filepath.Join(dir, hostKeyFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = makeHostKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open host key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, holt.Errorf(holt.Corrupt, "the SSH host key %s cannot be read: %w", path, err).
			WithHint("restore it from a backup; or remove it: holt makes a new one, and clients warn that the host key has changed")
	}
	return signer, nil
}

// makeHostKey makes a key and writes it atomically.
func makeHostKey(path string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "holt")
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(block)
	f, err := os.CreateTemp(filepath.Dir(path), ".hostkey-") // 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return b, err
}

// Host returns the gate's host key and address, for clients.
func (g *Gate) Host() holt.SSHHost {
	key := g.hostKey.PublicKey()
	g.mu.Lock()
	defer g.mu.Unlock()
	return holt.SSHHost{
		Address: g.address, Fingerprint: ssh.FingerprintSHA256(key), Type: key.Type(),
		Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
	}
}
