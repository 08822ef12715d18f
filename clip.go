package holt

import (
	"fmt"
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
