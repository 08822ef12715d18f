package image

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holt"
)

// suite is the Debian release that guests run.
const suite = "bookworm"

const maxSourcesBytes = 1 << 20

// debianKeyring has the keys of Debian's releases, on the host and in the guest.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// source is one entry of apt's list of sources: one URI and its suites.
type source struct {
	URI    string
	Suites []string // of the guest's release, such as bookworm-security
}

// hostSources returns the Debian sources of the host's apt, with the suites of the
// guest's release, so that images can be built on hosts that reach only their own
// mirror. It leaves out sources that are not Debian's.
func hostSources(etcApt, hostRelease string) ([]source, error) {
	entries, err := readSources(etcApt)
	if err != nil {
		return nil, err
	}
	var out []source
	for _, e := range entries {
		if s, ok := e.debian(hostRelease); ok {
			out = appendSource(out, s)
		}
	}
	if !slices.ContainsFunc(out, func(s source) bool { return slices.Contains(s.Suites, suite) }) {
		return nil, holt.Errorf(holt.Unsupported, "this host's apt has no Debian source, which a build of %s needs", suite).
			WithHint("add one under %s with a line such as: deb MIRROR %s main", filepath.Join(etcApt, "sources.list.d"), suite)
	}
	return out, nil
}

func appendSource(list []source, s source) []source {
	for i, have := range list {
		if have.URI == s.URI {
			for _, suite := range s.Suites {
				if !slices.Contains(have.Suites, suite) {
					list[i].Suites = append(list[i].Suites, suite)
				}
			}
			return list
		}
	}
	return append(list, s)
}

// entry is an entry of a file of sources.
type entry struct {
	types, uris, suites, components []string
	signedBy                        string
	disabled                        bool
}

// debian returns the suites of Debian's main archive in e, for the guest's release. A
// source is Debian's if it is not signed by another key, has the host's release as suite
// and main as component.
func (e entry) debian(hostRelease string) (source, bool) {
	if e.disabled || !slices.Contains(e.types, "deb") || !slices.Contains(e.components, "main") {
		return source{}, false
	}
	if e.signedBy != "" && !strings.Contains(e.signedBy, "debian-archive") {
		return source{}, false
	}
	uri, ok := debianURI(e.uris)
	if !ok {
		return source{}, false
	}
	s := source{URI: uri}
	for _, name := range e.suites {
		release, pocket, _ := strings.Cut(name, "-")
		if release != hostRelease && release != suite && release != "stable" {
			continue
		}
		switch pocket {
		case "":
			s.Suites = append(s.Suites, suite)
		case "updates", "security":
			s.Suites = append(s.Suites, suite+"-"+pocket)
		}
	}
	return s, len(s.Suites) > 0
}

// debianURI returns the first URI of a Debian archive: a part of its path starts
// with debian. For a list of mirrors in a file of the host, which Debian's cloud images
// have, it takes the first mirror.
func debianURI(uris []string) (string, bool) {
	for _, uri := range uris {
		u, err := url.Parse(uri)
		if err == nil && u.Scheme == "mirror+file" {
			uri = firstMirror(u.Path)
			u, err = url.Parse(uri)
		}
		if err != nil || !slices.Contains([]string{"http", "https", "ftp", "file"}, u.Scheme) {
			continue
		}
		for part := range strings.SplitSeq(u.Path, "/") {
			if strings.HasPrefix(part, "debian") {
				return strings.TrimSuffix(uri, "/"), true
			}
		}
	}
	return "", false
}

// firstMirror returns the first URI of a mirror list, or "".
func firstMirror(name string) string {
	data, err := readBounded(name, maxSourcesBytes)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			return f[0]
		}
	}
	return ""
}

// readSources parses the host's sources.list and sources.list.d.
func readSources(etcApt string) ([]entry, error) {
	names := []string{filepath.Join(etcApt, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		more, err := filepath.Glob(filepath.Join(etcApt, "sources.list.d", pattern))
		if err != nil {
			return nil, fmt.Errorf("list apt sources: %w", err)
		}
		names = append(names, more...)
	}
	var out []entry
	for _, name := range names {
		data, err := readBounded(name, maxSourcesBytes)
		switch {
		case os.IsNotExist(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("read apt sources: %w", err)
		case strings.HasSuffix(name, ".sources"):
			out = append(out, parseDeb822(data)...)
		default:
			out = append(out, parseOneLine(data)...)
		}
	}
	return out, nil
}

// parseOneLine parses the format "deb [option=value] uri suite component…" of
// sources.list(5). It skips lines with errors.
func parseOneLine(data []byte) []entry {
	var out []entry
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		var e entry
		if before, rest, ok := strings.Cut(line, "["); ok {
			options, after, closed := strings.Cut(rest, "]")
			if !closed {
				continue
			}
			for option := range strings.FieldsSeq(options) {
				if value, ok := strings.CutPrefix(option, "signed-by="); ok {
					e.signedBy = value
				}
			}
			line = before + after
		}
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		e.types, e.uris, e.suites, e.components = f[:1], f[1:2], f[2:3], f[3:]
		out = append(out, e)
	}
	return out
}

// parseDeb822 parses the deb822 format of sources.list(5).
func parseDeb822(data []byte) []entry {
	var out []entry
	fields := map[string]string{}
	flush := func() {
		if len(fields) > 0 {
			out = append(out, entry{
				types: strings.Fields(fields["types"]), uris: strings.Fields(fields["uris"]),
				suites: strings.Fields(fields["suites"]), components: strings.Fields(fields["components"]),
				signedBy: fields["signed-by"], disabled: slices.Contains([]string{"no", "false", "0"}, fields["enabled"]),
			})
		}
		fields = map[string]string{}
	}
	last := ""
	for line := range strings.Lines(string(data)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case trimmed == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + trimmed
		default:
			if key, value, ok := strings.Cut(trimmed, ":"); ok {
				last = strings.ToLower(key)
				fields[last] = strings.TrimSpace(value)
			}
		}
	}
	flush()
	return out
}

// formatSources writes sources as a deb822 file.
func formatSources(sources []source) []byte {
	var b bytes.Buffer
	for i, s := range sources {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n",
			s.URI, strings.Join(s.Suites, " "), debianKeyring)
	}
	return b.Bytes()
}

// forGuest returns the sources without files of the host and without passwords.
func forGuest(sources []source) []source {
	var out []source
	for _, s := range sources {
		u, err := url.Parse(s.URI)
		if err != nil || u.Scheme == "file" {
			continue
		}
		u.User = nil
		out = append(out, source{URI: u.String(), Suites: s.Suites})
	}
	return out
}

// release returns the code name of the host's Debian release, such as
// bookworm, or "".
func release(osRelease fs.FS) string {
	data, err := fs.ReadFile(osRelease, "etc/os-release")
	if err != nil {
		return ""
	}
	return codename(string(data))
}

// codename returns the code name in the text of an os-release file, or "".
func codename(osRelease string) string {
	for line := range strings.Lines(osRelease) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}
