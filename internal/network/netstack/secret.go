package netstack

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"holt"
)

const (
	maxSecrets  = 64
	maxSecret   = 16 << 10  // bytes of a value
	maxSent     = 256 << 10 // bytes of a request's header with secrets
	fieldRest   = 4         // bytes of a header field in addition to name and value
	leastHolder = 8         // bytes of a placeholder; a shorter one could occur by chance
	masked      = "***"
)

// Secrets are the parsed host secrets that the proxy adds to requests.
type Secrets struct{ all []secret }

type secret struct {
	host, port  string
	plain       bool
	header      string // "": all headers, with a placeholder
	placeholder string // "": the header is set
	value       string
}

// ParseSecrets parses secrets. Errors: InvalidArgument, without any value.
func ParseSecrets(all []holt.HostSecret) (*Secrets, error) {
	if len(all) > maxSecrets {
		return nil, holt.Errorf(holt.InvalidArgument, "too many host secrets: a computer has at most %d", maxSecrets)
	}
	out := &Secrets{}
	for _, h := range all {
		one, why := parseSecret(h)
		if why != "" {
			return nil, holt.Errorf(holt.InvalidArgument, "invalid secret for host %q: %s", clip(h.Host), why).
				WithHint("a secret has the exact name of a host, optionally with :PORT, a value, and a header or a placeholder")
		}
		out.all = append(out.all, one)
	}
	return out, nil
}

func parseSecret(h holt.HostSecret) (out secret, why string) {
	host, port, hasPort := strings.Cut(h.Host, ":")
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
		return out, "the port must be a number from 1 to 65535"
	}
	name, ok := canonical(host)
	switch {
	case !ok || net.ParseIP(name) != nil:
		return out, "it is not a host name"
	case h.Value == "" || len(h.Value) > maxSecret || !fieldValue(h.Value):
		return out, "the value is empty, too long, or not valid in a header"
	case len(h.Header) > 256 || !fieldName(h.Header):
		return out, "the header name is not valid"
	case len(h.Placeholder) > 256 || h.Placeholder != "" && (len(h.Placeholder) < leastHolder || !fieldValue(h.Placeholder)):
		return out, "the placeholder is shorter than " + strconv.Itoa(leastHolder) + " bytes, longer than 256 bytes, or not valid in a header"
	}
	out = secret{host: name, port: port, plain: h.Plain, header: http.CanonicalHeaderKey(h.Header), placeholder: h.Placeholder, value: h.Value}
	if out.header == "" && out.placeholder == "" {
		out.header, out.value = "Authorization", "Bearer "+h.Value
	}
	return out, ""
}

// fieldValue reports whether s is a valid header value (RFC 9110, 5.5) without spaces around it.
func fieldValue(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// fieldName reports whether s is "" or a valid header name. Headers that
// control framing or routing are excluded.
func fieldName(s string) bool {
	switch http.CanonicalHeaderKey(s) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Trailer", "Te":
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !tokenRune(r) })
}

// of returns the secrets of a host and port, for plain HTTP or TLS.
func (s *Secrets) of(name, port string, plain bool) (out []secret) {
	usual := "443"
	if plain {
		usual = "80"
	}
	for _, one := range s.all {
		at := one.port
		if at == "" {
			at = usual
		}
		if one.host == name && at == port && (!plain || one.plain) {
			out = append(out, one)
		}
	}
	return out
}

// errTooLong is returned if inserting secrets would make a request's header too long.
var errTooLong = fmt.Errorf("the header of this request is too long with its secrets inserted: the maximum is %d KiB", maxSent>>10)

// add inserts secrets into a request's header. codes are encoded values in
// which a secret is not recognisable as text.
func add(secrets []secret, h http.Header) (codes []string, err error) {
	room := maxSent
	for key, all := range h {
		for _, field := range all {
			room -= len(key) + len(field) + fieldRest
		}
	}
	for _, one := range secrets {
		if one.placeholder == "" {
			room -= len(one.header) + len(one.value) + fieldRest
			h.Set(one.header, one.value)
			continue
		}
		for key, all := range h {
			if one.header != "" && key != one.header {
				continue
			}
			for i, field := range all {
				out, code, ok := one.replaceIn(field, room)
				if !ok {
					return nil, errTooLong
				}
				if all[i] = out; code != "" {
					codes = append(codes, code)
				}
				room -= len(out) - len(field)
			}
		}
	}
	if room < 0 {
		return nil, errTooLong
	}
	return codes, nil
}

// replaceIn replaces the placeholder with the value, also inside Basic
// credentials (RFC 7617); it then returns the new encoding as code. ok is false
// if the field would grow by more than room.
func (s *secret) replaceIn(field string, room int) (out, code string, ok bool) {
	grown := func(in string) int {
		return len(in) + strings.Count(in, s.placeholder)*(len(s.value)-len(s.placeholder))
	}
	if scheme, code, ok := strings.Cut(field, " "); ok && strings.EqualFold(scheme, "Basic") {
		if pair, err := base64.StdEncoding.DecodeString(code); err == nil && strings.Contains(string(pair), s.placeholder) {
			if base64.StdEncoding.EncodedLen(grown(string(pair)))-len(code) > room {
				return "", "", false
			}
			code = base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(pair), s.placeholder, s.value)))
			return scheme + " " + code, code, true
		}
	}
	if grown(field)-len(field) > room {
		return "", "", false
	}
	return strings.ReplaceAll(field, s.placeholder, s.value), "", true
}

// hidden returns the strings to mask in response headers, longest first:
// values, values without their scheme, and codes; except strings so short that
// they occur by chance.
func hidden(secrets []secret, codes []string) (out []string) {
	add := func(one string) {
		for _, form := range []string{one, strings.TrimRight(one, "=")} { // base64 also without padding
			if len(form) >= leastHolder {
				out = append(out, form)
			}
		}
	}
	for _, one := range secrets {
		value := strings.TrimPrefix(one.value, "Bearer ")
		_, credentials, _ := strings.Cut(value, " ")
		add(value)
		add(credentials)
	}
	for _, one := range codes {
		add(one)
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(out)
}

// mask masks strings in response headers.
func mask(hidden []string, h http.Header) {
	for _, all := range h {
		for i := range all {
			for _, one := range hidden {
				all[i] = strings.ReplaceAll(all[i], one, masked)
			}
		}
	}
}
