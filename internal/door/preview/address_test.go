package preview

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holt/internal/loopback"
	"holt/internal/store/db"
)

// openers are programs that use the host's resolver and keep no cookies, with their scripts.
var openers = map[string]struct{ file, text string }{
	"node":    {"open.mjs", `const r = await fetch(process.argv[2]); console.log(r.status, r.url, (await r.text()).split("\n")[0])`},
	"python3": {"open.py", `import sys, urllib.request; r = urllib.request.urlopen(sys.argv[1]); print(r.status, r.url, r.read().decode().split("\n")[0])`},
}

// TestProgramsOpenIt: Node and Python open the program address of a link, even if the host does not resolve names below
// localhost.
func TestProgramsOpenIt(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	l, err := loopback.ListenAll("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- w.door.Serve(l, Serving{}) }()
	t.Cleanup(func() { w.door.Close(); <-served })
	w.store.ListensAtLoopback(l.Addr())
	link := w.link("einstein", 3000)
	if link.ProgramURL == "" || !strings.HasSuffix(link.ProgramURL, "/?holt-link="+link.Token) {
		t.Fatalf("%+v", link)
	}
	at := strings.Replace(link.ProgramURL, "/?", "/page?a=b&", 1)
	for program, o := range openers {
		file := filepath.Join(t.TempDir(), o.file)
		if err := os.WriteFile(file, []byte(o.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, file, at).CombinedOutput()
		if want := "200 " + at + " GET /page?a=b "; err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, want %q: %s", program, err, want, out)
		}
	}
}

// TestAddresses: each preview has its own address, with the same access as its name. The address does not change, and
// must be the host of the request.
func TestAddresses(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.store.ListensAtLoopback(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4647})
	link, other := w.link("einstein", 3000), w.link("einstein", 4000)
	at, _, _ := strings.Cut(link.ProgramURL, "?")
	elsewhere, _, _ := strings.Cut(other.ProgramURL, "?")
	if at == elsewhere || !strings.HasPrefix(at, "http://127.") || !strings.HasSuffix(at, ":4647/") {
		t.Fatal(at, elsewhere)
	}
	if again, _, _ := strings.Cut(w.link("einstein", 3000).ProgramURL, "?"); again != at {
		t.Errorf("%s has become %s", at, again)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(at, "http://"), "/")
	bare, _, _ := net.SplitHostPort(host)
	for _, c := range []struct {
		what, url string
		want      int
		headers   []string
	}{
		{"a stranger", at, 401, nil},
		{"its link", link.ProgramURL, 200, nil},
		{"its token", at, 200, []string{"X-Holt-Token", link.Token}},
		{"its cookie", at, 200, []string{"Cookie", "holt-preview=" + link.Token}},
		{"another's link", at + "?holt-link=" + other.Token, 401, nil},
		{"an address that no preview has", "http://127.100.100.100:4647/", 401, []string{"X-Holt-Token", link.Token}},
		{"a name that leads to the address", at, 200, []string{"Host", "evil.example:4647"}}, // is the API's, which checks hosts itself
		{"the same number in another form", "http://2130706433/", 200, []string{"X-Holt-Token", link.Token}},
		{"another site's page", at, 403, []string{"Cookie", "holt-preview=" + link.Token, "Origin", "http://evil.example"}},
		{"its own page", at, 200, []string{"Cookie", "holt-preview=" + link.Token, "Origin", "http://" + host}},
		{"its computer's other port", at, 200, []string{"Cookie", "holt-preview=" + link.Token, "Origin", strings.TrimSuffix(elsewhere, "/")}},
		{"a browser's", at + "?holt-link=" + link.Token, 303, []string{"Sec-Fetch-Mode", "navigate"}},
	} {
		if got, body := w.text("GET", c.url, c.headers...); got != c.want || got == 200 && strings.HasPrefix(body, "the API") != (c.what == "a name that leads to the address" || c.what == "the same number in another form") {
			t.Errorf("%s: %d, want %d: %s", c.what, got, c.want, body)
		}
	}
	_, body := w.text("GET", link.ProgramURL)
	if !strings.Contains(body, "Host: "+host+"\n") && !strings.Contains(body, bare) {
		t.Errorf("the app gets another host than %s:\n%s", host, body)
	}
	if err := w.store.Delete(t.Context(), "einstein", 3000, ""); err != nil {
		t.Fatal(err)
	}
	if got, _ := w.text("GET", at, "X-Holt-Token", link.Token); got != 401 {
		t.Error("the address outlived its preview:", got)
	}
}

// TestAddressesDoNotMeet: two previews with the same preferred address get different ones.
func TestAddressesDoNotMeet(t *testing.T) {
	w := openWorld(t, nil)
	ctx := t.Context()
	first, err := w.store.table.put(ctx, einstein, 3000, nil, w.store.now())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := w.store.table.drop(ctx, einstein, 3000); err != nil || !found {
		t.Fatal(found, err)
	}
	taken, err := w.store.table.put(ctx, curie, 1, nil, w.store.now())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.table.db.WriteSync(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE preview SET address = ? WHERE computer = ?`, first.address, curie)
	}); err != nil {
		t.Fatal(err)
	}
	again, err := w.store.table.put(ctx, einstein, 3000, nil, w.store.now())
	if err != nil || again.address != first.address+1 && again.address != first.address-(1<<22-1) || taken.address == 0 {
		t.Errorf("%d beside %d: %v", again.address, first.address, err)
	}
	h, found, err := w.store.table.atAddress(ctx, again.address)
	if want := (Host{ID: einstein, Port: 3000}); err != nil || !found || h != want {
		t.Errorf("%+v %v %v", h, found, err)
	}
}
