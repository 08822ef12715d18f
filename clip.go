package holt

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clip shortens untrusted text for logs, terminals and responses: if s is longer than most bytes, it returns the
// beginning in whole characters, and the length.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > max(0, most-utf8.UTFMax) && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:end], len(s))
}

// Visible makes untrusted text safe for a terminal: control characters,
// which could move its cursor or rename its window, become visible.
func Visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return 0x2400 + r // ␀…
		case r == 0x7f:
			return '␡'
		case r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // C1; reordering
			return '�'
		}
		return r
	}, s)
}
