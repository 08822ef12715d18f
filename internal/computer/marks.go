package computer

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"

	"holt/internal/workspace"
)

// marks are the operations on a guest's files that go on for somebody outside.
// What they change comes back through the file channel with the operation's
// mark. The guest could put a mark on anything else, so each is worth something
// only while its operation lasts. The zero value is ready.
type marks struct {
	mu   sync.Mutex
	open map[string]workspace.Writer
}

// begin gives an operation its mark, until done is called.
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

// writer returns whom a tag stands for, if it is the mark of an operation that goes on.
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
