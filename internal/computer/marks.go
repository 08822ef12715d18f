package computer

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"holt/internal/workspace"
)

// marks are the file operations in progress on behalf of callers. Their changes come back through
// the file channel with the operation's mark. A guest can copy a mark, so each is valid only during
// its operation. The zero value is ready.
type marks struct {
	mu   sync.Mutex
	open map[string]workspace.Writer
}

// begin returns a mark that is valid until done is called.
func (m *marks) begin(w workspace.Writer) (mark string, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[string]workspace.Writer{}
	}
	for taken := true; taken; _, taken = m.open[mark] {
		var b [4]byte
		rand.Read(b[:]) // never fails, see crypto/rand
		mark = hex.EncodeToString(b[:])
	}
	m.open[mark] = w
	return mark, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, mark)
	}
}

// writer returns the writer of a tag that is a valid mark.
func (m *marks) writer(tag string) (workspace.Writer, bool) {
	mark, ok := strings.CutPrefix(tag, "for/")
	if !ok {
		return workspace.Writer{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	w, ok := m.open[mark]
	return w, ok
}
