package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
)

const aCertificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

// TestProxy: programs get the proxy settings and CA until they are removed; an
// earlier CA stays trusted.
func TestProxy(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	read := func(name string) string {
		b, _ := os.ReadFile(at(name))
		return string(b)
	}
	for _, dir := range []string{systemBundle, proxyProfile} {
		if err := os.MkdirAll(filepath.Dir(at(dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := setProxy(root, nil); err != nil {
		t.Error(err)
	}
	if err := setProxy(root, &Proxy{}); err != nil || read(proxyEnvironment) != "" {
		t.Errorf("told of no proxy: %v", err)
	}
	if err := setProxy(root, &Proxy{Certificate: aCertificate}); err != nil || read(proxyBundle) != aCertificate {
		t.Errorf("in a machine that trusts nobody: %v", err)
	}
	if err := os.WriteFile(at(systemBundle), []byte("others"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(at(systemBundle), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := bundle(root, false); err != nil || read(proxyBundle) != "others\n"+aCertificate {
		t.Errorf("what is trusted since is not: %v %q", err, read(proxyBundle))
	}
	vars := map[string]string{}
	readVariables(vars, at(proxyEnvironment))
	if vars["HTTPS_PROXY"] != proxyAddress || vars["NODE_EXTRA_CA_CERTS"] != "/"+proxyBundle || !strings.Contains(vars["no_proxy"], "localhost") {
		t.Errorf("told %v", vars)
	}
	if err := setProxy(root, &Proxy{}); err != nil || read(proxyEnvironment) != "" || read(proxyBundle) == "" || read(proxyProfile) == "" {
		t.Errorf("when there is none any more: %v", err)
	}
	for _, bad := range []string{"x", aCertificate + aCertificate, strings.ReplaceAll(aCertificate, "CERTIFICATE", "PRIVATE KEY"), aCertificate + strings.Repeat("\n", maxCertificate)} {
		if err := checkIdentity(Identity{Proxy: &Proxy{Certificate: bad}}); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%.30q: %v", bad, err)
		}
	}
	if err := checkIdentity(Identity{Proxy: &Proxy{Certificate: aCertificate}}); err != nil {
		t.Error(err)
	}
}

// TestProxyRefuses: in a machine whose network refuses most destinations,
// programs get the proxy but no CA; in a machine with a proxy of its own they
// get nothing.
func TestProxyRefuses(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	if err := os.MkdirAll(filepath.Dir(at(proxyProfile)), 0o755); err != nil {
		t.Fatal(err)
	}
	told := func() map[string]string {
		vars := map[string]string{}
		readVariables(vars, at(proxyEnvironment))
		return vars
	}
	if err := setProxy(root, &Proxy{Refuses: true}); err != nil {
		t.Fatal(err)
	}
	if vars := told(); vars["https_proxy"] != proxyAddress || vars["SSL_CERT_FILE"] != "" || vars["NO_PROXY"] != notProxied {
		t.Errorf("told %v", vars)
	}
	for _, own := range []string{"localhost", "127.0.0.0/8", "127.0.1.1", "0.0.0.0", "10.0.2.15"} {
		if !slices.Contains(strings.Split(notProxied, ","), own) {
			t.Errorf("%s of the machine is asked for by the proxy", own)
		}
	}
	for _, name := range []string{"curie", "bohr"} { // as a fork
		if err := setProxy(root, &Proxy{Refuses: true, Direct: name + ",172.16.0.0/12"}); err != nil || told()["no_proxy"] != notProxied+","+name+",172.16.0.0/12" {
			t.Errorf("%s: %v, told %v", name, err, told())
		}
	}
	for _, bad := range []string{"a b", "a\nX=1", "$(reboot)", strings.Repeat("a", 257)} {
		if err := checkIdentity(Identity{Proxy: &Proxy{Refuses: true, Direct: bad}}); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%.30q: %v", bad, err)
		}
	}
	if err := setProxy(root, &Proxy{Certificate: aCertificate, Refuses: true}); err != nil || told()["SSL_CERT_FILE"] == "" {
		t.Errorf("with a secret: %v, told %v", err, told())
	}
	if err := os.WriteFile(at("etc/environment"), []byte("http_proxy=http://10.1.1.1:3128\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := setProxy(root, &Proxy{Refuses: true}); err != nil || len(told()) > 0 {
		t.Errorf("with a proxy of its own: %v, told %v", err, told())
	}
}
