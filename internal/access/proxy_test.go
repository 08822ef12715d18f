package access

import (
	"net/http"
	"net/netip"
	"testing"
)

// TestForwardedClient: X-Forwarded-For counts only from a trusted proxy, and only the entries that trusted proxies added.
func TestForwardedClient(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		remote    string
		forwarded []string
		client    string
		logged    string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1", "192.0.2.1:5"},
		{"192.0.2.1:5", []string{"198.51.100.7"}, "192.0.2.1", "192.0.2.1:5"},
		{"10.0.0.2:5", []string{"198.51.100.7"}, "198.51.100.7", "198.51.100.7"},
		{"[::ffff:10.0.0.2]:5", []string{"198.51.100.7"}, "198.51.100.7", "198.51.100.7"},
		{"[fd00::1]:5", []string{" 2001:db8::9 "}, "2001:db8::9", "2001:db8::9"},
		{"10.0.0.2:5", []string{"203.0.113.9, 198.51.100.7, 10.0.0.3"}, "198.51.100.7", "198.51.100.7"},
		{"10.0.0.2:5", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7", "198.51.100.7"},
		{"10.0.0.2:5", []string{"198.51.100.7, nonsense"}, "10.0.0.2", "10.0.0.2"},
		{"10.0.0.2:5", []string{""}, "10.0.0.2", "10.0.0.2"},
		{"10.0.0.2:5", nil, "10.0.0.2", "10.0.0.2"},
		{"10.0.0.2:5", []string{"10.1.1.1, 10.0.0.3"}, "10.1.1.1", "10.1.1.1"},
		{"@", []string{"198.51.100.7"}, "invalid IP", "@"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if client, logged := proxies.Client(r).String(), proxies.Remote(r); client != c.client || logged != c.logged {
			t.Errorf("%s, %q: %s, logged %s; want %s, %s", c.remote, c.forwarded, client, logged, c.client, c.logged)
		}
		if client := (Proxies)(nil).Remote(r); client != c.remote {
			t.Errorf("%s, %q, and no proxy is trusted: %s", c.remote, c.forwarded, client)
		}
	}
}
