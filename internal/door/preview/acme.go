package preview

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"holt"
)

// acme gets a certificate at the first request for a name, if certifiable permits it. The authority checks the name by
// TLS-ALPN-01 on the listener, which it must reach at port 443.
func acme(opt TLSOptions) (*tls.Config, error) {
	quiet := zap.NewNop() // errors are events, see below
	issuer := certmagic.ACMEIssuer{CA: opt.CA, Email: opt.ACME, Agreed: true, DisableHTTPChallenge: true, Logger: quiet}
	if issuer.CA == "" {
		issuer.CA = certmagic.LetsEncryptProductionCA
	}
	if opt.Root != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pem, err := os.ReadFile(opt.Root)
		if err != nil || !pool.AppendCertsFromPEM(pem) {
			return nil, holt.Errorf(holt.InvalidArgument, "--acme-root %s has no certificate", opt.Root)
		}
		issuer.TrustedRoots = pool
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, wrap("make directory of certificates", err)
	}
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
		Logger:           quiet,
	})
	magic = certmagic.New(cache, certmagic.Config{
		Storage:  &certmagic.FileStorage{Path: opt.Dir},
		Logger:   quiet,
		OnDemand: &certmagic.OnDemandConfig{DecisionFunc: func(ctx context.Context, name string) error { return opt.Store.certifiable(ctx, name) }},
		OnEvent: func(_ context.Context, event string, data map[string]any) error {
			switch event {
			case "cert_failed":
				opt.Log.Warn("get certificate", "host", data["identifier"], "err", data["error"])
			case "cert_obtained":
				opt.Log.Info("certificate obtained", "host", data["identifier"], "renewed", data["renewal"])
			}
			return nil
		},
	})
	magic.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(magic, issuer)}
	c := magic.TLSConfig()
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = append([]string{"h2", "http/1.1"}, c.NextProtos...)
	return c, nil
}

// certifiable returns nil for names of the API and of links to artifacts, added domains and existing previews. Others get no certificate, since
// authorities limit their number.
func (s *Store) certifiable(ctx context.Context, name string) error {
	name = strings.ToLower(name)
	if slices.Contains(s.cfg.Hosts, name) {
		return nil
	}
	if s.cfg.Place.Off {
		return holt.Errorf(holt.NotFound, "no certificate for %q: it is not a name of this daemon", holt.Clip(name, 256))
	}
	if s.ofLinks(name) {
		return nil
	}
	if h, ok := ParseHost(name, s.cfg.Place.Domain); ok {
		c, err := s.find(ctx, h)
		if err != nil {
			return err
		}
		if one, err := s.table.get(ctx, c.ID, h.Port); err != nil || one.serial != "" {
			return err
		}
	} else if _, known, err := s.table.domain(ctx, name); err != nil || known && s.free(name) == nil {
		return err
	}
	return holt.Errorf(holt.NotFound, "no certificate for %q: it is not a name of this daemon", holt.Clip(name, 256))
}
