package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holt"
)

// parsed are the settings of a daemon whose command line and configuration file are these.
func parsed(t *testing.T, conf string, args ...string) (*settings, ServeOptions, error) {
	t.Helper()
	at := Place{DataDir: t.TempDir()}
	if conf != "" {
		if err := os.WriteFile(filepath.Join(at.DataDir, settingsFile), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := &cobra.Command{}
	s := (&app{getenv: func(string) string { return "" }}).settings(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return s, s.ServeOptions, flagError(cmd, err)
	}
	opt, err := s.options(at)
	return s, opt, err
}

// A cache of nothing is no cache, and not the default one.
func TestArchiveCache(t *testing.T) {
	for said, want := range map[string]int64{"0": -1, "none": -1, "0G": -1, "3M": 3 << 20, "10G": 10 << 30} {
		if _, opt, err := parsed(t, "", "--archive-cache", said); err != nil || opt.ArchiveCache != want {
			t.Errorf("--archive-cache %s is %d (%v), want %d", said, opt.ArchiveCache, err, want)
		}
	}
}

// TestSettings: flags override the file, and a daemon that is started with args reads the same.
func TestSettings(t *testing.T) {
	const conf = `
# a comment
engine = local
listen = localhost:1
host = a.example
host = b.example,c.example
tls-cert = cert.pem
tls-key = /key.pem
keep-days = 7
memory-overcommit = 1.5
insecure-listen = true
`
	s, opt, err := parsed(t, conf, "--listen", "localhost:2", "--acme-root", "x.pem", "--acme-ca", "https://ca", "--keep-days=8")
	if holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "--acme") { // the check sees both
		t.Fatal(err)
	}
	if opt.Listen != "localhost:2" || opt.Engine != "local" || !slices.Equal(opt.Hosts, []string{"a.example", "b.example", "c.example"}) || opt.KeepDays != 8 || opt.Overcommit != 1.5 || !opt.Insecure {
		t.Errorf("%+v", opt)
	}
	if opt.Previews.Cert != filepath.Join(opt.DataDir, "cert.pem") || opt.Previews.Key != "/key.pem" {
		t.Errorf("%+v", opt.Previews)
	}
	dir, _ := os.Getwd()
	if got, want := s.args(), []string{"--acme-ca=https://ca", "--acme-root=" + dir + "/x.pem", "--keep-days=8", "--listen=localhost:2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, _, err := parsed(t, "", "--config", "nowhere"); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("no file: %v", err)
	}
}

// TestBadSettings: the error names the flag, or the line of the file.
func TestBadSettings(t *testing.T) {
	for line, want := range map[string]string{
		"engine = qmu":               `engine: invalid value "qmu"`,
		"keep-checkpoints = 1":       `keep-checkpoints: invalid value "1"`,
		"keep-days = 1.5":            `keep-days: invalid value "1.5"`,
		"renew-after = 5":            `renew-after: invalid value "5"`,
		"archive-cache = lots":       `archive-cache: "lots" is not a size`,
		"trusted-proxy = box":        `trusted-proxy: "box" is neither an IP address nor a network`,
		"metrics-listen = 0.0.0.0:1": `metrics-listen: "0.0.0.0:1" is not a loopback address`,
		"log-level = loud":           `log-level: invalid value "loud"`,
		"insecure-listen = perhaps":  `insecure-listen: invalid value "perhaps"`,
	} {
		_, _, err := parsed(t, "# first\n"+line)
		if err == nil || !strings.Contains(err.Error(), settingsFile+":2: "+want) || holt.AsError(err).Hint == "" {
			t.Errorf("%s: %v", line, err)
		}
		name, value, _ := strings.Cut(line, " = ")
		if _, _, err := parsed(t, "", "--"+name+"="+value); err == nil || !strings.Contains(err.Error(), "--"+want) {
			t.Errorf("--%s=%s: %v", name, value, err)
		}
	}
	for conf, want := range map[string]string{
		"lisen = x":               `:1: unknown setting "lisen"`,
		"log = x":                 `:1: unknown setting "log"`,
		"listen":                  `:1: "listen" is not a setting`,
		"listen = a:1\nlisten = ": ":2: listen is already set on line 1",
	} {
		if _, _, err := parsed(t, conf); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", conf, err)
		}
	}
}
