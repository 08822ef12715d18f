package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"holt"
)

// apt runs apt with its own lists, cache and settings below dir, so that it neither
// uses nor changes the host's state. It takes from the host only the
// sources and the settings of how to reach them.
type apt struct {
	dir     string
	sources []source // those whose lists could be fetched and verified
	acquire []string // lines of apt.conf
	log     func(line string)
}

// newApt prepares apt below dir and fetches the lists of packages.
func newApt(ctx context.Context, dir string, sources []source, log func(string)) (*apt, error) {
	a := &apt{dir: dir, log: log}
	for _, sub := range []string{"lists/partial", "cache/archives/partial", "sources.list.d", "state"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	dump, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil, fmt.Errorf("read the host's apt settings: %w", err)
	}
	a.acquire = acquireLines(dump)
	files := map[string][]byte{
		"status":                      nil,
		"apt.conf":                    a.conf(),
		"sources.list.d/holt.sources": formatSources(sources),
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	// The exit status is not 0 if any source fails. That is not an error here, as long
	// as the lists of the release arrive.
	printed, err := a.output(ctx, dir, "apt-get", "update")
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if a.sources, err = a.fetched(ctx, sources); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(a.sources, func(s source) bool { return slices.Contains(s.Suites, suite) }) {
		return nil, fetchError("fetch the lists of packages", printed)
	}
	return a, nil
}

// conf is the whole of apt's configuration: the host's parts are not read.
func (a *apt) conf() []byte {
	var b bytes.Buffer
	set := func(key, value string) { fmt.Fprintf(&b, "%s %q;\n", key, value) }
	set("Dir::State", filepath.Join(a.dir, "state"))
	set("Dir::State::Lists", filepath.Join(a.dir, "lists"))
	set("Dir::State::status", filepath.Join(a.dir, "status"))
	set("Dir::Cache", filepath.Join(a.dir, "cache"))
	set("Dir::Etc::SourceList", "/dev/null")
	set("Dir::Etc::SourceParts", filepath.Join(a.dir, "sources.list.d"))
	set("Dir::Etc::Parts", "/dev/null")
	set("Dir::Etc::Main", "/dev/null")
	set("Dir::Etc::Preferences", "/dev/null")
	set("Dir::Etc::PreferencesParts", "/dev/null")
	set("APT::Architecture", runtime.GOARCH)
	set("APT::Sandbox::User", "root") // the user _apt cannot enter dir
	set("Acquire::Languages", "none")
	for _, line := range a.acquire {
		b.WriteString(line + "\n")
	}
	return b.Bytes()
}

// acquireLines returns the lines of apt-config's dump about access to sources:
// proxies, certificates, retries, and checks of dates.
func acquireLines(dump []byte) []string {
	var out []string
	for line := range strings.Lines(string(dump)) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"Acquire::http", "Acquire::ftp", "Acquire::Retries", "Acquire::Check-", "Acquire::ForceIPv"} {
			if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, ";") {
				out = append(out, line)
			}
		}
	}
	return out
}

// run runs one of apt's programs and returns its output.
func (a *apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	out, err := a.output(ctx, dir, name, args...)
	if err == nil {
		return out, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", fetchError(name+" "+args[0], out)
}

func (a *apt) output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(buildEnv(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"))
	contain(cmd)
	runtime.LockOSThread() // Pdeathsig is sent when the thread that forked ends
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if name == "apt-get" {
		for line := range strings.Lines(string(out)) {
			a.log(strings.TrimRight(line, "\n"))
		}
	}
	return string(out), err
}

// fetchError returns an error with the messages of apt.
func fetchError(what, printed string) error {
	var said []string
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "E: ") || strings.HasPrefix(line, "W: ") || strings.HasPrefix(line, "Err:") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if strings.Contains(printed, "No space left on device") {
		return holt.Errorf(holt.OutOfSpace, "%s: the disk is full", what).
			WithHint("free space, or put images elsewhere with %s", holt.EnvImageDir)
	}
	err := holt.Errorf(holt.Unavailable, "%s: apt cannot reach its sources", what).
		WithHint("check that apt-get update works on this host")
	err.Detail = map[string]any{"printed": said[:min(len(said), 10)]}
	return err
}

// fetched returns the sources and suites whose lists were fetched. apt keeps only lists
// with a valid signature of the Debian keyring.
func (a *apt) fetched(ctx context.Context, sources []source) ([]source, error) {
	out, err := a.run(ctx, a.dir, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(FILENAME)", "Identifier: Packages")
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		if _, err := os.Stat(f[2]); err == nil {
			have[strings.TrimSuffix(f[0], "/")+" "+f[1]] = true
		}
	}
	var kept []source
	for _, s := range sources {
		for _, suite := range s.Suites {
			if have[s.URI+" "+suite] {
				kept = appendSource(kept, source{URI: s.URI, Suites: []string{suite}})
			}
		}
	}
	return kept, nil
}

// buildEnv is the environment of the programs of a build. It has only the proxies of
// this process's environment.
func buildEnv() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if v := os.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}
