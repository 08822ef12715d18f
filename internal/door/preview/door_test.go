package preview

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"holt"
)

const (
	page3000  = "http://3000-einstein.localhost/"
	strangers = http.StatusUnauthorized
)

// echo is an app that answers with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, r.Host)
	for _, name := range []string{"Authorization", "Cookie", "Referer", "X-Holt-Token", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X_forwarded_for", "X-Real-Ip", "Forwarded", "Te", "Keep-Alive", "Upgrade", "Range", "Accept-Encoding"} {
		if v, ok := r.Header[name]; ok {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(v, " | "))
		}
	}
}

// TestAccess: a link, its token or an API token opens a private preview, each for one port of one computer. Without them
// the answer is the same whether the preview exists or not.
func TestAccess(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.app(einstein, 4000, echo)
	_, mine, err := w.tokens.Create(t.Context(), "mine", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := w.tokens.CreateFor(t.Context(), "umbra", "foreign", 0)
	if err != nil {
		t.Fatal(err)
	}
	link := w.link("einstein", 3000)
	other := w.link("einstein", 4000)
	elsewhere := w.link(string(curie), 3000)
	for _, c := range []struct {
		what    string
		url     string
		want    int
		headers []string
	}{
		{"stranger", page3000, strangers, nil},
		{"no such computer", "http://3000-nobody.localhost/", strangers, nil},
		{"no preview of the port", "http://5000-einstein.localhost/", strangers, nil},
		{"a tenant's, without it", "http://3000-curie.localhost/", strangers, nil},
		{"a wrong API token", page3000, strangers, []string{"X-Holt-Token", "holt_x"}},
		{"a link's token", page3000, 200, []string{"X-Holt-Token", link.Token}},
		{"as bearer", page3000, 200, []string{"Authorization", "Bearer " + link.Token}},
		{"as cookie", page3000, 200, []string{"Cookie", "a=b; holt-preview=" + link.Token}},
		{"behind another host's cookie of the name", page3000, 200, []string{"Cookie", "holt-preview=tossed; holt-preview=" + link.Token}},
		{"another port's", page3000, strangers, []string{"X-Holt-Token", other.Token}},
		{"another computer's", page3000, strangers, []string{"X-Holt-Token", elsewhere.Token}},
		{"by id", "http://3000-cmp-aaaaaaaaaaaaaaaa.localhost/", 200, []string{"X-Holt-Token", link.Token}},
		{"upper case and dot", "http://3000-EINSTEIN.localhost.:80/", 200, []string{"X-Holt-Token", link.Token}},
		{"an API token", page3000, 200, []string{"Authorization", "Bearer " + mine}},
		{"in our header", page3000, 200, []string{"X-Holt-Token", mine}},
		{"any port", "http://4000-einstein.localhost/", 200, []string{"X-Holt-Token", mine}},
		{"another tenant's", page3000, 404, []string{"X-Holt-Token", foreign}},
		{"API token, no such computer", "http://3000-nobody.localhost/", 404, []string{"X-Holt-Token", foreign}},
	} {
		got, body := w.text("GET", c.url, c.headers...)
		if got != c.want {
			t.Errorf("%s: %d %s", c.what, got, body)
		}
	}
	for _, accept := range []string{"*/*", "text/html"} {
		_, none := w.text("GET", "http://3000-nobody.localhost/", "Accept", accept)
		_, private := w.text("GET", page3000, "Accept", accept)
		if id := strings.LastIndex(none, "req_"); id >= 0 { // of each request, in the page
			none, private = none[:id], private[:id]
		}
		if none != private || !strings.Contains(none, "access to this address") {
			t.Errorf("the answers differ, or do not say that access is refused:\n%s\n%s", none, private)
		}
	}
	w.set("einstein", 3000, true)
	if got, body := w.text("GET", page3000); got != 200 {
		t.Error("public:", got, body)
	}
	if got, _ := w.text("GET", "http://4000-einstein.localhost/"); got != strangers {
		t.Error("the other port is public, too:", got)
	}
	if log := w.log.String(); strings.Contains(log, link.Token) || strings.Contains(log, mine) || strings.Contains(log, "holt-link") {
		t.Error("the log has a token")
	}
	if err := w.store.Delete(t.Context(), "einstein", 3000, ""); err != nil {
		t.Fatal(err)
	}
	w.link("einstein", 3000) // another preview
	if got, _ := w.text("GET", page3000, "X-Holt-Token", link.Token); got != strangers {
		t.Error("a link outlived its preview:", got)
	}
}

// TestLinkIsExchanged: a link sets a cookie for its host and redirects to the same host without the token. An expired link
// opens nothing, and does not affect a visitor with another right.
func TestLinkIsExchanged(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	link := w.link("einstein", 3000)
	for path, want := range map[string]string{
		"/":                               "/",
		"/?a=b&holt-link=%s&c=d;e&f=%%zz": "/?a=b&c=d;e&f=%zz",
		"//evil.example/?holt-link=%s":    "//evil.example/",
		"/a%%2fb?holt-link=%s":            "/a%2fb",
		"/\\evil.example?holt-link=%s":    "/%5Cevil.example",
	} {
		if !strings.Contains(path, "holt-link") {
			path += "?holt-link=%s"
		}
		text := w.bytes(fmt.Sprintf("GET "+path+" HTTP/1.1\r\nHost: 3000-einstein.localhost:4647\r\nAccept: text/html,application/xhtml+xml\r\nConnection: close\r\n\r\n", link.Token))
		head, _, _ := strings.Cut(text, "\r\n\r\n")
		if !strings.Contains(head, "303 See Other") || !strings.Contains(head, "\r\nLocation: http://3000-einstein.localhost:4647"+want+"\r\n") ||
			!strings.Contains(head, "\r\nSet-Cookie: holt-preview="+link.Token+"; Path=/; Expires=") || !strings.Contains(head, "; HttpOnly; SameSite=Lax") || strings.Contains(head, "Domain") {
			t.Errorf("%s: %s", path, text)
		}
	}
	if got, _ := w.text("GET", page3000+"?holt-link="+link.Token[:len(link.Token)-2]); got != strangers {
		t.Error("a broken link:", got)
	}
	resp := w.ask("GET", page3000+"?holt-link=pvt_over", nil, "Cookie", "holt-preview="+link.Token, "Sec-Fetch-Mode", "navigate")
	if resp.StatusCode != 303 || resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Location") != page3000 {
		t.Error("an old link, with a cookie:", resp.StatusCode, resp.Header)
	}
	w.store.now = func() time.Time { return time.Now().Add(13 * time.Hour) }
	if got, _ := w.text("GET", page3000, "Cookie", "holt-preview="+link.Token); got != strangers {
		t.Error("a cookie outlived its link:", got)
	}
}

