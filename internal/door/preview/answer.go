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
)

// answer is what is known about a request, and the response writer of its answer, which bounds slow clients.
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
	idle    bool // it is no use of the computer, and wakes it not
	refused bool // who shows something that does not open it
	status  int
	bytes   int64
	err     error
	queued  *time.Timer // runs while it waits for a connection that is not made for it

	mu   sync.Mutex
	last time.Time // when it has to be written, since it was cut; zero: no such time
	conn net.Conn  // that it became
	over bool      // it is net/http's again
}

// lastWord is how long who is cut off has to hear why.
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
	if status < 200 { // is sent at once
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

// Hijack is for http.ResponseController: who takes the connection answers with it, that it is of another protocol from then on.
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

// bound bounds what is written until it is lifted: in HTTP/2 a deadline that passes ends the stream, written to or not.
func (a *answer) bound() (lift func()) {
	a.deadline(time.Now().Add(a.patient))
	return func() { a.deadline(time.Time{}) }
}

// deadline is until when may be written, the zero time for ever; once it was cut it is no later than that allows.
func (a *answer) deadline(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.last.IsZero() && (at.IsZero() || at.After(a.last)) {
		at = a.last
	}
	_ = a.ctl.SetWriteDeadline(at) // only a test's recorder cannot
}

// cut ends it, also while a client that does not read is written to: the right to it has ended, or the daemon does. What
// it was upgraded to ends at once; else there is a last word.
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

// end leaves to net/http what it still holds.
func (a *answer) end() {
	a.deadline(time.Now().Add(a.patient))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
}

// patientBody bounds slow senders: each read has to bring something. The deadline is lifted after each, because
// net/http goes on reading behind the body to notice a caller who hangs up. What sends the body to an app may still
// read when the request has been answered; then there is nothing any more that has a deadline.
type patientBody struct {
	io.ReadCloser
	ctl     *http.ResponseController
	patient time.Duration
	trailer http.Header // of the request, filled in at its end
	trailTo http.Header // gets of that what an app may see

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
		_ = b.ctl.SetReadDeadline(at) // only a test's recorder cannot
	}
}

// end is called when the request was answered; what is left of the body has a snapshot to come.
func (b *patientBody) end() {
	b.deadline(time.Now().Add(time.Second))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
