package holt_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"holt"
)

func TestOSString(t *testing.T) {
	for raw, want := range map[holt.OSString]string{
		"":                     "",
		"/plain/ä \n\\ \"\x00": "/plain/ä \n\\ \"\x00",
		"a\uFFFDb":             "a\uFFFDb",
		"/a\xff":               `"/a\377"`,
		"\xed\xb3\xbf":         `"\355\263\277"`, // a surrogate is not UTF-8
		"\x00\\\x80ä\n\"":      "\"\x00\\\\\\200ä\n\\\"\"",
		`"quoted"`:             `"quoted"`,
		`"of \"json\": \\ "`:   `"of \"json\": \\ "`,
		`"\303\244"`:           `"\303\244"`, // that is ä: nothing is written so
		`"a\377"`:              `"\"a\\377\""`,
		`"\"a\\377\""`:         `"\"\\\"a\\\\377\\\"\""`,
		`"`:                    `"`,
		`"\"`:                  `"\"`,
		`"a"b\377"`:            `"a"b\377"`,
		`"\400"`:               `"\400"`,
		`"\37"`:                `"\37"`,
	} {
		if got := raw.Text(); got != want {
			t.Errorf("%q is %s, want %s", raw, got, want)
		}
		if back := holt.ParseOSString(want); back != raw {
			t.Errorf("%s is read as %q, want %q", want, back, raw)
		}
	}
}

func TestOSStrings(t *testing.T) {
	for _, all := range []holt.OSStrings{nil, {}, {"/a", "/\xfe"}} {
		data, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		back := holt.OSStrings{"before"}
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all, back); diff != "" {
			t.Errorf("%s: %s", data, diff)
		}
	}
}

// FuzzOSString takes any bytes: they come back through JSON, and as text they
// mean one string, whose form they are.
func FuzzOSString(f *testing.F) {
	for _, seed := range []string{"", "/a", `"\377"`, `"\"\\377\""`, `"\n\\"`, "\xff\"", `"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data, err := json.Marshal(holt.OSString(text))
		if err != nil || !utf8.Valid(data) {
			t.Fatalf("%q is %s: %v", text, data, err)
		}
		var back holt.OSString
		if err := json.Unmarshal(data, &back); err != nil || string(back) != text {
			t.Fatalf("%q comes back as %q: %v", text, back, err)
		}
		if read := holt.ParseOSString(text); utf8.ValidString(text) && read.Text() != text {
			t.Fatalf("%q is %q, whose form is %q", text, read, read.Text())
		}
	})
}
