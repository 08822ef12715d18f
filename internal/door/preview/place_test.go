package preview

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"holt"
)

// TestNoPreviews: a daemon without previews serves none on the API's listener, makes none, and gets no certificates for
// them.
func TestNoPreviews(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.set("einstein", 3000, true)
	ctx := t.Context()
	if _, err := w.store.SetDomain(ctx, "einstein", "app.example.com", holt.PreviewDomainSpec{Port: 3000}); err != nil {
		t.Fatal(err)
	}
	w.store.cfg.Place.Off, w.store.place.Off = true, true
	for _, host := range []string{"3000-einstein.localhost", "app.example.com"} {
		if got, body := w.text("GET", "http://"+host+"/"); got != 200 || body != "the API" {
			t.Errorf("%s: %d %s", host, got, body)
		}
		if err := w.store.certifiable(ctx, host); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("a certificate for %s: %v", host, err)
		}
	}
	_, set := w.store.Set(ctx, "einstein", 3000, holt.PreviewSpec{})
	_, link := w.store.Link(ctx, "einstein", 3000, holt.PreviewLinkSpec{})
	_, domain := w.store.SetDomain(ctx, "einstein", "b.example.com", holt.PreviewDomainSpec{Port: 3000})
	for _, err := range []error{set, link, domain} {
		if holt.CodeOf(err) != holt.Unavailable || holt.AsError(err).Hint == "" {
			t.Error(err)
		}
	}
}

// TestBehindTLS: behind a proxy with TLS, links have https, the cookie is Secure, and the app gets X-Forwarded-Proto.
func TestBehindTLS(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.store.cfg.Place.Scheme = "https"
	resp := w.ask("GET", page3000+"a?holt-link="+w.link("einstein", 3000).Token, nil, "Accept", "text/html,application/xhtml+xml")
	if to, cookie := resp.Header.Get("Location"), resp.Header.Get("Set-Cookie"); to != "https://3000-einstein.localhost/a" || !strings.HasPrefix(cookie, secureCookie+"=") || !strings.Contains(cookie, "; Secure") {
		t.Errorf("%s %s", to, cookie)
	}
	if _, body := w.text("GET", page3000, "X-Holt-Token", w.link("einstein", 3000).Token); !strings.Contains(body, "X-Forwarded-Proto: https\n") {
		t.Error(body)
	}
}

// TestDomainsOwner: a tenant must prove a domain by DNS. It cannot take a domain of others, or learn whether another tenant
// has it. An admin can add any.
func TestDomainsOwner(t *testing.T) {
	w := openWorld(t, nil)
	records := map[string][]string{"_holt.app.example.com": {"v=spf1 -all", "holt=acme"}, "_holt.example.org": {"holt=acme"}, "_holt.com": {"holt=acme"}}
	asked, broken := 0, false
	w.store.cfg.TXT = func(_ context.Context, name string) ([]string, error) {
		asked++
		if all := records[name]; all != nil {
			return all, nil
		}
		if broken {
			return nil, errors.New("no resolver answers")
		}
		return nil, &net.DNSError{Name: name, IsNotFound: true}
	}
	of := func(tenant string) context.Context {
		return holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: tenant})
	}
	add := func(ctx context.Context, computer, name string) error {
		_, err := w.store.SetDomain(ctx, computer, name, holt.PreviewDomainSpec{Port: 80})
		return err
	}
	refused := ""
	for _, name := range []string{"app.example.com", "free.example.com", "deep.below.www.example.org", "a.b.c.d.e.f.g.example.org"} {
		err := add(of(holt.DefaultTenant), "einstein", name)
		if holt.CodeOf(err) != holt.Forbidden || holt.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		said := strings.ReplaceAll(holt.AsError(err).Message, name, "NAME")
		if refused != "" && said != refused {
			t.Errorf("it tells more of %s: %q and %q", name, said, refused)
		}
		refused = said
	}
	if list, err := w.store.List(t.Context(), "einstein"); err != nil || len(list) > 0 {
		t.Errorf("what was refused made previews: %+v %v", list, err)
	}
	for _, name := range []string{"app.example.com", "www.example.org", "deep.below.example.org"} {
		if err := add(of("acme"), "curie", name); err != nil {
			t.Error(name, err)
		}
	}
	if err := add(of("acme"), "curie", "other.com"); holt.CodeOf(err) != holt.Forbidden {
		t.Error("all of a country's:", err)
	}
	broken = true
	if err := add(of("acme"), "curie", "other.com"); holt.CodeOf(err) != holt.Unavailable {
		t.Error("where nothing can be looked up:", err)
	}
	delete(records, "_holt.app.example.com")
	asked = 0
	if err := add(of("acme"), "curie", "app.example.com"); err != nil || asked > 0 {
		t.Errorf("another port of it: %v, asked %d times", err, asked)
	}
	if err := add(t.Context(), string(curie), "any.example.net"); err != nil || asked > 0 {
		t.Errorf("by who runs the daemon: %v, asked %d times", err, asked)
	}
}
