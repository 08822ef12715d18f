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

// TLSOptions configure certificates: from files, or from an ACME authority.
type TLSOptions struct {
	Cert, Key string // PEM files; "": none

	ACME  string // mail address of the account; "": no ACME
	CA    string // directory URL of the authority; "": Let's Encrypt
	Root  string // PEM file of additional CA certificates for the authority's TLS
	Dir   string // has the account and the certificates
	Store *Store // has the names that get certificates
	Log   *slog.Logger
}

// TLS returns the TLS configuration of listeners; nil: no TLS.
//
// It does not set HSTS: names below localhost, and those of given certificates, may later be served without TLS, and a
// browser with HSTS would refuse them. An app can set HSTS itself.
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

// checkEvery is the interval between checks whether a certificate's files have changed.
const checkEvery = 30 * time.Second

// files is a certificate in files that another program renews.
type files struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	have    *tls.Certificate
	stamp   [2]time.Time
	lookAt  time.Time
	problem string // the error that was logged last
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

// load reads the files if they have changed. f.mu is held, or f is not shared yet.
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
		return holt.Errorf(holt.InvalidArgument, "read the TLS certificate: %w", err).WithHint("--tls-cert and --tls-key must be matching PEM files; --tls-cert includes the chain")
	}
	f.have, f.stamp = &pair, stamp
	return nil
}

// get is for [tls.Config]. If the files are invalid, such as half written, it returns the former certificate.
func (f *files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.After(f.lookAt) {
		f.lookAt = now.Add(checkEvery)
		err := f.load()
		if said := fmt.Sprint(err); err != nil && said != f.problem {
			f.log.Warn("reload the TLS certificate: the former one is used", "err", err)
			f.problem = said
		} else if err == nil {
			f.problem = ""
		}
	}
	return f.have, nil
}
