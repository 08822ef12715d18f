package preview

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// zeros is a reader of a number of zero bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(z.left, int64(len(p))))
	z.left -= int64(n)
	return n, nil
}

// TestStreams: answers are flushed at once, bodies are streamed in both directions, and trailers, early answers,
// 100-continue and HEAD work: over HTTP/1.1, HTTP/2, and HTTP/2 with TLS.
func TestStreams(t *testing.T) {
	w := openWorld(t, nil)
	w.set("einstein", 3000, true)
	next := make(chan struct{})
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).EnableFullDuplex()
		switch r.URL.Path {
		case "/events":
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				http.NewResponseController(rw).Flush()
				<-next
			}
		case "/slowly": // of known length
			rw.Header().Set("Content-Length", "2")
			io.WriteString(rw, "a")
			http.NewResponseController(rw).Flush()
			<-next
			io.WriteString(rw, "b")
		case "/count":
			n, err := io.Copy(io.Discard, r.Body)
			rw.Header().Set("Trailer", "X-Announced")
			fmt.Fprintf(rw, "%d %v %s", n, err, r.Trailer.Get("X-Sum"))
			rw.Header().Set("X-Announced", "yes")
			rw.Header().Set(http.TrailerPrefix+"X-Late", "too")
		case "/echo":
			for b := make([]byte, 1); ; {
				if _, err := r.Body.Read(b); err != nil {
					return
				}
				rw.Write(b)
				http.NewResponseController(rw).Flush()
			}
		case "/early":
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
		case "/large":
			rw.Header().Set("Content-Length", fmt.Sprint(r.URL.Query().Get("n")))
			if r.Method != http.MethodHead {
				var n int64
				fmt.Sscan(r.URL.Query().Get("n"), &n)
				io.Copy(rw, &zeros{n})
			}
		}
	})
	secure := w.serve(Serving{TLS: selfSigned(t)})
	for name, c := range map[string]*http.Client{"HTTP/1.1": w.over(w.addr, 1, false), "HTTP/2": w.over(w.addr, 2, false), "HTTP/2 with TLS": w.over(secure, 2, true)} {
		t.Run(name, func(t *testing.T) {
			base := page3000
			if strings.HasSuffix(name, "TLS") {
				base = strings.Replace(base, "http:", "https:", 1)
			}
			do := func(method, path string, body io.Reader, headers ...string) *http.Response {
				t.Helper()
				r, err := http.NewRequest(method, base+path, body)
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				if len(headers) > 0 && headers[0] == "X-Trailed" {
					r.Trailer = http.Header{"X-Sum": {"42"}}
				}
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(method, path, err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				if strings.HasPrefix(name, "HTTP/2") != (resp.ProtoMajor == 2) {
					t.Errorf("it is %s", resp.Proto)
				}
				return resp
			}
			events := bufio.NewReader(do("GET", "events", nil).Body)
			for i := range 3 { // each is read before the next one is sent
				if line, err := events.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("%q %v", line, err)
				}
				events.ReadString('\n')
				next <- struct{}{}
			}
			slowly := do("GET", "slowly", nil)
			if b := make([]byte, 1); true {
				if _, err := io.ReadFull(slowly.Body, b); err != nil || b[0] != 'a' {
					t.Errorf("%q %v", b, err)
				}
			}
			next <- struct{}{}
			counted := do("POST", "count", io.MultiReader(&zeros{100_000}), "X-Trailed", "1")
			if b, err := io.ReadAll(counted.Body); string(b) != "100000 <nil> 42" || err != nil || counted.Trailer.Get("X-Announced") != "yes" || counted.Trailer.Get("X-Late") != "too" {
				t.Errorf("%q %v %v", b, err, counted.Trailer)
			}
			// A GET may have a body and trailers: the door must not probe for a body ahead of the transport.
			if bare := do("GET", "count", io.MultiReader(), "X-Trailed", "1"); bare.ProtoMajor == 2 { // the client of HTTP/1 probes for a body itself
				if b, err := io.ReadAll(bare.Body); string(b) != "0 <nil> 42" || err != nil {
					t.Errorf("%q %v", b, err)
				}
			}
			pr, pw := io.Pipe() // both ways at once: each byte comes back before the next is sent
			time.AfterFunc(30*time.Second, func() { pw.Close() })
			echoed := make(chan *http.Response, 1)
			go func() { echoed <- do("POST", "echo", pr) }()
			pw.Write([]byte{1})
			resp := <-echoed
			for i := range byte(3) {
				b := make([]byte, 1)
				if _, err := io.ReadFull(resp.Body, b); err != nil || b[0] != i+1 {
					t.Fatalf("%v %v", b, err)
				}
				pw.Write([]byte{i + 2})
			}
			pw.Close()
			if head := do("HEAD", "large?n=5", nil); head.ContentLength != 5 {
				t.Errorf("HEAD: %d", head.ContentLength)
			}
			if early := do("POST", "early", &zeros{1 << 30}, "Expect", "100-continue"); early.StatusCode != 413 {
				t.Errorf("early: %d", early.StatusCode)
			}
		})
	}
}

// TestLargeBodies sends a gigabyte each way (with -short 64 MiB) in bounded memory. A client that does not read makes the
// app wait.
func TestLargeBodies(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	w := openWorld(t, nil)
	w.set("einstein", 3000, true)
	sent := make(chan int64, 1)
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(rw, n)
			return
		}
		n, _ := io.Copy(rw, &zeros{size})
		sent <- n
	})
	stop, peak := make(chan struct{}), make(chan uint64)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	go func() {
		var most uint64
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-stop:
				peak <- most
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	resp := w.ask("GET", page3000, nil)
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Error(n, err)
	}
	<-sent
	up := w.ask("POST", page3000, &zeros{size})
	if b, err := io.ReadAll(up.Body); string(b) != fmt.Sprint(size) {
		t.Errorf("%q %v", b, err)
	}
	unread := w.ask("GET", page3000, nil)
	close(stop)
	if most := <-peak; most > before.HeapAlloc+32<<20 {
		t.Errorf("the heap grew by %d MiB", (most-before.HeapAlloc)>>20)
	}
	unread.Body.Close() // the app gets an error
	if n := <-sent; n == size {
		t.Error("the door read more from the app than the client")
	}
}

