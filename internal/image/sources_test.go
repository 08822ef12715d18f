package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// etcApt writes apt's source files into a directory.
func etcApt(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const deb822 = `Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security/
Suites:
 bookworm-security
Components: main

Types: deb
URIs: https://third.example/node_20.x
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/third.gpg

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
`

func TestHostSources(t *testing.T) {
	plain := []source{{URI: "http://mirror.example/debian", Suites: []string{"bookworm", "bookworm-updates"}},
		{URI: "http://mirror.example/debian-security", Suites: []string{"bookworm-security"}}}
	for _, c := range []struct {
		name    string
		release string
		files   map[string]string
		want    []source
	}{
		{"deb822", "bookworm", map[string]string{"sources.list.d/debian.sources": deb822}, plain},
		{"one line", "bookworm", map[string]string{"sources.list": `# comment
deb http://mirror.example/debian bookworm main non-free # trailing
deb http://mirror.example/debian bookworm-updates main
deb-src http://mirror.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian-security/ bookworm-security main
deb [signed-by=/etc/apt/keyrings/docker.gpg] https://docker.example/linux/debian bookworm main
deb [arch=amd64 http://broken.example/debian bookworm main
deb http://short.example/debian
deb cdrom:[Debian]/ bookworm main
`}, plain},
		{"a newer host", "trixie", map[string]string{"sources.list": `deb http://mirror.example/debian trixie main
deb http://mirror.example/debian trixie-updates main
deb http://mirror.example/debian-security trixie-security main
deb http://mirror.example/debian trixie-backports main`}, plain},
		{"a list of mirrors", "bookworm", map[string]string{
			"mirrors":      "# ours\nhttp://mirror.example/debian priority:1\nhttp://other.example/debian\n",
			"sources.list": "deb mirror+file:DIR/mirrors bookworm main\n",
		}, []source{{URI: "http://mirror.example/debian", Suites: []string{"bookworm"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := etcApt(t, c.files)
			if strings.Contains(dir, "debian") {
				t.Fatal("the test's path has a part that starts with debian")
			}
			got, err := hostSources(dir, c.release)
			if c.name == "a list of mirrors" && err != nil {
				// The list's own path must look like Debian's too, or its first mirror must.
				t.Fatal(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNoSources(t *testing.T) {
	_, err := hostSources(etcApt(t, map[string]string{"sources.list": "deb http://x.example/ubuntu noble main\n"}), "noble")
	if holt.CodeOf(err) != holt.Unsupported || holt.AsError(err).Hint == "" {
		t.Errorf("got %v", err)
	}
}

func TestSourcesForGuest(t *testing.T) {
	got := forGuest([]source{{URI: "http://me:secret@mirror.example/debian", Suites: []string{suite}}, {URI: "file:/srv/debian", Suites: []string{suite}}})
	if diff := cmp.Diff([]source{{URI: "http://mirror.example/debian", Suites: []string{suite}}}, got); diff != "" {
		t.Error(diff)
	}
	if entries := parseDeb822(formatSources(got)); len(entries) != 1 || entries[0].uris[0] != got[0].URI {
		t.Errorf("formatted and read again: %+v", entries)
	}
}

func TestRelease(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := release(os.DirFS(dir)); got != "" {
		t.Errorf("no file: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/os-release"), []byte("ID=debian\nVERSION_CODENAME=\"bookworm\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := release(os.DirFS(dir)); got != "bookworm" {
		t.Errorf("got %q", got)
	}
}

func TestAcquireLines(t *testing.T) {
	got := acquireLines([]byte(`APT "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::Check-Valid-Until "false";
Acquire::Languages "de";
DPkg::Post-Invoke:: "rm -rf /";
Acquire::Retries "3"
`))
	want := []string{`Acquire::http "";`, `Acquire::http::Proxy "http://proxy.example:3128";`, `Acquire::Check-Valid-Until "false";`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzSources(f *testing.F) {
	f.Add([]byte(deb822))
	f.Add([]byte("deb [signed-by=x http://y/debian bookworm main\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, e := range append(parseDeb822(data), parseOneLine(data)...) {
			if s, ok := e.debian("bookworm"); ok && (strings.ContainsAny(s.URI, "\n\x00") || len(s.Suites) == 0) {
				t.Errorf("source %+v", s)
			}
		}
	})
}
