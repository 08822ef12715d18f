package preview

import (
	"strings"
	"testing"

	"holt"
)

func TestHosts(t *testing.T) {
	id := "cmp-aaaaaaaaaaaaaaaa"
	for host, want := range map[string]Host{
		"3000-einstein.box.example":                        {3000, "", "einstein", "default"},
		"1-a.box.example":                                  {1, "", "a", "default"},
		"65535-web-1.box.example":                          {65535, "", "web-1", "default"},
		"3000-web--acme.box.example":                       {3000, "", "web", "acme"},
		"3000-web-1--team-a.box.example":                   {3000, "", "web-1", "team-a"},
		"3000-" + id + ".box.example":                      {3000, "cmp_aaaaaaaaaaaaaaaa", "", ""},
		"3000-4000-5.box.example":                          {3000, "", "4000-5", "default"},
		"3000-cmp-short.box.example":                       {3000, "", "cmp-short", "default"},
		"3000-cmp-AAAAAAAAAAAAAAAA.box.example":            {},
		"0-a.box.example":                                  {},
		"03000-a.box.example":                              {},
		"+1-a.box.example":                                 {},
		"65536-a.box.example":                              {},
		"3000-.box.example":                                {},
		"3000--a.box.example":                              {},
		"3000-a--b--c.box.example":                         {},
		"3000-a-.box.example":                              {},
		"3000-a.b.box.example":                             {},
		"x.3000-a.box.example":                             {},
		"3000-a.box.example.evil.example":                  {},
		"3000-abox.example":                                {},
		"box.example":                                      {},
		".box.example":                                     {},
		"":                                                 {},
		"3000-ü.box.example":                               {},
		"3000-" + strings.Repeat("a", 59) + ".box.example": {},
	} {
		if got, ok := ParseHost(host, "box.example"); got != want || ok != (want != Host{}) {
			t.Errorf("%s: %+v %v", host, got, ok)
		}
	}
}

// TestLabels: the label of a computer leads to that computer only.
func TestLabels(t *testing.T) {
	const id = "cmp_aaaaaaaaaaaaaaaa"
	const byID = "3000-cmp-aaaaaaaaaaaaaaaa"
	for _, c := range []struct{ name, tenant, want string }{
		{"einstein", "", "3000-einstein"},
		{"einstein", "acme", "3000-einstein--acme"},
		{"a-b", "c-d", "3000-a-b--c-d"},
		{"a--b", "", byID},                 // would be b's a
		{"a--b", "acme", byID},             // would be of three parts
		{"a", "b--c", byID},                // likewise
		{"cmp-bbbbbbbbbbbbbbbb", "", byID}, // would be another computer's id
		{strings.Repeat("a", 63), "", byID},
		{strings.Repeat("a", 40), strings.Repeat("b", 40), byID},
	} {
		computer := holt.Computer{ID: id, Name: c.name, Tenant: c.tenant}
		if got := Label(computer, 3000); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add("3000-einstein.localhost")
	f.Add("3000-a--b.localhost")
	f.Add("1-cmp-aaaaaaaaaaaaaaaa.localhost")
	f.Fuzz(func(t *testing.T, host string) {
		h, ok := ParseHost(host, "localhost")
		if !ok {
			return
		}
		if h.Port < 1 || h.Port > 65535 || (h.ID == "") == (h.Name == "") || len(host) > mostLabel+len(".localhost") {
			t.Fatalf("%q: %+v", host, h)
		}
		// The label of the parsed host is the same.
		if c := (holt.Computer{ID: "cmp_aaaaaaaaaaaaaaaa", Name: h.Name, Tenant: h.Tenant}); h.ID == "" && !strings.HasPrefix(h.Name, "cmp-") && Label(c, h.Port)+".localhost" != host {
			if h.Tenant != holt.DefaultTenant { // a tenant's name may be left out
				t.Fatalf("%q: %+v is %s", host, h, Label(c, h.Port))
			}
		}
	})
}

func TestPlaces(t *testing.T) {
	for in, want := range map[string]Place{
		"localhost":                      {Scheme: "", Domain: "localhost", Port: ""},
		"Box.Example.COM.":               {Scheme: "", Domain: "box.example.com", Port: ""},
		"https://box.example.com":        {Scheme: "https", Domain: "box.example.com", Port: ""},
		"http://box.example.com:8080":    {Scheme: "http", Domain: "box.example.com", Port: "8080"},
		"ftp://box.example.com":          {},
		"box.example.com:0":              {},
		"https://box.example.com/path":   {},
		"192.0.2.1":                      {},
		"":                               {},
		strings.Repeat("a.", 200) + "de": {},
	} {
		got, err := ParsePlace(in)
		if got != want || (err == nil) != (want != Place{}) {
			t.Errorf("%q: %+v %v", in, got, err)
		}
	}
	if got := (Place{Scheme: "https", Domain: "x", Port: "443"}).url("a.x") + (Place{Scheme: "http", Domain: "x", Port: "443"}).url("a.x"); got != "https://a.x/http://a.x:443/" {
		t.Error(got)
	}
}