// TestWebSockets: messages pass both ways with the negotiated subprotocol. Another upgrade than the requested one fails.
func TestWebSockets(t *testing.T) {
	w := openWorld(t, nil)
	w.app(einstein, 3000, func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"vite-hmr"}})
		if err != nil {
			return
		}
		c.SetReadLimit(-1)
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil || c.Write(r.Context(), kind, b) != nil {
				return
			}
		}
	})
	w.raw(einstein, 4000, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
	})
	w.set("einstein", 4000, true)
	link := w.link("einstein", 3000)
	header := http.Header{"Cookie": {"holt-preview=" + link.Token}, "Origin": {"http://3000-einstein.localhost"}}
	c, _, err := websocket.Dial(t.Context(), "ws://3000-einstein.localhost/", &websocket.DialOptions{HTTPClient: w.client(), HTTPHeader: header, Subprotocols: []string{"vite-hmr"}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Subprotocol() != "vite-hmr" {
		t.Error(c.Subprotocol())
	}
	c.SetReadLimit(-1)
	for _, n := range []int{0, 1, 100_000, 1 << 20} {
		want := bytes.Repeat([]byte{byte(n)}, n)
		if err := c.Write(t.Context(), websocket.MessageBinary, want); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || !bytes.Equal(got, want) {
			t.Fatal(len(got), err)
		}
	}
	w.mu.Lock()
	n := w.uses["preview of port 3000: websocket /"]
	w.mu.Unlock()
	if n != 1 {
		t.Error("its use is not marked:", w.uses)
	}
	c.CloseNow()
	header["Origin"] = []string{"http://evil.example"}
	if _, resp, err := websocket.Dial(t.Context(), "ws://3000-einstein.localhost/", &websocket.DialOptions{HTTPClient: w.client(), HTTPHeader: header}); err == nil || resp.StatusCode != 403 {
		t.Error("another site's page has a WebSocket:", err)
	}
	if got, body := w.text("GET", "http://4000-einstein.localhost/", "Connection", "Upgrade", "Upgrade", "websocket"); got != 502 {
		t.Error(got, body)
	}
}

// over is a client of one version of HTTP.
func (w *world) over(addr string, version int, secure bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(version == 1)
	p.SetHTTP2(version == 2 && secure)
	p.SetUnencryptedHTTP2(version == 2 && !secure)
	tr := w.client().Transport.(*http.Transport)
	tr.DialContext = dialTo(addr)
	tr.Protocols, tr.TLSClientConfig = p, &tls.Config{InsecureSkipVerify: true} // it is our own
	tr.ExpectContinueTimeout = time.Minute
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// TestHostileApps: invalid answers of an app give its visitors an error and do not affect the door.
func TestHostileApps(t *testing.T) {
	w := openWorld(t, nil)
	w.door.transport.ResponseHeaderTimeout = 500 * time.Millisecond
	link := map[int]string{}
	port := 2000
	for what, answer := range map[string]string{
		"closes":            "",
		"never answers":     "wait",
		"half a line":       "HTTP/1.1 20",
		"no HTTP":           "SSH-2.0-OpenSSH_9.2\r\n",
		"giant header":      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"many headers":      "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 1<<17) + "\r\n",
		"endless 1xx":       strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 1000),
		"a bad length":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"an odd status":     "HTTP/1.1 99999 X\r\n\r\n",
		"upgrade unasked":   "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"a split header":    "HTTP/1.1 200 OK\r\nX: a\rInjected: b\r\nContent-Length: 0\r\n\r\n",
		"an unknown coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
	} {
		port++
		w.raw(einstein, port, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			if answer == "wait" {
				io.Copy(io.Discard, c)
				return
			}
			io.WriteString(c, answer)
		})
		link[port] = w.link("einstein", port).Token
		got, body := w.text("GET", fmt.Sprintf("http://%d-einstein.localhost/", port), "X-Holt-Token", link[port])
		if got != 502 && !(what == "a split header" && got == 200) {
			t.Errorf("%s: %d %.100q", what, got, body)
		}
		if strings.Contains(body, "cmp_") || strings.Contains(body, "127.0.0.1:") {
			t.Errorf("%s: it tells too much: %s", what, body)
		}
	}
	for what, answer := range map[string]string{
		"ends early":   "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
		"bad chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"long chunks":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
		"long comment": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 1<<20) + "\r\n",
	} {
		port++
		w.raw(einstein, port, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
		})
		w.set("einstein", port, true)
		resp, err := w.client().Get(fmt.Sprintf("http://%d-einstein.localhost/", port))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: the truncated answer has no error", what)
		}
	}
	// An unsolicited second answer may reach only the next request to the same app.
	w.raw(einstein, 3000, func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmineHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
		}
	})
	w.app(einstein, 4000, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "other") })
	w.set("einstein", 3000, true)
	w.set("einstein", 4000, true)
	for range 10 {
		if got, body := w.text("GET", page3000); got != 200 && got != 502 || got == 200 && body != "mine" && body != "poison" {
			t.Fatalf("%d %q", got, body)
		}
		if got, body := w.text("GET", "http://4000-einstein.localhost/"); got != 200 || body != "other" {
			t.Fatalf("%d %q", got, body)
		}
	}
}
