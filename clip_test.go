package holt

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"", ""}, {"four", "four"}, {"fives", "five… (5 bytes)"}, {"abcä", "abc… (5 bytes)"}, {"äöü", "äö… (6 bytes)"},
		{strings.Repeat("\x80", 9), "… (9 bytes)"}, {"\xff\xff\xff\xff\xff", "\xff\xff\xff\xff… (5 bytes)"},
	} {
		if got := Clip(c.s, 4); got != c.want {
			t.Errorf("%q: got %q, want %q", c.s, got, c.want)
		}
	}
}
