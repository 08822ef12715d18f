package image

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PackageHost is a place that packages come from.
type PackageHost struct {
	Host string // name or address
	Port uint16
}

// PackageHosts returns where this host gets packages from, by its own configuration: Debian's sources, the
// proxies that guests are told of, and the registries of npm and pip, which those say themselves. What a guest
// must reach of them may be a mirror or a proxy beside the host.
func PackageHosts(ctx context.Context) []PackageHost {
	return packageHosts("/", os.Getenv, func(name string, args ...string) string { return toolSays(ctx, name, args...) })
}

// packageHosts is PackageHosts of a root, with the tools that says asks.
func packageHosts(root string, getenv func(string) string, says func(name string, args ...string) string) (out []PackageHost) {
	add := func(uri string) {
		if p, ok := packageHost(uri); ok && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	sources, _ := hostSources(filepath.Join(root, "etc/apt"), release(os.DirFS(root))) // without any no image is built
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
	for _, r := range registries(says) {
		add(r)
	}
	return out
}

// pipIndex is pip's index in its help, which has what is configured in the place of the default.
var pipIndex = regexp.MustCompile(`(?s)--index-url <url>.*?\(default\s+([^\s)]+)\)`)

// pipDefault asks pip for its own index, and where that has its files.
const pipDefault = "from pip._internal.models.index import PyPI; print(PyPI.simple_url, PyPI.file_storage_domain)"

// registries returns those of npm and pip. Who is not on this host says nothing.
func registries(says func(name string, args ...string) string) []string {
	out := []string{strings.TrimSpace(says("npm", "config", "get", "registry"))}
	index := pipIndex.FindStringSubmatch(says("pip3", "install", "--help"))
	if index == nil {
		return out
	}
	out = append(out, index[1])
	usual, files, _ := strings.Cut(strings.TrimSpace(says("python3", "-c", pipDefault)), " ")
	if files != "" && strings.TrimSuffix(index[1], "/") == strings.TrimSuffix(usual, "/") {
		out = append(out, "https://"+files)
	}
	return out
}

const (
	toolLimit = 10 * time.Second
	toolMost  = 1 << 20 // bytes of what one says
)

// toolSays returns what a program of this host prints, or "". It sees no project's configuration.
func toolSays(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "COLUMNS=1000") // pip breaks no address in two
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil || len(out) > toolMost {
		return ""
	}
	return string(out)
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
