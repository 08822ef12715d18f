package doctor

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"

	"holt"
)

// names checks whether the host's resolver resolves names below localhost, such as those of previews. Browsers and curl
// resolve them without it.
func (h host) names(ctx context.Context, _ Options) holt.Finding {
	getent, err := h.look("getent")
	if err != nil {
		return ok("not checked: getent is not installed")
	}
	out, _ := exec.CommandContext(ctx, getent, "ahosts", "3000-holt.localhost").Output() // fails if the name does not resolve
	first, _, _ := strings.Cut(string(out), " ")
	at, err := netip.ParseAddr(first)
	switch {
	case err != nil:
		return warn("only browsers and curl resolve names below localhost",
			"run apt-get install libnss-myhostname so that all programs resolve them, or give other programs the second address that holt computer preview prints")
	case !at.IsLoopback():
		return warn("names below localhost resolve to "+at.String()+", not to this machine", "check the hosts line of /etc/nsswitch.conf and the configuration of the resolver")
	}
	return ok("all programs resolve names below localhost")
}