// TestNoTokenReachesTheApp: the app sees neither the token of a link nor that there was one, with any method and any
// place of the token.
func TestNoTokenReachesTheApp(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	link := w.link("einstein", 3000)
	query := "holt-link=" + link.Token
	for _, c := range []struct {
		method, url string
		want        string // the first line
		headers     []string
	}{
		{"POST", page3000 + "?" + query, "POST / ", nil},
		{"PUT", page3000 + "a?x=1;2&" + query + "&y=%zz", "PUT /a?x=1;2&y=%zz ", nil},
		{"DELETE", page3000 + "?" + query + "&" + query, "DELETE / ", nil},
		{"OPTIONS", page3000 + "?a&" + query, "OPTIONS /?a ", nil},
		{"GET", page3000 + "?a&" + query, "GET /?a ", []string{"Accept", "text/html, image/gif, image/jpeg, */*; q=0.2"}}, // Java
		{"GET", page3000 + "?holt%2Dlink=" + link.Token, "GET / ", []string{"X-Holt-Token", link.Token}},
		{"GET", page3000 + "style.css", "GET /style.css ", []string{"Cookie", "holt-preview=" + link.Token, "Referer", page3000 + "form?a=b&" + query}},
		{"GET", page3000, "GET / ", []string{"Authorization", "Bearer " + link.Token, "Referer", page3000 + "?" + query}},
	} {
		status, got := w.text(c.method, c.url, c.headers...)
		if status != 200 || !strings.HasPrefix(got, c.want) || strings.Contains(got, link.Token) || strings.Contains(got, "holt-link") {
			t.Errorf("%s %s: %d\n%s", c.method, c.url, status, got)
		}
	}
	if _, got := w.text("GET", page3000, "X-Holt-Token", link.Token, "Referer", "http://a.example/?b=c&d"); !strings.Contains(got, "Referer: http://a.example/?b=c&d\n") {
		t.Errorf("another page's address:\n%s", got)
	}
}

