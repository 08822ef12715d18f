package httpapi

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// slowBody bounds slow senders: each read has to bring something within
// patient. The deadline is lifted after each read, because net/http keeps
// reading the connection behind the body to notice a caller who hangs up; it
// would take an expired deadline for that and cancel the handler.
type slowBody struct {
	io.ReadCloser
	ctl     *http.ResponseController
	patient time.Duration // 0: for ever
	until   time.Time     // by when all of it has to be there; zero: any time
	linger  time.Duration // how long an answer waits for the rest of the body
	ended   atomic.Bool   // a noun may still be reading when the answer begins
	left    atomic.Bool   // see Abandon
}

// errAbandoned is what reading an abandoned body fails with.
var errAbandoned = errors.New("another call continues it, or its token may do nothing more")

// Abandon ends the reading of the body from outside: a read that waits, and all that come.
func (b *slowBody) Abandon() {
	b.left.Store(true)
	_ = b.ctl.SetReadDeadline(time.Unix(1, 0)) // only a test's recorder cannot
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.patient > 0 {
		at := time.Now().Add(b.patient)
		if !b.until.IsZero() && b.until.Before(at) {
			at = b.until
		}
		_ = b.ctl.SetReadDeadline(at) // only a test's recorder cannot
		defer b.ctl.SetReadDeadline(time.Time{})
	}
	if b.left.Load() {
		return 0, errAbandoned
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.left.Load() {
		err = errAbandoned
	}
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Close reads what is left of the body, as net/http does, but not for ever.
func (b *slowBody) Close() error {
	if !b.ended.Load() {
		_ = b.ctl.SetReadDeadline(time.Now().Add(b.linger))
		defer b.ctl.SetReadDeadline(time.Time{})
	}
	return b.ReadCloser.Close()
}

// answering is called before an answer begins. net/http then reads what is
// left of the body, so that the connection can be used again, and it would
// wait for ever for a caller who sends no more.
func (b *slowBody) answering() {
	if !b.ended.Load() {
		_ = b.ctl.SetReadDeadline(time.Now().Add(b.linger))
	}
}
