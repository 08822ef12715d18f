package client

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"holt"
)

// trust says by what an https server is known: the system's certificates and those given, or one fingerprint.
func trust(opt Options) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(opt.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // a machine without any
		}
		if !pool.AppendCertsFromPEM(opt.CA) {
			return nil, holt.Errorf(holt.InvalidArgument, "the server certificate file contains no certificate").
				WithHint("give a PEM file, with -----BEGIN CERTIFICATE-----")
		}
		cfg.RootCAs = pool
	}
	if opt.Fingerprint == "" {
		return cfg, nil
	}
	want, err := hex.DecodeString(strings.ReplaceAll(opt.Fingerprint, ":", ""))
	if err != nil || len(want) != sha256.Size {
		return nil, holt.Errorf(holt.InvalidArgument, "%q is not a fingerprint", opt.Fingerprint).
			WithHint("use the SHA-256, 64 hexadecimal digits: openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE")
	}
	cfg.InsecureSkipVerify = true // what is verified instead is that it is this very certificate
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		is := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(is[:], want) != 1 {
			return holt.Errorf(holt.Unauthenticated, "the server's certificate has a different fingerprint: %s", hex.EncodeToString(is[:])).
				WithHint("if the certificate was replaced on purpose, use this fingerprint")
		}
		return nil
	}
	return cfg, nil
}

// distrusted is the error of a server that is not the one it should be, or speaks no TLS: trying again would not help.
func (c *Client) distrusted(err error) error {
	var own *holt.Error
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &verify):
		return holt.Errorf(holt.Unauthenticated, "the certificate of %s is not trusted: %w", c.place, verify.Err).
			WithHint("if the server signed it itself: holt context add NAME --replace --ca-file FILE, or --fingerprint SHA256; or %s", holt.EnvCAFile)
	case errors.Is(err, http.ErrSchemeMismatch):
		return holt.Errorf(holt.Unavailable, "the server at %s does not speak TLS", c.place).WithHint("use http://, or another port")
	}
	return nil
}
