package holt

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// OSString is a string of the operating system: a file name, a path, the target
// of a symlink, an attribute, an argument. Linux allows any bytes; most are UTF-8.
//
// JSON supports only UTF-8. A string with other bytes is written as Git writes
// such names: in quotes, with a backslash and three octal digits for each byte
// that is not UTF-8, and a backslash before a quote or a backslash. A string
// that already has this form is quoted again. So the encoding is unambiguous,
// and ordinary names are not quoted. It is used in all requests and responses;
// in the query of a URL, bytes are percent-encoded.
type OSString string

// Text returns the form that s has in JSON.
func (s OSString) Text() string {
	if utf8.ValidString(string(s)) && ParseOSString(string(s)) == s {
		return string(s)
	}
	return quoted(string(s))
}

// ParseOSString is the inverse of [OSString.Text]. Text without that quoting is
// returned as it is.
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

// unquoted is the inverse of quoted; ok is false if text is not in that form.
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

// OSStrings is a list that is written in JSON as a list of [OSString].
type OSStrings []string

// MarshalJSON writes each string as an [OSString].
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
