package holt

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// OSString is a string of the operating system: the name of a file, a path, the
// target of a symlink, an attribute, an argument. Linux takes any bytes, of
// which most are UTF-8.
//
// JSON carries only UTF-8. There such a string is itself, unless it holds bytes
// that are not UTF-8: then it is written as Git writes such names, between
// quotes, with a backslash and three octal digits for a byte that is not UTF-8,
// a backslash before a quote or a backslash, and everything else as it is. What
// already looks like that (it is text, and exactly what some other string is
// written as) is quoted once more. So every string has one form, every form one
// meaning, and nobody meets quotes who has no such names. It is so in every
// request and every answer; in the query of a URL bytes are percent-encoded.
type OSString string

// Text returns the form that s has in JSON.
func (s OSString) Text() string {
	if utf8.ValidString(string(s)) && ParseOSString(string(s)) == s {
		return string(s)
	}
	return quoted(string(s))
}

// ParseOSString is the inverse of [OSString.Text]. Text that is not the form of
// another string is itself.
func ParseOSString(text string) OSString {
	s, ok := unquoted(text)
	if ok && OSString(s).Text() == text {
		return OSString(s)
	}
	return OSString(text)
}

// MarshalText returns s.Text.
func (s OSString) MarshalText() ([]byte, error) { return []byte(s.Text()), nil }

// UnmarshalText is ParseOSString. It never fails.
func (s *OSString) UnmarshalText(text []byte) error {
	*s = ParseOSString(string(text))
	return nil
}

func quoted(s string) string {
	out := append(make([]byte, 0, len(s)+16), '"')
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, '\\', '0'+s[0]>>6, '0'+s[0]>>3&7, '0'+s[0]&7)
		case r == '"' || r == '\\':
			out = append(out, '\\', s[0])
		default:
			out = append(out, s[:n]...)
		}
		s = s[n:]
	}
	return string(append(out, '"'))
}

// unquoted is the inverse of quoted; ok is false for what quoted never writes,
// and for some of what it would write otherwise.
func unquoted(text string) (s string, ok bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' || !strings.Contains(text, `\`) {
		return "", false
	}
	var out []byte
	for text = text[1 : len(text)-1]; text != ""; {
		switch n := strings.IndexAny(text, `"\`); {
		case n < 0:
			return string(append(out, text...)), true
		case n > 0:
			out, text = append(out, text[:n]...), text[n:]
		case len(text) >= 2 && text[0] == '\\' && (text[1] == '"' || text[1] == '\\'):
			out, text = append(out, text[1]), text[2:]
		case len(text) >= 4 && text[0] == '\\' && text[1] >= '2' && text[1] <= '3' && isOctal(text[2]) && isOctal(text[3]):
			out, text = append(out, (text[1]-'0')<<6|(text[2]-'0')<<3|(text[3]-'0')), text[4:]
		default:
			return "", false
		}
	}
	return string(out), true
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// OSStrings are several, in JSON each as an [OSString].
type OSStrings []string

// MarshalJSON returns a list of the forms.
func (all OSStrings) MarshalJSON() ([]byte, error) {
	if all == nil {
		return []byte("null"), nil
	}
	out := make([]OSString, len(all))
	for i, s := range all {
		out[i] = OSString(s)
	}
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse.
func (all *OSStrings) UnmarshalJSON(data []byte) error {
	var in []OSString
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if *all = nil; in != nil {
		*all = make(OSStrings, len(in))
	}
	for i, s := range in {
		(*all)[i] = string(s)
	}
	return nil
}
