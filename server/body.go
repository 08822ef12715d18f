package server

import (
	"io"
	"net/http"
	"time"
)

// slowBody bounds slow senders: each read has to bring something within
// patient. The deadline is lifted after each read, because net/http goes on
// reading the connection behind the body to notice a caller who hangs up; it
// would take an expired deadline for that and cancel the handler.
type slowBody struct {
	io.ReadCloser
	ctl     *http.ResponseController
	patient time.Duration // 0: for ever
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.patient == 0 {
		return b.ReadCloser.Read(p)
	}
	_ = b.ctl.SetReadDeadline(time.Now().Add(b.patient)) // only a test's recorder cannot
	n, err := b.ReadCloser.Read(p)
	_ = b.ctl.SetReadDeadline(time.Time{})
	return n, err
}
