package cli

import (
	"strings"
	"testing"
)

// Columns stand where a terminal shows them, whatever a name is made of.
func TestTable(t *testing.T) {
	var out strings.Builder
	err := printTable(&out, []string{"NAME", "KIND"}, [][]string{{"plain", "file"}, {"🦦🦦.txt", "file"}, {"日本", "dir"}, {"e\u0301te\u0301", "x"}, {"a\tb\x1b", ""}})
	want := strings.Join([]string{
		"NAME      KIND", "plain     file", "🦦🦦.txt  file", "日本      dir", "e\u0301te\u0301       x", "a␉b␛      ", ""}, "\n")
	if err != nil || out.String() != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, out.String(), want)
	}
}

// What a daemon's log ends with is told without what stands before it.
func TestLastWords(t *testing.T) {
	for _, c := range []struct{ tail, want string }{
		{"{\"msg\":\"holt: x\"}\nholt: no room\nhint: make some", "no room\nhint: make some"},
		{"holt: no room", "no room"},
		{"panic: oh", "\npanic: oh"},
	} {
		if got := lastWords(c.tail); got != c.want {
			t.Errorf("%q: %q, want %q", c.tail, got, c.want)
		}
	}
}
