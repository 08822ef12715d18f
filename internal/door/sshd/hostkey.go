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

// hostKeyFile is the host key's name in the data directory: OpenSSH's format, readable by its owner only. Every client of
// today takes ed25519, so it is the only one.
const hostKeyFile = "ssh_host_ed25519_key"

// openHostKey reads the host key of a data directory, or makes it.
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
			WithHint("put it back from a backup; or remove it, and clients are told of another host")
	}
	return signer, nil
}

// makeHostKey writes a new key so that it is there whole or not at all.
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

// Host returns what clients need to know of the gate: its key, and where it listens.
func (g *Gate) Host() holt.SSHHost {
	key := g.hostKey.PublicKey()
	g.mu.Lock()
	defer g.mu.Unlock()
	return holt.SSHHost{
		Address: g.address, Fingerprint: ssh.FingerprintSHA256(key), Type: key.Type(),
		Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
	}
}
