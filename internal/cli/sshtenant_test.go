package cli

import (
	"strings"
	"testing"

	"holt"
)

// TestProxyCommandNamesTheDaemon: ssh reaches the daemon that was called, wherever its socket is and whatever is called later.
func TestProxyCommandNamesTheDaemon(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, value, want string }{
		{holt.EnvDataDir, dir, " --data-dir " + dir + " computer"},
		{holt.EnvSocket, dir + "/holt.sock", "env HOLT_CONTEXT= HOLT_SERVER=unix:" + dir + "/holt.sock "},
		{holt.EnvSocket, "/run/o t.sock", "env HOLT_CONTEXT= 'HOLT_SERVER=unix:/run/o t.sock' "},
		{holt.EnvServer, "unix:/run/other.sock", "env HOLT_CONTEXT= HOLT_SERVER=unix:/run/other.sock "},
		{holt.EnvServer, "https://holt.example", "env HOLT_CONTEXT= HOLT_SERVER=https://holt.example "},
	} {
		a := &app{getenv: func(name string) string { return map[string]string{c.name: c.value, "HOME": dir}[name] }}
		got, err := a.proxyCommand("einstein")
		if err != nil || !strings.Contains(got, c.want) || !strings.HasSuffix(got, " computer ssh-proxy einstein") {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}

// TestProxyCommandNamesTheTenant: ssh reaches the computers of the tenant that somebody called for, later too.
func TestProxyCommandNamesTheTenant(t *testing.T) {
	for _, c := range []struct{ flag, env, want string }{
		{"", "", " computer ssh-proxy einstein"}, {"team-a", "", " --tenant team-a computer ssh-proxy einstein"}, {"", "team-b", " --tenant team-b computer ssh-proxy einstein"}, {"team-a", "team-b", " --tenant team-a computer ssh-proxy einstein"},
	} {
		a := &app{dataDir: t.TempDir(), tenant: c.flag, getenv: func(name string) string { return map[string]string{holt.EnvTenant: c.env}[name] }}
		got, err := a.proxyCommand("einstein")
		if err != nil || !strings.HasSuffix(got, c.want) || c.want[1] == 'c' && strings.Contains(got, "--tenant") {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}
