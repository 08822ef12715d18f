package preview

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"holt"
)

// TLSOptions say where certificates come from: files, or an authority that speaks ACME.
type TLSOptions struct {
	Cert, Key string // PEM files; "": none

	ACME  string // mail address of the account; "": none
	CA    string // the authority's directory; "": Let's Encrypt
	Root  string // PEM file of what its TLS is trusted by, besides what this machine trusts
	Dir   string // keeps the account and the certificates
	Store *Store // has the names that certificates are got for
	Log   *slog.Logger
}

// TLS returns how listeners do TLS; nil: not at all.
//
// There is no HSTS: the names below localhost, and those of certificates that were given, may be another's tomorrow, or
// answer without TLS on another port, and a browser that was told would not come back. An app may say so itself.
func TLS(opt TLSOptions) (*tls.Config, error) {
	switch {
	case opt.Cert != "":
		f := &files{cert: opt.Cert, key: opt.Key, log: opt.Log}
		if err := f.load(); err != nil {
			return nil, err
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: f.get}, nil
	case opt.ACME != "":
		return acme(opt)
	}
	return nil, nil
}

// lookEvery is how often it is looked whether the files of a certificate have changed.
const lookEvery = 30 * time.Second

// files are a certificate that others renew.
type files struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	have    *tls.Certificate
	stamp   [2]time.Time
	lookAt  time.Time
	problem string // that was logged last
}

func (f *files) times() (stamp [2]time.Time, err error) {
	for i, path := range []string{f.cert, f.key} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp, err
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

// load reads the files. mu is held, or nobody else has f.
func (f *files) load() error {
	stamp, err := f.times()
	if err == nil && f.have != nil && stamp == f.stamp {
		return nil
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.LoadX509KeyPair(f.cert, f.key)
	}
	if err != nil {
		return holt.Errorf(holt.InvalidArgument, "the certificate cannot be used: %w", err).WithHint("--tls-cert and --tls-key are PEM files that belong together; the certificate's holds its chain, too")
	}
	f.have, f.stamp = &pair, stamp
	return nil
}

// get is for [tls.Config]. Files that are half written leave the certificate that there was.
func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.After(f.lookAt) {
		f.lookAt = now.Add(lookEvery)
		err := f.load()
		if said := fmt.Sprint(err); err != nil && said != f.problem {
			f.log.Warn("the certificate was not renewed", "err", err)
			f.problem = said
		} else if err == nil {
			f.problem = ""
		}
	}
	return f.have, nil
}
