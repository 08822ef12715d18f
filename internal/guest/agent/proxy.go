package agent

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"holt"
)

// Proxy is what programs are told of the proxy of their machine's network.
type Proxy struct {
	// Certificate of the CA by which it speaks as the hosts that it has secrets for, in PEM; "": it has
	// none. What runs goes on to trust it.
	Certificate string `json:"certificate,omitempty"`
	// Refuses: the network's policy refuses most of the internet. The proxy says so in words, at once, where a
	// name that does not exist is asked for again and again. Programs are told of it, unless the machine has a proxy
	// of its own in /etc/environment.
	Refuses bool `json:"refuses,omitempty"`
	// Direct are names and networks that programs reach without it, divided by commas, beside the machine itself.
	Direct string `json:"direct,omitempty"`
}

// Files of a machine whose programs are told of the proxy. What is in /run goes with the machine's memory, and is
// told anew in each session; the profile has login shells take it after /etc/environment.
const (
	proxyEnvironment = "run/holt/environment" // what /etc/environment has, for runs, terminals and services
	proxyCertificate = "run/holt/ca.pem"
	proxyBundle      = "run/holt/ca-bundle.pem" // what the machine trusts, and that
	systemBundle     = "etc/ssl/certs/ca-certificates.crt"
	proxyProfile     = "etc/profile.d/zz-holt-proxy.sh"

	profileText = `# Made by holt: what sessions are told of the proxy of the computer's network.
if [ -r /run/holt/environment ]; then
	set -a
	. /run/holt/environment
	set +a
fi
`
	proxyAddress = "http://proxy.holt.internal:3128"
	// notProxied are the machine's own addresses, also one by one for clients that know no networks; that of its link is
	// the same in all. The proxy answers for holt.internal itself.
	notProxied     = "localhost,127.0.0.1,127.0.1.1,127.0.0.0/8,::1,0.0.0.0,10.0.2.15"
	maxCertificate = 16 << 10 // bytes
	maxBundle      = 16 << 20
)

// proxyLines are the variables that programs find the proxy by, and its CA if it has one: curl and most others; Node;
// Python; Git; Go, Ruby and all that asks OpenSSL; Cargo; Deno; the tools of AWS.
func proxyLines(ca bool, direct string) string {
	if direct != "" {
		direct = "," + direct
	}
	var b strings.Builder
	for _, name := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		b.WriteString(name + "=" + proxyAddress + "\n")
	}
	for _, name := range []string{"no_proxy", "NO_PROXY"} {
		b.WriteString(name + "=" + notProxied + direct + "\n")
	}
	b.WriteString("NODE_USE_ENV_PROXY=1\n")
	if !ca {
		return b.String()
	}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE"} {
		b.WriteString(name + "=/" + proxyBundle + "\n")
	}
	return b.String()
}

// directRE is text that means itself to a shell, too.
var directRE = regexp.MustCompile(`^[A-Za-z0-9./,-]{0,256}$`)

func checkProxy(p *Proxy) error {
	switch {
	case p == nil:
		return nil
	case !directRE.MatchString(p.Direct):
		return holt.Errorf(holt.InvalidArgument, "%q is no list of what is reached without a proxy", clip(p.Direct))
	case p.Certificate == "":
		return nil
	}
	block, rest := pem.Decode([]byte(p.Certificate))
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 || len(p.Certificate) > maxCertificate {
		return holt.Errorf(holt.InvalidArgument, "that is no certificate of a CA")
	}
	return nil
}

// setProxy tells programs that begin from now on of the proxy; nil: all stays as it is. The lines come last: who
// reads them finds the certificates.
func setProxy(root string, p *Proxy) error {
	if p == nil {
		return nil
	}
	at := func(name string) string { return filepath.Join(root, name) }
	ca := p.Certificate != ""
	if !ca && (!p.Refuses || proxied(root)) { // the certificates stay: what runs has their names
		if err := os.Remove(at(proxyEnvironment)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("end telling of the proxy: %w", err)
		}
		return nil
	}
	err := os.MkdirAll(filepath.Dir(at(proxyEnvironment)), 0o755)
	if err == nil && ca {
		err = replaceFile(at(proxyCertificate), p.Certificate)
	}
	if err == nil && ca {
		err = bundle(root, true)
	}
	if err == nil {
		err = replaceFile(at(proxyEnvironment), proxyLines(ca, p.Direct))
	}
	if err == nil {
		err = replaceFile(at(proxyProfile), profileText)
	}
	if err != nil {
		return fmt.Errorf("tell of the proxy: %w", err)
	}
	return nil
}

// proxied tells whether a machine has a proxy of its own: the host's, or its recipe's.
func proxied(root string) bool {
	vars := map[string]string{}
	readVariables(vars, filepath.Join(root, "etc/environment"))
	for name, value := range vars {
		if name = strings.ToLower(name); value != "" && (name == "http_proxy" || name == "https_proxy") {
			return true
		}
	}
	return false
}

var bundling sync.Mutex

// bundle puts together what the machine trusts and its proxy's CA: always, or if the former has changed since.
func bundle(root string, always bool) error {
	bundling.Lock()
	defer bundling.Unlock()
	path, system := filepath.Join(root, proxyBundle), filepath.Join(root, systemBundle)
	if !always {
		was, err := os.Stat(path)
		is, missing := os.Stat(system)
		if err != nil || missing != nil || !is.ModTime().After(was.ModTime()) {
			return nil
		}
	}
	ca, err := os.ReadFile(filepath.Join(root, proxyCertificate))
	if err != nil {
		return err
	}
	trusted := ""
	if st, err := os.Stat(system); err == nil && st.Mode().IsRegular() && st.Size() <= maxBundle {
		b, err := os.ReadFile(system)
		if err != nil {
			return err
		}
		trusted = strings.TrimRight(string(b), "\n") + "\n"
	}
	return replaceFile(path, trusted+string(ca))
}
