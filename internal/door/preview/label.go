package preview

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"holt"
)

// Place is the address of previews. Scheme and Port "" are those of the listener.
type Place struct {
	Scheme string // http or https
	Domain string // lower case
	Port   string
	Off    bool // no previews: every name is the API's
}

// ParsePlace parses [SCHEME://]DOMAIN[:PORT]. Scheme and port are needed if they differ from the listener's.
func ParsePlace(s string) (Place, error) {
	var p Place
	rest := strings.ToLower(s)
	if scheme, after, found := strings.Cut(rest, "://"); found {
		p.Scheme, rest = scheme, after
	}
	if host, port, found := strings.Cut(rest, ":"); found {
		p.Port, rest = port, host
	}
	p.Domain = strings.TrimSuffix(rest, ".")
	_, wrong := holt.ParseDomain("x." + p.Domain)
	if wrong == nil && p.Port != "" {
		_, wrong = holt.ParsePort(p.Port)
	}
	if wrong != nil || p.Scheme != "" && p.Scheme != "http" && p.Scheme != "https" || net.ParseIP(p.Domain) != nil {
		return Place{}, holt.Errorf(holt.InvalidArgument, "invalid domain of previews %q", holt.Clip(s, 256)).
			WithHint("give a domain with a wildcard record for this host, such as box.example.com; or https://box.example.com if a proxy terminates TLS")
	}
	return p, nil
}

// url returns the URL of a host.
func (p Place) url(host string) string {
	if p.Port != "" && !(p.Scheme == "http" && p.Port == "80") && !(p.Scheme == "https" && p.Port == "443") {
		host += ":" + p.Port
	}
	return p.Scheme + "://" + host + "/"
}

const (
	mostLabel  = 63 // bytes of a DNS label
	mostHost   = 253
	idLabel    = "cmp-" // replaces the prefix cmp_ of an id, since host names have no underscores
	tenantMark = "--"
)

// Host is the parsed host name of a preview. Exactly one of ID and Name is set.
type Host struct {
	Port   int
	ID     holt.ComputerID
	Name   string
	Tenant string // of the computer Name
}

// hostName returns the host of a request in lower case, without port and trailing dot; "" if it is invalid.
func hostName(r *http.Request) string {
	host := r.Host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := holt.ParsePort(port); err != nil {
			return ""
		}
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if len(host) > mostHost {
		return ""
	}
	return host
}

// ParseHost parses the name of a preview below a domain: PORT-COMPUTER, PORT-COMPUTER--TENANT, or PORT-cmp-ID. A
// computer whose name would be ambiguous has only the last form, see [Label].
func ParseHost(host, domain string) (Host, bool) {
	label, below := strings.CutSuffix(host, "."+domain)
	number, rest, dashed := strings.Cut(label, "-")
	if !below || !dashed || len(label) > mostLabel || strings.HasPrefix(number, "0") {
		return Host{}, false
	}
	port, err := holt.ParsePort(number)
	if err != nil {
		return Host{}, false
	}
	if id, ok := parseID(rest); ok {
		return Host{Port: port, ID: id}, true
	}
	name, tenant, tenanted := strings.Cut(rest, tenantMark)
	if !tenanted {
		tenant = holt.DefaultTenant
	}
	_, badName := holt.ParseName(name)
	_, badTenant := holt.ParseName(tenant)
	if badName != nil || badTenant != nil || strings.Contains(tenant, tenantMark) {
		return Host{}, false
	}
	return Host{Port: port, Name: name, Tenant: tenant}, true
}

func parseID(label string) (holt.ComputerID, bool) {
	rest, ok := strings.CutPrefix(label, idLabel)
	id, err := holt.ParseComputerID("cmp_" + rest)
	return id, ok && err == nil
}

// Label returns the name of a port of a computer below the domain, which [ParseHost] parses.
func Label(c holt.Computer, port int) string {
	rest := c.Name
	if tenant := tenantOf(c); tenant != holt.DefaultTenant {
		rest += tenantMark + tenant
	}
	label := fmt.Sprintf("%d-%s", port, rest)
	if h, ok := ParseHost(label+".x", "x"); ok && h.ID == "" && h.Name == c.Name && h.Tenant == tenantOf(c) {
		return label
	}
	return strconv.Itoa(port) + "-" + idLabel + strings.TrimPrefix(string(c.ID), "cmp_")
}

func tenantOf(c holt.Computer) string {
	if c.Tenant == "" {
		return holt.DefaultTenant
	}
	return c.Tenant
}

// find returns the computer of a host. It is the only place that looks up a computer without the caller's actor, so that
// a host means the same computer for every caller. A name without a tenant is that of the default tenant.
func (s *Store) find(ctx context.Context, h Host) (holt.Computer, error) {
	ref := string(h.ID)
	if ref == "" {
		ref = h.Name
		if h.Tenant != holt.DefaultTenant {
			ctx = holt.WithActor(ctx, holt.Actor{Name: "preview", Tenant: h.Tenant})
		}
	}
	c, err := s.cfg.Computers.Get(ctx, ref)
	if err == nil && h.ID == "" && (tenantOf(c) != h.Tenant || c.Name != h.Name) {
		err = holt.Errorf(holt.NotFound, "there is no computer %q", h.Name)
	}
	return c, err
}
