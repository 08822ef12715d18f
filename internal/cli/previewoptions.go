package cli

import (
	"net/netip"

	"github.com/spf13/pflag"

	"holt"
)

// PreviewOptions say where previews are, and how the daemon's TCP listeners do TLS.
type PreviewOptions struct {
	Listen  string   // TCP address; "": that of the API or, if there is none, a port of loopback; "off": none
	Domain  string   // previews are below it, as box.example.com or https://box.example.com; "": localhost
	Proxies []string // addresses or networks of trusted reverse proxies

	Cert, Key string // files of a certificate and its key, PEM
	ACME      string // mail address of the account at a certificate authority; "": no ACME
	ACMECA    string // its directory; "": Let's Encrypt
	ACMERoot  string // PEM file with the root certificate of its TLS
}

// flags adds their settings.
func (o *PreviewOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Listen, "preview-listen", "", "serve previews on this TCP address, such as localhost:8080, or 0.0.0.0:443 with TLS; off: no previews (default: the address of --listen, else localhost:4647, or another port if that is in use)")
	f.StringVar(&o.Domain, "preview-domain", "", "serve previews at PORT-COMPUTER.`DOMAIN`; a wildcard DNS record must lead here; https://DOMAIN if a proxy does TLS (default: localhost)")
	f.Var(list(&o.Proxies, func(one string) error { _, err := ParseProxy(one); return err }), "trusted-proxy", "address or network of a reverse proxy whose X-Forwarded-For and (for previews) X-Forwarded-Proto headers are trusted")
	f.Var(file(&o.Cert, ""), "tls-cert", "PEM file with the certificate for TLS on all TCP addresses; it is read again when it changes")
	f.Var(file(&o.Key, ""), "tls-key", "PEM file with the key of --tls-cert")
	f.StringVar(&o.ACME, "acme", "", "serve TLS, and get certificates for --host names, previews and their domains; `MAIL` is the address of the account, and giving it accepts the authority's terms")
	f.StringVar(&o.ACMECA, "acme-ca", "", "ACME directory URL of another authority than Let's Encrypt")
	f.Var(file(&o.ACMERoot, ""), "acme-root", "PEM file with the root certificate of --acme-ca's own TLS")
}

func (o PreviewOptions) check(listen string) error {
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return holt.Errorf(holt.InvalidArgument, "--tls-cert needs --tls-key, and the other way round").WithHint("set both")
	case o.Cert != "" && o.ACME != "":
		return holt.Errorf(holt.InvalidArgument, "--tls-cert and --acme exclude each other").WithHint("set one of them: --tls-cert if you have a certificate, --acme to get one")
	case o.ACME == "" && (o.ACMECA != "" || o.ACMERoot != ""):
		return holt.Errorf(holt.InvalidArgument, "--acme-ca and --acme-root need --acme").WithHint("set --acme to a mail address, such as you@example.com")
	case (o.Cert != "" || o.ACME != "") && listen == "" && (o.Listen == "" || o.Listen == "off"):
		return holt.Errorf(holt.InvalidArgument, "TLS is configured, but no TCP address to serve it on").WithHint("set --listen or --preview-listen, for example to 0.0.0.0:443")
	}
	return nil
}

// encrypted says that the daemon's TCP listeners do TLS.
func (o PreviewOptions) encrypted() bool { return o.Cert != "" || o.ACME != "" }

// ParseProxy reads an address or a network.
func ParseProxy(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, holt.Errorf(holt.InvalidArgument, "%q is neither an IP address nor a network", holt.Clip(s, 64)).WithHint("use an address or a network, such as 10.0.0.2 or 10.0.0.0/8")
	}
	return p, nil
}
