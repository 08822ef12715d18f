package preview

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// unread are requests of clients that read nothing of what an app sends without end.
var unread = map[string]string{
	"HTTP/1.1":                  "GET / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\n\r\n",
	"early answers":             "GET /early HTTP/1.1\r\nHost: 3000-einstein.localhost\r\n\r\n",
	"HTTP/2, no window":         http2Get("3000-einstein.localhost", 0),
	"HTTP/2, the widest window": http2Get("3000-einstein.localhost", 1<<31-1),
	"upgraded":                  "GET / HTTP/1.1\r\nHost: 3000-einstein.localhost\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n",
}

// http2Get is all that a client of HTTP/2 has to say for a GET whose answer may have so many bytes in flight.
func http2Get(host string, window uint32) string {
	frame := func(kind, flags byte, stream uint32, payload []byte) string {
		b := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind)), flags)
		return string(append(binary.BigEndian.AppendUint32(b, stream), payload...))
	}
	headers := append([]byte{0x82, 0x86, 0x84, 0x01, byte(len(host))}, host...) // GET, http, /, and :authority (RFC 7541, A)
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
		frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window)) + // SETTINGS_INITIAL_WINDOW_SIZE
		frame(8, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<31-1-65535)) + // WINDOW_UPDATE of the connection
		frame(1, 5, 1, headers) // END_STREAM, END_HEADERS
}

// say sends a request whose answer nobody reads.
func (w *world) say(text string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
}

// endless has something at a public port of einstein send without end; it returns how many bytes that were.
func (w *world) endless(port int) *atomic.Int64 {
	sent := new(atomic.Int64)
	w.raw(einstein, port, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		head, piece := "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 4096)
		if r.Header.Get("Upgrade") != "" {
			head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: odd/1\r\n\r\n"
		}
		pieces := -1
		if r.URL.Path == "/early" {
			head, piece, pieces = "", "HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", mostHeader*3/4)+"\r\n\r\n", most1xx
		}
		for io.WriteString(c, head); err == nil && pieces != 0; pieces-- {
			var n int
			n, err = io.WriteString(c, piece)
			sent.Add(int64(n))
		}
		io.Copy(io.Discard, c)
	})
	w.set("einstein", port, true)
	return sent
}

// stuck waits until nothing goes on any more of what is sent.
func stuck(t testing.TB, sent *atomic.Int64) {
	t.Helper()
	before, since := int64(0), time.Now()
	until(t, "an app that waits", func() bool {
		if n := sent.Load(); n != before {
			before, since = n, time.Now()
		}
		return before > 0 && time.Since(since) > time.Second/2
	})
}

// free waits until no request is open and no use of a computer is marked.
func (w *world) free(what string) {
	w.t.Helper()
	until(w.t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, n := range w.uses {
			if n > 0 {
				return false
			}
		}
		w.store.streams.mu.Lock()
		defer w.store.streams.mu.Unlock()
		return w.store.streams.all == 0
	})
}

// TestUnread: who does not read keeps neither the daemon from its end, nor a use of the computer and a place among the
// requests that are open: when the right to it has gone, or after a time.
func TestUnread(t *testing.T) {
	patience := 5 * time.Minute
	ends := map[string]func(*world){
		"the daemon ends": func(w *world) {
			late, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			ended := make(chan struct{})
			go func() { w.door.Shutdown(late); close(ended) }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				w.t.Error("the door does not end")
			}
		},
		"the right ends": func(w *world) {
			if err := w.store.Delete(context.Background(), "einstein", 3000, ""); err != nil {
				w.t.Fatal(err)
			}
		},
		"patience ends": nil,
	}
	for what, end := range ends {
		for name, text := range unread {
			if what == "patience ends" && name == "upgraded" || what == "the right ends" && strings.HasSuffix(name, "widest window") {
				continue // as slow as it likes; after a time only, since the connection has others' answers, too
			}
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				w := openWorld(t, func(opt *Options) {
					if opt.Patience = patience; end == nil {
						opt.Patience = 2 * time.Second
					}
				})
				sent := w.endless(3000)
				w.say(text)
				if end != nil {
					stuck(t, sent)
					end(w)
				} else {
					until(t, "an answer", func() bool { return sent.Load() > 0 })
				}
				w.free(name)
			})
		}
	}
}
