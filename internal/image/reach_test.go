package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPackageHosts: the servers of packages come from the host's configuration, each with its
// port.
func TestPackageHosts(t *testing.T) {
	root, env := t.TempDir(), map[string]string{}
	hosts := func() []PackageHost {
		return packageHosts(root, filepath.Join(root, "home"), func(n string) string { return env[n] })
	}
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/os-release", "VERSION_CODENAME=bookworm\n")
	write("etc/apt/sources.list", "deb http://mirror.example:8081/debian bookworm main\ndeb https://other.example/ubuntu noble main\n")
	want := []PackageHost{{"mirror.example", 8081}, {"registry.npmjs.org", 443}, {"pypi.org", 443}, {"files.pythonhosted.org", 443}}
	if diff := cmp.Diff(want, hosts()); diff != "" {
		t.Error(diff)
	}
	write("home/.npmrc", "cafile=/x\nregistry = \"http://npm.example:4873/\"\n")
	env["PIP_INDEX_URL"] = "https://pip.example/simple"
	env["https_proxy"], env["http_proxy"] = "http://10.1.2.3:3128", "http://127.0.0.1:3128"
	want = []PackageHost{{"mirror.example", 8081}, {"10.1.2.3", 3128}, {"npm.example", 4873}, {"pip.example", 443}}
	if diff := cmp.Diff(want, hosts()); diff != "" {
		t.Error(diff)
	}
	write("home/.npmrc", "registry=:::\n")
	if got := hosts(); len(got) != 3 {
		t.Error("an invalid proxy is returned:", got)
	}
}
