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

// plainHosts normalises names as [hostName] does.
func plainHosts(hosts []string) (plain []string) {
	for _, h := range hosts {
		plain = append(plain, strings.TrimSuffix(strings.ToLower(h), "."))
	}
	return plain
}

// ofAPI reports whether a host is a name of the API. A computer must not have such a name, since it would get the tokens
// that clients send to the API.
func (s *Store) ofAPI(host string) bool {
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || slices.Contains(s.cfg.Hosts, host)
}

// ofPreviews reports whether a name is the domain of previews or below it.
func (s *Store) ofPreviews(name string) bool {
	return name == s.cfg.Place.Domain || strings.HasSuffix(name, "."+s.cfg.Place.Domain)
}

const (
	proofLabel  = "_holt." // prefix of a domain or a parent of it, whose TXT records name its tenants
	proofValue  = "holt="  // prefix of the tenant in a record
	proofLevels = 4        // names that are tried, from the domain upwards
	proofWithin = 10 * time.Second
)

// owned returns Forbidden unless a TXT record gives the domain to the actor's tenant, or the actor is an admin. Without
// it a tenant could take over visitors and cookies of any domain that resolves to this daemon.
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
		return holt.Errorf(holt.Unavailable, "look up the owner of %s: %w", name, failed).WithHint("try again, or have an admin add the domain")
	}
	return holt.Errorf(holt.Forbidden, "no proof that the domain %s belongs to the tenant %s", name, tenantOf(c)).
		WithHint("add to %s%s (or the same below a parent domain) a TXT record %q, or have an admin add the domain", proofLabel, name, want)
}

// free returns InvalidArgument for names that belong to the daemon: a page there could pose as the daemon's.
func (s *Store) free(name string) error {
	const hint = "give a domain of your own, such as app.example.com"
	switch {
	case s.ofAPI(name):
		return holt.Errorf(holt.InvalidArgument, "%s is a name of the API", name).WithHint(hint)
	case s.ofPreviews(name):
		return holt.Errorf(holt.InvalidArgument, "%s is below the domain of previews", name).WithHint("holt computer preview makes previews there; " + hint)
	}
	return nil
}
