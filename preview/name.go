package preview

import (
	"net"
	"slices"
	"strings"

	"holt"
)

// plainHosts are names as [hostName] returns those of requests.
func plainHosts(hosts []string) (plain []string) {
	for _, h := range hosts {
		plain = append(plain, strings.TrimSuffix(strings.ToLower(h), "."))
	}
	return plain
}

// ofAPI says that a host is one by which the API is reached, whatever else has it: who could take such a name would
// get the tokens that are sent to it.
func (s *Store) ofAPI(host string) bool {
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.Contains(s.cfg.Hosts, host)
}

// ofPreviews says that a name is the domain of all previews, or below that.
func (s *Store) ofPreviews(name string) bool {
	return name == s.cfg.Place.Domain || strings.HasSuffix(name, "."+s.cfg.Place.Domain)
}

// free refuses names that no computer can have for a domain: whoever runs the daemon has them, and a page there would
// be taken for theirs.
func (s *Store) free(name string) error {
	const hint = "a domain is a name of your own, as app.example.com"
	switch {
	case s.ofAPI(name):
		return holt.Errorf(holt.InvalidArgument, "%s is a name of the API", name).WithHint(hint)
	case s.ofPreviews(name):
		return holt.Errorf(holt.InvalidArgument, "%s is below the domain of all previews", name).WithHint("holt computer preview shows a port there; " + hint)
	}
	return nil
}
