package preview

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"holt"
)

// answer is the state of a request, and its response writer, which has timeouts for slow clients.
type answer struct {
	http.ResponseWriter
	ctl     *http.ResponseController
	r       *http.Request
	body    *patientBody
	id      string
	began   time.Time
	patient time.Duration
	site    site
	from    origin
	visitor visitor
	link    holt.ArtifactLink // of a download
	tenant  string            // of its artifact
	idle    bool              // it does not count as a use, and does not wake the computer
	refused bool              // by invalid credentials
	status  int
	bytes   int64
	err     error
	queued  *time.Timer // runs while it waits for another request's connection

	mu   sync.Mutex
	last time.Time // last write deadline after cut; zero: not cut
	conn net.Conn  // after an upgrade
	over bool      // net/http owns the connection again
}

// lastWord is how long a client that is cut off has to read the answer.
const lastWord = 2 * time.Second

type answerKey struct{}

func answerOf(ctx context.Context) *answer {
	a, _ := ctx.Value(answerKey{}).(*answer)
	return a
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	if status < 200 { // it is sent at once
		defer a.bound()()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	defer a.bound()()
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Hijack is for http.ResponseController. The caller answers that the protocol changes.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.status = http.StatusSwitchingProtocols
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn = conn; !a.last.IsZero() {
		conn.Close()
	}
	return conn, rw, nil
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	defer a.bound()()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// bound sets a write deadline until lift is called: in HTTP/2 a deadline that passes ends the stream even without a
// write.
func (a *answer) bound() (lift func()) {
	a.deadline(time.Now().Add(a.patient))
	return func() { a.deadline(time.Time{}) }
}

// deadline sets the write deadline; zero: none. After cut it is at most last.
func (a *answer) deadline(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.last.IsZero() && (at.IsZero() || at.After(a.last)) {
		at = a.last
	}
	_ = a.ctl.SetWriteDeadline(at) // fails only for recorders of tests
}

// cut ends the answer, also during a write to a client that does not read, when the right to it or the daemon ends. An
// upgraded connection ends at once; otherwise the client has lastWord to read.
func (a *answer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over || !a.last.IsZero():
	case a.conn != nil:
		a.conn.Close()
	default:
		a.last = time.Now().Add(lastWord)
		_ = a.ctl.SetWriteDeadline(a.last)
	}
}

// end returns the connection to net/http.
func (a *answer) end() {
	a.deadline(time.Now().Add(a.patient))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// patientBody sets a deadline for each read, for slow clients. It removes the deadline after each read, since
// net/http keeps reading to notice a client that disconnects. The transport may still read the body after the
// request is answered; by then the deadlines belong to another request.
type patientBody struct {
	io.ReadCloser
	ctl     *http.ResponseController
	patient time.Duration
	trailer http.Header // of the request, set at its end
	trailTo http.Header // gets the filtered trailer

	mu   sync.Mutex
	over bool
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.deadline(time.Now().Add(b.patient))
	defer b.deadline(time.Time{})
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.trailTo != nil {
		maps.Copy(b.trailTo, b.trailer)
		withoutOurs(b.trailTo)
	}
	return n, err
}

func (b *patientBody) deadline(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.ctl.SetReadDeadline(at) // fails only for recorders of tests
	}
}

// end is called after the answer. The rest of the body has one second to arrive.
func (b *patientBody) end() {
	b.deadline(time.Now().Add(time.Second))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
