package cli_test

import (
	"testing"

	"github.com/creack/pty"

	"holt/internal/door/httpapi/servertest"
)

// TestTopLive: top fills the window, also a changed one, and gives it back when q is typed, and on Ctrl-C.
func TestTopLive(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	for _, key := range []string{"q", "\x03"} {
		p := sit(t, d, "top")
		p.sees("\x1b[?1049h")
		p.sees("1 computer, 1 running: ")
		p.sees("WORKSPACE")
		if err := pty.Setsize(p.tty, &pty.Winsize{Rows: 2, Cols: 30}); err != nil {
			t.Fatal(err)
		}
		p.sees("1 computer, 1 running: CPU 0 …")
		p.types(key)
		if status := p.leaves(); status != 0 {
			t.Errorf("%q: status %d", key, status)
		}
		p.sees("\x1b[?25h\x1b[?1049l")
	}
}
