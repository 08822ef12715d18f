package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPackageHosts: where guests must get packages from is what the host's own configuration says, each
// place with its port.
func TestPackageHosts(t *testing.T) {
	root, env, tools := t.TempDir(), map[string]string{}, map[string]string{}
	hosts := func() []PackageHost {
		return packageHosts(root, func(n string) string { return env[n] }, func(name string, _ ...string) string { return tools[name] })
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
	want := []PackageHost{{"mirror.example", 8081}}
	if diff := cmp.Diff(want, hosts()); diff != "" {
		t.Error("without any tools:", diff)
	}
	tools["npm"] = "https://npm.example/\n"
	tools["pip3"] = "Options:\n  -i, --index-url <url>       Base URL of the index (default\n                              https://pip.example/simple). This\n  --extra-index-url <url>     (default none)\n"
	tools["python3"] = "https://pip.example/simple files.example\n"
	want = []PackageHost{{"mirror.example", 8081}, {"npm.example", 443}, {"pip.example", 443}, {"files.example", 443}}
	if diff := cmp.Diff(want, hosts()); diff != "" {
		t.Error("with their defaults:", diff)
	}
	tools["npm"] = "http://npm.example:4873/\n"
	tools["pip3"] = "  -i, --index-url <url>  Base URL (default http://****@10.1.2.4:3141/root/main/). This\n"
	env["https_proxy"], env["http_proxy"] = "http://10.1.2.3:3128", "http://127.0.0.1:3128"
	want = []PackageHost{{"mirror.example", 8081}, {"10.1.2.3", 3128}, {"npm.example", 4873}, {"10.1.2.4", 3141}}
	if diff := cmp.Diff(want, hosts()); diff != "" {
		t.Error("as they are told:", diff)
	}
	tools["npm"], tools["pip3"] = "undefined\n", "--index-url <url> (default :::)"
	if got := hosts(); len(got) != 2 {
		t.Error("some that are none:", got)
	}
}
