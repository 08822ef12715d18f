package image

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	hostBundle = "/etc/ssl/certs/ca-certificates.crt"
	// distroCertificates has the certificates of Debian's package, which guests
	// trust too.
	distroCertificates = "/usr/share/ca-certificates"

	maxBundleBytes  = 16 << 20
	maxCertificates = 10000
)

// extraCertificates returns, in PEM and in the bundle's order, the certificates
// that the host trusts and a plain Debian does not, such as those of proxies that
// inspect TLS. It returns none if the bundle does not exist.
func extraCertificates(bundle, distro string) ([]byte, error) {
	trusted, err := readCertificates(bundle)
	if err != nil {
		return nil, err
	}
	plain := map[[32]byte]bool{}
	err = filepath.WalkDir(distro, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // the directory is absent or unreadable: no certificate counts as Debian's
		}
		certs, err := readCertificates(name)
		for _, c := range certs {
			plain[sha256.Sum256(c)] = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, c := range trusted {
		sum := sha256.Sum256(c)
		if plain[sum] {
			continue
		}
		plain[sum] = true
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// readCertificates returns the certificates of a PEM file in DER form. It skips other
// blocks.
func readCertificates(name string) ([][]byte, error) {
	data, err := readBounded(name, maxBundleBytes)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	return parseCertificates(data), nil
}

func parseCertificates(data []byte) [][]byte {
	var out [][]byte
	for len(out) < maxCertificates {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return out
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, block.Bytes)
		}
	}
	return out
}
