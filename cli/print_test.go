package cli

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// Columns stand where a terminal shows them, whatever a name is made of.
func TestTable(t *testing.T) {
	var out strings.Builder
	err := printTable(&out, []string{"NAME", "KIND"}, [][]string{{"plain", "file"}, {"🦦🦦.txt", "file"}, {"日本", "dir"}, {"e\u0301te\u0301", "x"}, {"a\tb\x1b", ""}})
	want := strings.Join([]string{
		"NAME      KIND", "plain     file", "🦦🦦.txt  file", "日本      dir", "e\u0301te\u0301       x", "a␉b␛", ""}, "\n")
	if err != nil || out.String() != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, out.String(), want)
	}
}

// Bytes that are not UTF-8 are quoted as Git quotes names.
func TestCell(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, ""}, {"café", "café"}, {`"quoted\351"`, `"quoted\351"`}, {json.Number("12"), "12"},
		{map[string]any{"base64": "Y2Fm6S50eHQ="}, `"caf\351.txt"`},
		{map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte("\u00e9\n\"\\\xff\u202e\u0085"))}, `"é\012\"\\\377\342\200\256\302\205"`},
		{map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte("\ufffd\xfe"))}, "\"\ufffd\\376\""},
		{map[string]any{"base64": "!"}, `{"base64":"!"}`},
	} {
		if got := cell(c.v); got != c.want {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
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
