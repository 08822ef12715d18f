package cli

import (
	"net/netip"
	"path/filepath"

	"github.com/spf13/cobra"

	"holt"
)

// PreviewOptions say where previews are, and how the daemon's TCP listeners do TLS.
type PreviewOptions struct {
	Listen  string   // TCP address; "": that of the API or, if there is none, a port of loopback; "off": none
	Domain  string   // previews are below it, as box.example.com or https://box.example.com; "": localhost
	Proxies []string // addresses or networks of proxies whose word on who calls is taken

	Cert, Key string // files of a certificate and its key, PEM
	ACME      string // mail address of an account of a certificate authority; "": certificates are not got
	ACMECA    string // its directory; "": Let's Encrypt
	ACMERoot  string // a file with what its TLS is trusted by, besides what this machine trusts
}

func previewFlags(cmd *cobra.Command, o *PreviewOptions) {
	f := cmd.Flags()
	f.StringVar(&o.Listen, "preview-listen", "", "show previews on this TCP address, as localhost:8080, or with TLS 0.0.0.0:443; off: none (default: where the API listens, else localhost:4647, or another port if that is taken)")
	f.StringVar(&o.Domain, "preview-domain", "", "previews are at PORT-COMPUTER.`DOMAIN`, whose names all lead here; https://DOMAIN where something else does TLS (default: localhost)")
	f.StringSliceVar(&o.Proxies, "trusted-proxy", nil, "a proxy in front, by address or network, whose X-Forwarded-For and (for previews) -Proto count")
	f.StringVar(&o.Cert, "tls-cert", "", "serve TLS on all TCP addresses with the certificate in this PEM file; a new one is taken when the file changes")
	f.StringVar(&o.Key, "tls-key", "", "the key of --tls-cert")
	f.StringVar(&o.ACME, "acme", "", "serve TLS, and get certificates for --host names, previews and their domains; the `MAIL` address is for the account, and says that you agree to the authority's terms")
	f.StringVar(&o.ACMECA, "acme-ca", "", "the ACME directory of another authority than Let's Encrypt")
	f.StringVar(&o.ACMERoot, "acme-root", "", "a PEM file that the TLS of --acme-ca is trusted by")
}

func (o PreviewOptions) check(listen string) error {
	for _, p := range o.Proxies {
		if _, err := ParseProxy(p); err != nil {
			return err
		}
	}
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return holt.Errorf(holt.InvalidArgument, "--tls-cert and --tls-key go together").WithHint("give both: the certificates, and the key of the first")
	case o.Cert != "" && o.ACME != "":
		return holt.Errorf(holt.InvalidArgument, "--tls-cert and --acme exclude each other").WithHint("certificates are given, or got")
	case o.ACME == "" && (o.ACMECA != "" || o.ACMERoot != ""):
		return holt.Errorf(holt.InvalidArgument, "--acme-ca and --acme-root need --acme").WithHint("--acme you@example.com")
	case (o.Cert != "" || o.ACME != "") && listen == "" && (o.Listen == "" || o.Listen == "off"):
		return holt.Errorf(holt.InvalidArgument, "there is no TCP address to serve TLS on").WithHint("give --listen ADDRESS or --preview-listen ADDRESS, as 0.0.0.0:443")
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
		return p, holt.Errorf(holt.InvalidArgument, "--trusted-proxy %q is neither an address nor a network", holt.Clip(s, 64)).WithHint("as 10.0.0.2 or 10.0.0.0/8")
	}
	return p, nil
}

// absolute makes the paths in them those of this directory, for a daemon that is started in another.
func (o *PreviewOptions) absolute() (err error) {
	for _, file := range []*string{&o.Cert, &o.Key, &o.ACMERoot} {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil {
			return here(err, ".")
		}
	}
	return nil
}

// args are the flags that make them.
func (o PreviewOptions) args() (args []string) {
	for _, flag := range [][2]string{
		{"--preview-listen", o.Listen}, {"--preview-domain", o.Domain}, {"--tls-cert", o.Cert}, {"--tls-key", o.Key},
		{"--acme", o.ACME}, {"--acme-ca", o.ACMECA}, {"--acme-root", o.ACMERoot},
	} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	for _, p := range o.Proxies {
		args = append(args, "--trusted-proxy", p)
	}
	return args
}
