package preview

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

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

const (
	proofLabel  = "_holt." // before a domain, or one above it: its TXT records say which tenants have it
	proofValue  = "holt="  // before the tenant
	proofLevels = 4        // names that are asked, from the domain up
	proofWithin = 10 * time.Second
)

// owned refuses a domain that the DNS does not give to the actor's tenant: who knew that one leads here could take its
// visitors, and those cookies of its owner's that are sent to all names below another. An admin may add any.
func (s *Store) owned(ctx context.Context, c holt.Computer, name string) error {
	a, _ := holt.ActorOf(ctx)
	if a.Admin() {
		return nil
	}
	if one, known, err := s.table.domain(ctx, name); err != nil || known && one.computer == c.ID {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, proofWithin)
	defer cancel()
	want := proofValue + tenantOf(c)
	at := name
	var failed error
	for range proofLevels {
		records, err := s.cfg.TXT(ctx, proofLabel+at)
		if slices.Contains(records, want) {
			return nil
		}
		if none := new(net.DNSError); err != nil && !(errors.As(err, &none) && none.IsNotFound) {
			failed = err
		}
		if _, at, _ = strings.Cut(at, "."); !strings.Contains(at, ".") {
			break
		}
	}
	if failed != nil {
		return holt.Errorf(holt.Unavailable, "whose %s is could not be looked up: %w", name, failed).WithHint("try again, or have an admin add it")
	}
	return holt.Errorf(holt.Forbidden, "nothing says that %s is tenant %s's", name, tenantOf(c)).
		WithHint("give %s%s (or the domain above it) a TXT record %q, or have an admin add it", proofLabel, name, want)
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
