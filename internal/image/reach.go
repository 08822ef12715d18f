package image

import (
	"bufio"
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PackageHost is a server of packages.
type PackageHost struct {
	Host string // name or address
	Port uint16
}

// PackageHosts returns the servers of packages in this host's configuration: Debian's sources, the proxies in guests'
// environment, and the registries of npm and pip. Guests must be able to reach them; they may be in the host's
// local network.
func PackageHosts() []PackageHost {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return packageHosts("/", home, os.Getenv)
}

// packageHosts is PackageHosts for a root directory and a home.
func packageHosts(root, home string, getenv func(string) string) (out []PackageHost) {
	add := func(uri string) {
		if p, ok := packageHost(uri); ok && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	sources, _ := hostSources(filepath.Join(root, "etc/apt"), release(os.DirFS(root))) // without sources no image can be built anyway
	for _, s := range forGuest(sources) {
		add(s.URI)
	}
	env, _ := guestEnv(nil, getenv)
	for _, line := range env {
		switch name, value, _ := strings.Cut(line, "="); strings.ToLower(name) {
		case "http_proxy", "https_proxy":
			add(value)
		}
	}
	for _, r := range registries(root, home, getenv) {
		add(r)
	}
	return out
}

// registries returns the registries of npm and pip.
func registries(root, home string, getenv func(string) string) []string {
	npm, pip := "https://registry.npmjs.org", "https://pypi.org/simple"
	for _, name := range []string{filepath.Join(root, "etc/npmrc"), filepath.Join(root, "usr/etc/npmrc"), filepath.Join(home, ".npmrc")} {
		npm = setting(name, "registry", npm)
	}
	for _, name := range []string{filepath.Join(root, "etc/pip.conf"), filepath.Join(home, ".pip/pip.conf"), filepath.Join(home, ".config/pip/pip.conf")} {
		pip = setting(name, "index-url", pip)
	}
	for _, name := range []string{"npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		if v := getenv(name); v != "" {
			npm = v
		}
	}
	if v := getenv("PIP_INDEX_URL"); v != "" {
		pip = v
	}
	all := []string{npm, pip}
	if strings.HasPrefix(pip, "https://pypi.org/") { // PyPI has its files on another host
		all = append(all, "https://files.pythonhosted.org")
	}
	return all
}

// setting returns the value in the last line "key = value" of a file, or before.
func setting(name, key, before string) string {
	data, err := readBounded(name, maxSourcesBytes)
	if err != nil {
		return before
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), "="); ok && strings.TrimSpace(k) == key {
			before = strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return before
}

// packageHost returns the host and port of a URI.
func packageHost(uri string) (PackageHost, bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" {
		return PackageHost{}, false
	}
	port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return PackageHost{}, false
		}
		port = uint16(n)
	}
	return PackageHost{Host: u.Hostname(), Port: port}, port != 0
}