// TestCrossSite: requests with the cookie that pages of other sites, or of other computers' previews, cause are refused.
func TestCrossSite(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	cookie := "holt-preview=" + w.link("einstein", 3000).Token
	w.link(string(curie), 3000)
	for _, c := range []struct {
		want    int
		method  string
		headers []string
	}{
		{200, "GET", nil},
		{200, "POST", []string{"Origin", "http://3000-einstein.localhost"}},
		{200, "GET", []string{"Origin", "http://5173-einstein.localhost:4647"}}, // another port of it
		{200, "GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		{200, "GET", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}},
		{403, "POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}},
		{403, "GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}},
		{403, "GET", []string{"Origin", "http://3000-curie--acme.localhost"}},
		{403, "GET", []string{"Origin", "http://evil.example", "Upgrade", "websocket", "Connection", "Upgrade"}},
		{403, "GET", []string{"Origin", "null"}},
		{200, "POST", []string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}}, // a form of a page that sends no referrer
		{403, "POST", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}},
		{403, "GET", []string{"Origin", "https://3000-einstein.localhost.evil.example"}},
		{403, "GET", []string{"Origin", "http://3000-nobody.localhost"}},
	} {
		if got, body := w.text(c.method, page3000, append(c.headers, "Cookie", cookie)...); got != c.want {
			t.Errorf("%s %v: %d %s", c.method, c.headers, got, body)
		}
	}
	w.set("einstein", 3000, true) // public: the app decides
	if got, _ := w.text("GET", page3000, "Origin", "http://evil.example"); got != 200 {
		t.Error("public:", got)
	}
}

// TestHeaders: the app gets the preview's host and the client's address, but no credentials of holt and no forged proxy
// headers. The client gets no cookie for other hosts.
func TestHeaders(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, echo)
	w.app(einstein, 4000, func(rw http.ResponseWriter, _ *http.Request) {
		for _, c := range []string{"a=1; Domain=localhost; Path=/", "b=2;domain=.box.example;HttpOnly", "__Host-c=3; Secure; Path=/", "holt-preview=x; Path=/", "__Host-holt-preview=x", "d=4; DOMAIN"} {
			rw.Header().Add("Set-Cookie", c)
		}
		rw.Header().Set("Alt-Svc", `h2="evil.example:443"`)
		rw.Header().Set("Keep-Alive", "timeout=5")
		rw.Header().Set("X-Powered-By", "app")
	})
	link := w.link("einstein", 3000)
	_, got := w.text("GET", "http://3000-einstein.localhost:4647//a%2fb?x=1;2&y=%zz&a", "X-Holt-Token", link.Token,
		"X-Forwarded-For", "1.1.1.1", "X-Forwarded-Proto", "https", "X-Forwarded-Server", "evil", "X_forwarded_for", "1.1.1.1", "X-Real-IP", "1.1.1.1", "Forwarded", "for=1.1.1.1",
		"Cookie", "x=1; holt-preview=zzz; y=\"2\"", "Authorization", "Basic YTpi", "Range", "bytes=1-2", "Keep-Alive", "x", "Te", "gzip")
	want := `GET //a%2fb?x=1;2&y=%zz&a 3000-einstein.localhost:4647
Authorization: Basic YTpi
Cookie: x=1; y="2"
X-Forwarded-For: 127.0.0.1
X-Forwarded-Host: 3000-einstein.localhost:4647
X-Forwarded-Proto: http
X-Forwarded-Port: 4647
Forwarded: for="127.0.0.1";host="3000-einstein.localhost:4647";proto=http
Range: bytes=1-2
`
	if got != want {
		t.Errorf("the app sees\n%s", got)
	}
	if _, got := w.text("GET", page3000, "Authorization", "bearer "+link.Token); strings.Contains(got, "pvt_") {
		t.Errorf("the app sees our token\n%s", got)
	}
	w.app(einstein, 5000, func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s with %v", b, r.Trailer)
	})
	w.set("einstein", 5000, true)
	got = w.bytes("POST / HTTP/1.1\r\nHost: 5000-einstein.localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Forwarded-For\r\n\r\n2\r\nhi\r\n0\r\n" +
		"X-Sum: 42\r\nX-Forwarded-For: 1.1.1.1\r\nx_real_ip: 1.1.1.1\r\nX-Holt-Token: " + link.Token + "\r\nCookie: x=1; holt-preview=zzz\r\nAuthorization: Bearer " + link.Token + "\r\n\r\n")
	if !strings.Contains(got, "hi with map[Cookie:[x=1] X-Sum:[42]]") {
		t.Errorf("behind a body the app sees\n%s", got)
	}
	resp := w.ask("GET", "http://4000-einstein.localhost/", nil, "X-Holt-Token", w.link("einstein", 4000).Token)
	cookies := strings.Join(resp.Header["Set-Cookie"], " | ")
	if cookies != "a=1; Path=/ | b=2;HttpOnly | __Host-c=3; Secure; Path=/ | d=4" || resp.Header.Get("Alt-Svc") != "" || resp.Header.Get("Keep-Alive") != "" || resp.Header.Get("X-Powered-By") != "app" {
		t.Errorf("%q %v", cookies, resp.Header)
	}
	trusted := openWorld(t, func(o *Options) { o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	trusted.app(einstein, 3000, echo)
	_, got = trusted.text("GET", page3000, "X-Holt-Token", trusted.link("einstein", 3000).Token, "X-Forwarded-For", "6.6.6.6, 2001:db8::1, 127.0.0.9", "X-Forwarded-Proto", "https")
	if !strings.Contains(got, "X-Forwarded-For: 2001:db8::1\n") || !strings.Contains(got, "Proto: https\n") || !strings.Contains(got, "Port: 443\n") || !strings.Contains(got, `Forwarded: for="[2001:db8::1]";`) {
		t.Errorf("behind a proxy that is trusted:\n%s", got)
	}
}

// TestNamesThatAreNone: other names are the API's. Malformed hosts and messages reach no app.
func TestNamesThatAreNone(t *testing.T) {
	w := openWorld(t, nil)
	reached := make(chan string, 100)
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		reached <- r.Method + " " + r.RequestURI + " " + string(b)
	})
	w.set("einstein", 3000, true)
	for _, host := range []string{"localhost", "127.0.0.1:4647", "[::1]:80", "box.example", "einstein.localhost", "3000-einstein.localhost.evil.example", "3000-einstein.evil.example", "x.3000-einstein.localhost", strings.Repeat("a", 300) + ".localhost", "3000-einstein.localhost:x"} {
		if got, body := w.text("GET", "http://x/", "Host", host); body != "the API" && got != 400 {
			t.Errorf("%s: %d %s", host, got, body)
		}
	}
	alone := w.serve(Serving{})
	w.addr = alone
	if got, body := w.text("GET", "http://localhost/"); got != 421 || !strings.Contains(body, "PORT-COMPUTER.localhost") {
		t.Error(got, body)
	}
	for what, text := range map[string]string{
		"two hosts":             "GET / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nHost: localhost\r\n\r\n",
		"two lengths":           "POST / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"no host":               "GET / HTTP/1.1\r\n\r\n",
		"an encoding of others": "POST / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"a space in a name":     "GET / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nContent-Length : 5\r\n\r\n",
		"connect":               "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nConnection: close\r\n\r\n",
		"trace":                 "TRACE / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nConnection: close\r\n\r\n",
	} {
		if got := w.bytes(text); !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 5") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if len(reached) != 0 {
		t.Error("the app has got", <-reached)
	}
	// A length and chunks: bytes after the chunks must not become a request to the app.
	got := w.bytes("POST /one HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: 4000-einstein.localhost\r\nConnection: close\r\n\r\n")
	if one := <-reached; one != "POST /one " || len(reached) != 0 {
		t.Error(one, len(reached), got)
	}
	// An absolute target is what counts, not Host.
	got = w.bytes("GET http://3000-einstein.localhost/absolute HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if one := <-reached; one != "GET /absolute " {
		t.Error(one, got)
	}
}

