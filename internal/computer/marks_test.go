package computer

import (
	"testing"

	"holt/internal/workspace"
)

// A mark is worth something while its operation goes on, and no longer.
func TestMarks(t *testing.T) {
	var m marks
	ada, ci := workspace.Writer{Kind: "person", Name: "ada"}, workspace.Writer{Kind: "token", Name: "ci"}
	first, done := m.begin(ada)
	second, _ := m.begin(ci)
	if w, ok := m.writer("for/" + first); !ok || w != ada {
		t.Errorf("%+v, %v", w, ok)
	}
	if w, ok := m.writer("for/" + second); !ok || w != ci {
		t.Errorf("%+v, %v", w, ok)
	}
	done()
	for _, tag := range []string{"for/" + first, "for/", "run/" + second, second, ""} {
		if w, ok := m.writer(tag); ok {
			t.Errorf("%q is worth %+v", tag, w)
		}
	}
}
