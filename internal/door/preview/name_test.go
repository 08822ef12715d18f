package preview

import (
	"strings"
	"testing"

	"holt"
)

// TestNamesOfTheAPI: a computer cannot have a name of the API, or below the domain of previews, as its domain. If one has
// it from before, the name is still the API's and gets no certificate for the domain.
func TestNamesOfTheAPI(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.set("einstein", 3000, true)
	ctx := t.Context()
	for name, why := range map[string]string{
		"api.example.com": "name of the API", "API.example.com": "name of the API", "api.example.com.": "name of the API",
		"login.localhost": "below the domain of previews", "3000-einstein.localhost": "below the domain of previews", "a.b.localhost": "below the domain of previews",
		"localhost": "not a domain", "hub": "not a domain", "127.0.0.1": "not a domain", "127.1": "not a domain", "192.0.2.0x1": "not a domain", "::1": "not a domain", "[::1]": "not a domain",
	} {
		_, err := w.store.SetDomain(ctx, "einstein", name, holt.PreviewDomainSpec{Port: 3000})
		if holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), why) || holt.AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, host := range []string{"api.example.com", "login.localhost"} {
		if err := w.store.table.putDomain(ctx, domain{host, einstein, 3000, w.store.now()}); err != nil { // before the flags were as they are
			t.Fatal(err)
		}
		if got, body := w.text("GET", "http://"+host+"/v1/tokens"); got != 200 || body != "the API" {
			t.Errorf("%s: %d %s", host, got, body)
		}
		if got, body := w.text("GET", "http://x/", "Host", strings.ToUpper(host)+".:443"); got != 200 || body != "the API" {
			t.Errorf("%s: %d %s", host, got, body)
		}
	}
	if err := w.store.certifiable(ctx, "login.localhost"); holt.CodeOf(err) != holt.NotFound {
		t.Error(err)
	}
	w.addr = w.serve(Serving{}) // which has no API
	if got, body := w.text("GET", "http://api.example.com/"); got != 421 {
		t.Error(got, body)
	}
	for _, name := range []string{"app.example.com", "example.com", "x.api.example.com"} {
		if _, err := w.store.SetDomain(ctx, "einstein", name, holt.PreviewDomainSpec{Port: 3000}); err != nil {
			t.Error(err)
		}
		if got, body := w.text("GET", "http://"+name+"/"); got != 200 || !strings.Contains(body, name) {
			t.Error(got, body)
		}
	}
}
