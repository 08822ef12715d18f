package cli

import (
	"strings"
	"testing"

	"holt"
)

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
