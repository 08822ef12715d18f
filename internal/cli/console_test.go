package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// A guest's console does nothing to the terminal it is shown on, however its
// bytes are cut.
func TestConsoleWriter(t *testing.T) {
	const said = "boot\r\n\x1b]0;mine\x07\x1b[2Jä€😀\rover\u202e\xff end\n"
	for n := 1; n < len(said); n++ {
		var screen bytes.Buffer
		w := &consoleWriter{w: &screen}
		for rest := said; rest != ""; {
			k := min(n, len(rest))
			if got, err := w.Write([]byte(rest[:k])); got != k || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[k:]
		}
		got := screen.String()
		if strings.ContainsAny(got, "\x1b\x07\u202e") || !utf8.ValidString(got) {
			t.Errorf("in pieces of %d: %q", n, got)
		}
		for _, want := range []string{"boot", "ä€😀", "␛]0;mine␇", " end\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("in pieces of %d: %q has no %q", n, got, want)
			}
		}
	}
}
