package doctor

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"

	"holt"
)

// names looks whether the host's resolver knows names below localhost, as those of previews are: browsers and curl resolve
// them themselves, other programs ask.
func (h host) names(ctx context.Context, _ Options) holt.Finding {
	getent, err := h.look("getent")
	if err != nil {
		return ok("not looked for: there is no getent")
	}
	out, _ := exec.CommandContext(ctx, getent, "ahosts", "3000-holt.localhost").Output() // fails if there is no such name
	first, _, _ := strings.Cut(string(out), " ")
	at, err := netip.ParseAddr(first)
	switch {
	case err != nil:
		return warn("names below localhost are known to browsers and curl only",
			"programs use the second address that holt computer preview prints; or apt-get install libnss-myhostname, after which all programs know these names")
	case !at.IsLoopback():
		return warn("names below localhost lead to "+at.String()+", not to this machine", "see who resolves them: the hosts line of /etc/nsswitch.conf, and the resolver's configuration")
	}
	return ok("names below localhost are known to all programs")
}
