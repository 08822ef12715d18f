package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// timed keeps the deadline of its writes.
type timed struct {
	http.ResponseWriter
	until time.Time
}

func (t *timed) SetWriteDeadline(until time.Time) error {
	t.until = until
	return nil
}

// TestRestEnds: a write that waits for a caller that reads nothing, as one of a beat, is bounded once the following has ended.
func TestRestEnds(t *testing.T) {
	w := &timed{ResponseWriter: httptest.NewRecorder()}
	q := &request{ResponseWriter: w, ctl: http.NewResponseController(w), patient: time.Minute}
	stop := q.wait(t.Context())
	if q.limit(); !w.until.IsZero() {
		t.Errorf("a follower's write is bounded: %v", w.until)
	}
	if stop(); w.until.IsZero() || time.Until(w.until) > q.patient {
		t.Errorf("what is being written waits until %v", w.until)
	}
	w.until = time.Time{}
	if q.limit(); w.until.IsZero() {
		t.Error("the next write is not bounded")
	}
}
