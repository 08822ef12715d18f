package netstack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"time"
)

const (
	lifeOfCA   = 10 * 365 * 24 * time.Hour
	lifeOfLeaf = 30 * 24 * time.Hour
	renewLeaf  = 24 * time.Hour
	clocksDrag = 48 * time.Hour // a guest's clock may be behind
	maxLeaves  = 2 * maxSecrets
)

// NewCA makes the certificate and key of a computer's CA, in PEM. Only the
// computer's guest trusts it.
func NewCA(computer string) (certificate, key []byte, err error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := x509.Certificate{
		Subject:   pkix.Name{CommonName: "holt, for the computer " + clip(computer)},
		NotBefore: time.Now().Add(-clocksDrag), NotAfter: time.Now().Add(lifeOfCA),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := sign(&t, &t, k, k)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

func sign(t, parent *x509.Certificate, key *ecdsa.PrivateKey, with any) ([]byte, error) {
	var err error
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	return x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, with)
}

// minter makes certificates for hosts.
type minter struct {
	ca   tls.Certificate
	leaf *x509.Certificate // of the CA
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

func newMinter(ca tls.Certificate) (*minter, error) {
	leaf, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return nil, err
	}
	if !leaf.IsCA || ca.PrivateKey == nil {
		return nil, errors.New("it is not a CA certificate with its key")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &minter{ca: ca, leaf: leaf, key: key, leaves: map[string]*tls.Certificate{}}, err
}

// of returns a certificate for a host.
func (m *minter) of(name string) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if have := m.leaves[name]; have != nil && now.Before(have.Leaf.NotBefore.Add(clocksDrag+renewLeaf)) {
		return have, nil
	}
	t := x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-clocksDrag), NotAfter: now.Add(lifeOfLeaf),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(name) > 64 { // maximum of a common name (RFC 5280, A.1)
		t.Subject = pkix.Name{}
	}
	der, err := sign(&t, m.leaf, m.key, m.ca.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(m.leaves) >= maxLeaves {
		clear(m.leaves)
	}
	m.leaves[name] = &tls.Certificate{Certificate: [][]byte{der, m.ca.Certificate[0]}, PrivateKey: m.key, Leaf: leaf}
	return m.leaves[name], nil
}