// TestRightsEnd: open requests end when the preview becomes private or is deleted, or when the token that made their link
// is revoked.
func TestRightsEnd(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(200)
		http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	w.raw(einstein, 4000, answerUpgrade)
	token, secret, err := w.tokens.Create(t.Context(), "ci", 0)
	if err != nil {
		t.Fatal(err)
	}
	made, err := w.store.Link(holt.WithActor(t.Context(), token.Actor()), "einstein", 4000, holt.PreviewLinkSpec{})
	if err != nil {
		t.Fatal(err)
	}
	own := w.link("einstein", 4000)
	w.set("einstein", 3000, true)
	stays := w.upgrade(4000, "X-Holt-Token", own.Token)
	public := w.ask("GET", page3000, nil)
	byLink := w.ask("GET", page3000, nil, "X-Holt-Token", w.link("einstein", 3000).Token)
	byMade := w.upgrade(4000, "X-Holt-Token", made.Token)
	bySecret := w.upgrade(4000, "X-Holt-Token", secret)
	w.set("einstein", 3000, false)
	if _, err := io.ReadAll(public.Body); err == nil {
		t.Error("the answer of a public visitor ended as if it were complete")
	}
	if err := w.tokens.Delete(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{byMade, bySecret} {
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("%q", b)
		}
	}
	if got, _ := w.text("GET", "http://4000-einstein.localhost/", "X-Holt-Token", made.Token); got != strangers {
		t.Error("a link of a token that was revoked:", got)
	}
	still := make(chan struct{})
	go func() { stays.Read(make([]byte, 1)); close(still) }()
	select {
	case <-still:
		t.Error("the connection of another visitor ended")
	default:
	}
	for _, port := range []int{3000, 4000} {
		if err := w.store.Delete(context.Background(), "einstein", port, ""); err != nil {
			t.Fatal(err)
		}
	}
	<-still
	if _, err := io.ReadAll(byLink.Body); err == nil {
		t.Error("the answer of a link's visitor ended as if it were complete")
	}
}

// answerUpgrade is an app that upgrades and then sends nothing.
func answerUpgrade(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil && r.Header.Get("Upgrade") != "" {
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		io.Copy(io.Discard, c)
	}
}

// upgrade makes an upgraded connection to a port of einstein.
func (w *world) upgrade(port int, headers ...string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET /up HTTP/1.1\r\nHost: %d-einstein.localhost\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n", port)
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(c, "%s: %s\r\n", headers[i], headers[i+1])
	}
	io.WriteString(c, "\r\n")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 101 {
		w.t.Fatal(resp, err)
	}
	return upgraded{c, br}
}

// upgraded is a connection of which some was read ahead.
type upgraded struct {
	net.Conn
	ahead *bufio.Reader
}

func (u upgraded) Read(p []byte) (int, error) { return u.ahead.Read(p) }
