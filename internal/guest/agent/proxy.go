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

// Proxy configures programs for the proxy of their machine's network.
type Proxy struct {
	// Certificate of the CA that signs for hosts with secrets, in PEM; "": there is
	// none, but running programs keep trusting an earlier one.
	Certificate string `json:"certificate,omitempty"`
	// Refuses: the network's policy refuses most of the internet. The proxy then
	// returns a clear error at once, where a failed name resolution would be
	// retried again and again. So programs use it, unless the machine has a proxy
	// of its own in /etc/environment.
	Refuses bool `json:"refuses,omitempty"`
	// Direct is a comma-separated list of names and networks that programs reach
	// without the proxy, in addition to the machine itself.
	Direct string `json:"direct,omitempty"`
}

// Files with the configuration of the proxy. Files in /run belong to the
// machine's memory and are written in each session; login shells read the
// profile after /etc/environment.
const (
	proxyEnvironment = "run/holt/environment" // format of /etc/environment; for runs, terminals and services
	proxyCertificate = "run/holt/ca.pem"
	proxyBundle      = "run/holt/ca-bundle.pem" // the machine's CAs and that of the proxy
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
	// notProxied are the machine's own addresses, also listed one by one for
	// clients that do not support networks; the address of its link is the same in
	// all machines. The proxy serves holt.internal itself.
	notProxied     = "localhost,127.0.0.1,127.0.1.1,127.0.0.0/8,::1,0.0.0.0,10.0.2.15"
	maxCertificate = 16 << 10 // bytes
	maxBundle      = 16 << 20
)

// proxyLines returns the variables for the proxy and, if it has one, its CA:
// for curl and most others; Node; Python; Git; Go, Ruby and users of OpenSSL;
// Cargo; Deno; the AWS tools.
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

// directRE matches text without special meaning in a shell.
var directRE = regexp.MustCompile(`^[A-Za-z0-9./,-]{0,256}$`)

func checkProxy(p *Proxy) error {
	switch {
	case p == nil:
		return nil
	case !directRE.MatchString(p.Direct):
		return holt.Errorf(holt.InvalidArgument, "invalid list of hosts to reach without a proxy: %q", clip(p.Direct))
	case p.Certificate == "":
		return nil
	}
	block, rest := pem.Decode([]byte(p.Certificate))
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 || len(p.Certificate) > maxCertificate {
		return holt.Errorf(holt.InvalidArgument, "invalid CA certificate of the proxy")
	}
	return nil
}

// setProxy configures the proxy for programs started from now on; nil changes
// nothing. The lines are written last, after the certificates that they refer
// to.
func setProxy(root string, p *Proxy) error {
	if p == nil {
		return nil
	}
	at := func(name string) string { return filepath.Join(root, name) }
	ca := p.Certificate != ""
	if !ca && (!p.Refuses || proxied(root)) { // keep the certificates: running programs refer to them
		if err := os.Remove(at(proxyEnvironment)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove proxy settings: %w", err)
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
		return fmt.Errorf("write proxy settings: %w", err)
	}
	return nil
}

// proxied reports whether a machine has a proxy of its own, from the host or its recipe.
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

// bundle writes the machine's CAs and its proxy's CA to one file: always, or if
// the former have changed.
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
