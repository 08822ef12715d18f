package daemon_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// shown is what a terminal has shown, as bytes.
type shown struct {
	mu   sync.Mutex
	text strings.Builder
	from int // what was looked at
}

func newShown(r io.Reader) *shown {
	s := &shown{}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// await waits until a text is shown that was not waited for before.
func (s *shown) await(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(sshTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		i := strings.Index(s.text.String()[s.from:], text)
		if i >= 0 {
			s.from += i + len(text)
		}
		s.mu.Unlock()
		if i >= 0 {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Fatalf("%q is not shown: %q", text, s.text.String()[s.from:])
}
