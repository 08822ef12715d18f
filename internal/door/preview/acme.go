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

// acme gets certificates when a name is first asked for, if it is one of ours. The authority asks for its proof on the
// listener itself (TLS-ALPN-01), which it reaches at port 443.
func acme(opt TLSOptions) (*tls.Config, error) {
	quiet := zap.NewNop() // what goes wrong is an event, see below
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
			return nil, holt.Errorf(holt.InvalidArgument, "--acme-root %s holds no certificate", opt.Root)
		}
		issuer.TrustedRoots = pool
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, wrap("keep certificates", err)
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
				opt.Log.Warn("no certificate", "host", data["identifier"], "err", data["error"])
			case "cert_obtained":
				opt.Log.Info("a certificate", "host", data["identifier"], "renewed", data["renewal"])
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

// certifiable says whether a certificate is got for a name: for those of the API, domains that were added, and
// previews that were made. Whoever asks for others would use up what an authority gives.
func (s *Store) certifiable(ctx context.Context, name string) error {
	name = strings.ToLower(name)
	if slices.Contains(s.cfg.Hosts, name) {
		return nil
	}
	if s.cfg.Place.Off {
		return holt.Errorf(holt.NotFound, "%q is none of our names", holt.Clip(name, 256))
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
	return holt.Errorf(holt.NotFound, "%q is none of our names", holt.Clip(name, 256))
}
