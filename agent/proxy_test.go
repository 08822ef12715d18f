package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
)

const aCertificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

// TestProxy: programs of a machine are told of a proxy and what to trust, until they are not; what was told
// of before is trusted still.
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
	if err := setProxy(root, &Proxy{aCertificate}); err != nil || read(proxyBundle) != aCertificate {
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
		if err := checkIdentity(Identity{Proxy: &Proxy{bad}}); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%.30q: %v", bad, err)
		}
	}
	if err := checkIdentity(Identity{Proxy: &Proxy{aCertificate}}); err != nil {
		t.Error(err)
	}
}
