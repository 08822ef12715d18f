package holt

import (
	"fmt"
	"unicode/utf8"
)

// Clip keeps what somebody else wrote from filling a log, a terminal or an answer: of what is longer than
// most bytes it returns the beginning, as whole characters, and how long it is.
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
