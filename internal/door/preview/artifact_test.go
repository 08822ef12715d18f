package preview

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// publish stores an artifact of the tenant, and returns its id.
func (w *world) publish(name, content string) string {
	w.t.Helper()
	a, err := w.artifacts.Put(w.t.Context(), holt.ArtifactPut{Name: name}, strings.NewReader(content))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(a.ID)
}

func (w *world) linkTo(artifact string, spec holt.ArtifactLinkSpec) holt.ArtifactLink {
	w.t.Helper()
	l, err := w.artifacts.CreateLink(w.t.Context(), artifact, spec, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// TestArtifactHeaders: the exact headers of downloads. Nothing of an artifact runs, and its URL gets nowhere.
func TestArtifactHeaders(t *testing.T) {
	w := openWorld(t, nil)
	page := w.publish("site/page.html", "<script>alert(1)</script>")
	attached, shown := w.linkTo(page, holt.ArtifactLinkSpec{FileName: `a "b"; ü.html`}), w.linkTo(page, holt.ArtifactLinkSpec{Inline: true})
	a, err := w.artifacts.Get(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	always := map[string]string{
		"Accept-Ranges": "bytes", "Cache-Control": "private, no-store", "Etag": `"` + page + `"`, "Last-Modified": a.CreatedAt.Format(http.TimeFormat), "Content-Type": "text/html; charset=utf-8",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex", "Content-Length": "25",
		"Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": `attachment; filename*=utf-8''a%20%22b%22%3B%20%C3%BC.html`,
	}
	inline := map[string]string{
		"Content-Disposition":     "inline; filename=page.html",
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
	}
	for _, c := range []struct {
		method, url, ranged string
		status              int
		more                map[string]string
		body                string
	}{
		{"GET", attached.URL, "", 200, nil, "<script>alert(1)</script>"},
		{"HEAD", attached.URL, "", 200, nil, ""},
		{"GET", shown.URL, "", 200, inline, "<script>alert(1)</script>"},
		{"GET", attached.URL, "bytes=1-6", 206, map[string]string{"Content-Range": "bytes 1-6/25", "Content-Length": "6"}, "script"},
		{"HEAD", attached.URL, "bytes=1-6", 206, map[string]string{"Content-Range": "bytes 1-6/25", "Content-Length": "6"}, ""},
	} {
		resp := w.ask(c.method, c.url, nil, "Range", c.ranged, "Accept", "text/html", "Cookie", "holt-preview=x")
		got, want := map[string]string{}, map[string]string{}
		for name := range resp.Header {
			if name != "Date" {
				got[name] = strings.Join(resp.Header[name], ", ")
			}
		}
		for _, from := range []map[string]string{always, c.more} {
			for name, value := range from {
				want[name] = value
			}
		}
		b, err := io.ReadAll(resp.Body)
		if d := cmp.Diff(want, got); d != "" || resp.StatusCode != c.status || string(b) != c.body || err != nil {
			t.Errorf("%s %s %s: %d %q %v\n%s", c.method, c.url, c.ranged, resp.StatusCode, b, err, d)
		}
	}
	if resp := w.ask("GET", attached.URL, nil, "If-None-Match", `"`+page+`"`); resp.StatusCode != 304 || resp.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp := w.ask("GET", attached.URL, nil, "Range", "bytes=25-"); resp.StatusCode != 416 || resp.Header.Get("Content-Range") != "bytes */25" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp := w.ask("POST", attached.URL, strings.NewReader("x")); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}

// TestArtifactLinkEnds: links that do not work have one answer, whatever the reason; only bytes use a link for one download.
func TestArtifactLinkEnds(t *testing.T) {
	w := openWorld(t, nil)
	report := w.publish("report.txt", "report")
	once := w.linkTo(report, holt.ArtifactLinkSpec{Once: true})
	for range 2 {
		w.text("HEAD", once.URL)
		w.text("GET", once.URL, "If-None-Match", `"`+report+`"`)
		w.text("GET", once.URL, "Range", "bytes=100-")
	}
	if status, text := w.text("GET", once.URL, "Range", "bytes=0-2"); status != 206 || text != "rep" {
		t.Errorf("the first download: %d %s", status, text)
	}
	killed, used := w.linkTo(report, holt.ArtifactLinkSpec{Once: true}), "link/used"
	w.failAt.Store(&used)
	if status, text := w.text("GET", killed.URL); status != 500 || strings.Contains(text, "report") {
		t.Errorf("bytes come before the link is used: %d %s", status, text)
	}
	w.failAt.Store(nil)
	token, secret, err := w.tokens.Create(t.Context(), "ci", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := w.tokens.Check(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	ofToken, err := w.artifacts.CreateLink(holt.WithActor(t.Context(), checked.Actor()), report, holt.ArtifactLinkSpec{}, "")
	if err != nil {
		t.Fatal(err)
	}
	good, short, gone := w.linkTo(report, holt.ArtifactLinkSpec{}), w.linkTo(report, holt.ArtifactLinkSpec{ExpiresInMS: 60_000}), w.linkTo(report, holt.ArtifactLinkSpec{})
	for _, l := range []holt.ArtifactLink{ofToken, good, short, gone} {
		if status, text := w.text("GET", l.URL, "Authorization", "Bearer "+secret); status != 200 || text != "report" {
			t.Errorf("%s: %d %s", l.URL, status, text)
		}
	}
	if err := w.tokens.Delete(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.artifacts.DeleteLink(t.Context(), report, string(gone.ID), ""); err != nil {
		t.Fatal(err)
	}
	w.later.Store(int64(time.Minute))
	at, _, _ := strings.Cut(good.URL, "/lnk_")
	for what, url := range map[string]string{
		"used": once.URL, "used by a download that did not begin": killed.URL, "of a revoked token": ofToken.URL, "expired": short.URL, "revoked": gone.URL, "none": at + "/", "another name": good.URL + "x", "no name": strings.TrimSuffix(good.URL, "/report.txt"),
		"a wrong secret": strings.Replace(good.URL, "-", "-A", 1), "no secret": at + "/" + string(good.ID) + "/report.txt", "a long one": at + "/" + string(good.ID) + "-" + strings.Repeat("A", 10_000) + "/report.txt",
	} {
		status, text := w.text("GET", url)
		if want := `{"code":"not_found","message":"this link does not work","hint":"it is incomplete, or it was used or revoked, or it has expired; ask its sender for another one"}`; status != 404 || strings.TrimSpace(text) != want {
			t.Errorf("%s: %d %s", what, status, text)
		}
		resp := w.ask("GET", url, nil, "Accept", "text/html")
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 404 || !strings.Contains(string(b), "<h1>This link does not work</h1>") || resp.Header.Get("Content-Security-Policy") != pagePolicy || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %s", what, resp.StatusCode, resp.Header, b)
		}
	}
	if status, _ := w.text("GET", good.URL); status != 200 {
		t.Errorf("a link that works: %d", status)
	}
	w.leaksNoSecret(once, good, short, gone)
}

// leaksNoSecret fails if a log has the secret of a link, or the audit log does not have its download.
func (w *world) leaksNoSecret(links ...holt.ArtifactLink) {
	w.t.Helper()
	w.mu.Lock()
	audit := fmt.Sprintf("%+v", w.audit)
	w.mu.Unlock()
	for _, l := range links {
		_, rest, _ := strings.Cut(l.URL, string(l.ID)+"-")
		secret, _, _ := strings.Cut(rest, "/")
		if len(secret) != 27 || strings.Contains(w.log.String(), secret) || strings.Contains(audit, secret) {
			w.t.Errorf("a log has the secret of %s", l.ID)
		}
		if want := fmt.Sprintf("Op:download Noun:artifacts Ref:%s link=%s ", l.ArtifactID, l.ID); !strings.Contains(audit, want) || !strings.Contains(w.log.String(), "link="+string(l.ID)) {
			w.t.Errorf("the audit log has no %q: %s", want, audit)
		}
	}
}

// TestArtifactHost: links have a host that no computer gets, and an address for programs.
func TestArtifactHost(t *testing.T) {
	w := openWorld(t, nil)
	id := w.publish("report.txt", "report")
	if l := w.linkTo(id, holt.ArtifactLinkSpec{}); l.ProgramURL != "" {
		t.Errorf("without a listener at the loopback: %+v", l)
	}
	w.store.ListensAtLoopback(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4647})
	l := w.linkTo(id, holt.ArtifactLinkSpec{})
	if !strings.HasPrefix(l.ProgramURL, "http://127.64.0.1:4647/lnk_") {
		t.Errorf("%+v", l)
	}
	if status, text := w.text("GET", l.ProgramURL); status != 200 || text != "report" {
		t.Errorf("the address for programs: %d %s", status, text)
	}
	if status, text := w.text("GET", l.URL, "Host", "localhost"); status != 200 || text != "the API" {
		t.Errorf("the API's host: %d %s", status, text)
	}
	if h, ok := ParseHost("artifacts.localhost", "localhost"); ok {
		t.Errorf("a computer has the host: %+v", h)
	}
	if err := w.store.free("artifacts.localhost"); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("a domain can have the host: %v", err)
	}
	if err := w.store.certifiable(t.Context(), "artifacts.localhost"); err != nil {
		t.Error(err)
	}
	off := &Store{cfg: Config{Place: Place{Off: true}}, place: Place{Off: true}}
	if _, _, err := off.LinkURLs(l, "x"); holt.CodeOf(err) != holt.Unavailable || !strings.Contains(holt.AsError(err).Hint, "--preview-listen") {
		t.Errorf("without previews: %v", err)
	}
	if _, err := Open(Config{Hosts: []string{"Artifacts.box.example."}, Place: Place{Domain: "box.example"}}); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("the API has the host: %v", err)
	}
}

func FuzzParseLink(f *testing.F) {
	f.Add("/lnk_aaaaaaaaaaaaaaaa-AAAAAAAAAAAAAAAAAAAAAAAAAAA/report.pdf")
	f.Add("/lnk_aaaaaaaaaaaaaaaa-A-B_C/a/b")
	f.Add("/lnk_aaaaaaaaaaaaaaaa/report.pdf")
	f.Add("//")
	f.Fuzz(func(t *testing.T, path string) {
		id, secret, file, ok := parseLink(path)
		if !ok && (id != "" || secret != "" || file != "") || ok && "/"+string(id)+"-"+secret+"/"+file != path {
			t.Fatalf("%q: %q %q %q %v", path, id, secret, file, ok)
		}
		if ok && (len(id) != 20 || secret == "" || len(secret) > mostSecret || strings.Contains(secret, "/") || len(file) > holt.MostLinkName) {
			t.Fatalf("%q: %q %q %q", path, id, secret, file)
		}
	})
}
