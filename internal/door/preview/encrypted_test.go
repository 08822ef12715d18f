package preview

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// secure has a handler listen at a port of a computer with a certificate of its own making. reject is how it answers who speaks HTTP; nil:
// as Go's server does, with 400.
func (w *world) secure(port int, h http.HandlerFunc, reject func(net.Conn, *bufio.Reader)) *http.Server {
	w.t.Helper()
	l := w.listen(einstein, port)
	s := &http.Server{Handler: h, TLSConfig: selfSigned(w.t.(*testing.T)), ErrorLog: log.New(io.Discard, "", 0)}
	if reject == nil {
		go s.ServeTLS(l, "", "")
	} else {
		go s.ServeTLS(&sorted{l, reject}, "", "")
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

// sorted accepts what begins as TLS does.
type sorted struct {
	net.Listener
	reject func(net.Conn, *bufio.Reader)
}

type begun struct {
	net.Conn
	r *bufio.Reader
}

func (b begun) Read(p []byte) (int, error) { return b.r.Read(p) }

func (s *sorted) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		r := bufio.NewReader(c)
		if b, err := r.Peek(1); err == nil && b[0] == 0x16 {
			return begun{c, r}, nil
		}
		s.reject(c, r)
		c.Close()
	}
}

// said answers with what a request said.
func said(rw http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s %v %s %s", r.Method, b, r.TLS != nil, r.Host, r.Header.Get("X-Forwarded-Proto"))
}

// TestAppsThatSpeakTLS: an app with TLS works like one without, however it refuses HTTP: for the first request, with a
// body, and for later ones.
func TestAppsThatSpeakTLS(t *testing.T) {
	for name, reject := range map[string]func(net.Conn, *bufio.Reader){
		"400 (Go, nginx)":   nil,
		"breaks off (Node)": func(c net.Conn, _ *bufio.Reader) {},
		"resets (Python)":   func(c net.Conn, _ *bufio.Reader) { c.(*net.TCPConn).SetLinger(0) },
		"alert (OpenSSL)": func(c net.Conn, r *bufio.Reader) {
			r.Discard(r.Buffered())
			c.Write([]byte("\x15\x03\x01\x00\x02\x02\x46"))
		},
		"leads to https (code-server)": func(c net.Conn, r *bufio.Reader) {
			if q, err := http.ReadRequest(r); err == nil {
				io.Copy(io.Discard, q.Body)
				fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: https://%s%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", q.Host, q.RequestURI)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openWorld(t, nil)
			w.set("einstein", 3000, true)
			w.secure(3000, said, reject)
			for _, body := range []string{"", "small", strings.Repeat("large", mostRepeated)} {
				w.door.protocols.set = nil // each is the first one once
				for range 2 {
					resp := w.ask("POST", page3000, strings.NewReader(body))
					b, err := io.ReadAll(resp.Body)
					if want := "POST " + body + " true 3000-einstein.localhost http"; resp.StatusCode != 200 || err != nil || string(b) != want {
						t.Errorf("%d bytes: %d %.200q %v", len(body), resp.StatusCode, b, err)
					}
				}
			}
		})
	}
}

// TestTLSIsNoGuess: answers of apps without TLS that answer 400 or close the connection are forwarded. TLS is never tried
// with an app that answers.
func TestTLSIsNoGuess(t *testing.T) {
	w := openWorld(t, nil)
	var hellos atomic.Int32
	plain := func(port int, answer string) {
		w.set("einstein", port, true)
		w.raw(einstein, port, func(c net.Conn) {
			r := bufio.NewReader(c)
			if b, err := r.Peek(1); err == nil && b[0] == 0x16 {
				hellos.Add(1)
				return
			}
			if q, err := http.ReadRequest(r); err == nil {
				io.Copy(io.Discard, q.Body)
				io.WriteString(c, answer)
			}
		})
	}
	plain(3000, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	plain(3001, "HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad")
	plain(3002, "")
	for range 3 {
		if resp := w.ask("POST", page3000, strings.NewReader("x")); resp.StatusCode != 200 {
			t.Error(resp.StatusCode)
		}
	}
	if n := hellos.Load(); n != 0 {
		t.Errorf("an app that answers was offered TLS %d times", n)
	}
	for range 3 {
		if got, body := w.text("GET", "http://3001-einstein.localhost/"); got != 400 || body != "bad" {
			t.Error(got, body)
		}
	}
	if n := hellos.Load(); n != 1 {
		t.Errorf("an app that answers 400 was offered TLS %d times, want once in a while", n)
	}
	if got, body := w.text("GET", "http://3002-einstein.localhost/"); got != 502 {
		t.Error(got, body)
	}
}

// TestAppChangesToTLS: an app works after a restart with TLS, and after another without.
func TestAppChangesToTLS(t *testing.T) {
	w := openWorld(t, nil)
	w.set("einstein", 3000, true)
	for i, secure := range []bool{false, true, false, true} {
		w.door.transport.CloseIdleConnections()
		if secure {
			s := w.secure(3000, said, nil)
			defer s.Close()
		} else {
			w.app(einstein, 3000, said)
		}
		if got, body := w.text("GET", page3000); got != 200 || body != fmt.Sprintf("GET  %v 3000-einstein.localhost http", secure) {
			t.Errorf("%d, with TLS %v: %d %s", i, secure, got, body)
		}
	}
}

// TestWebSocketToTLS: WebSockets to an app with TLS work, and its redirects to https lead to the preview's address.
func TestWebSocketToTLS(t *testing.T) {
	w := openWorld(t, nil)
	w.set("einstein", 3000, true)
	w.secure(3000, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			http.Redirect(rw, r, "https://"+r.Host+"/done?a=b", http.StatusFound)
			return
		}
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		kind, b, err := c.Read(r.Context())
		if err == nil {
			c.Write(r.Context(), kind, bytes.ToUpper(b))
		}
		c.Close(websocket.StatusNormalClosure, "")
	}, nil)
	c, _, err := websocket.Dial(t.Context(), "ws://3000-einstein.localhost/", &websocket.DialOptions{HTTPClient: w.client()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(t.Context(), websocket.MessageText, []byte("through")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := c.Read(t.Context()); err != nil || string(b) != "THROUGH" {
		t.Errorf("%q %v", b, err)
	}
	resp := w.ask("GET", "http://3000-einstein.localhost:4647/login", nil)
	if to := resp.Header.Get("Location"); to != "http://3000-einstein.localhost:4647/done?a=b" {
		t.Errorf("it leads to %s", to)
	}
}

// patient is a connection without deadlines, like those to computers.
type patient struct{ net.Conn }

func (patient) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (patient) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (patient) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// TestTLSCloseEnds: an app that reads nothing after the handshake does not block the close of the connection.
func TestTLSCloseEnds(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	app := tls.Server(far, selfSigned(t))
	go app.Handshake()
	c, err := secure(t.Context(), patient{near})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * lastWord):
		t.Error("Close waits for the app")
	}
}
