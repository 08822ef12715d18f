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
	maxSent     = 256 << 10 // bytes of a request's header with the secrets in it
	fieldRest   = 4         // bytes of a field of a header beside its name and value
	leastHolder = 8         // bytes of a placeholder: what is shorter stands by chance too
	masked      = "***"
)

// Secrets are what the proxy adds to requests, ready to be asked.
type Secrets struct{ all []secret }

type secret struct {
	host, port  string
	plain       bool
	header      string // "": all, of a placeholder
	placeholder string // "": the header is set
	value       string
}

// ParseSecrets reads secrets. Errors: InvalidArgument, which name no value.
func ParseSecrets(all []holt.HostSecret) (*Secrets, error) {
	if len(all) > maxSecrets {
		return nil, holt.Errorf(holt.InvalidArgument, "a computer has at most %d secrets of hosts", maxSecrets)
	}
	out := &Secrets{}
	for _, h := range all {
		one, why := parseSecret(h)
		if why != "" {
			return nil, holt.Errorf(holt.InvalidArgument, "secret of host %q: %s", clip(h.Host), why).
				WithHint("a secret has the exact name of a host, with :PORT or without, a value, and a header or a placeholder")
		}
		out.all = append(out.all, one)
	}
	return out, nil
}

func parseSecret(h holt.HostSecret) (out secret, why string) {
	host, port, hasPort := strings.Cut(h.Host, ":")
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
		return out, "its port is no number from 1 to 65535"
	}
	name, ok := canonical(host)
	switch {
	case !ok || net.ParseIP(name) != nil:
		return out, "it is no name of a host"
	case h.Value == "" || len(h.Value) > maxSecret || !fieldValue(h.Value):
		return out, "its value is empty, too long or has bytes that a header cannot have"
	case len(h.Header) > 256 || !fieldName(h.Header):
		return out, "its header has characters that no header's name has"
	case len(h.Placeholder) > 256 || h.Placeholder != "" && (len(h.Placeholder) < leastHolder || !fieldValue(h.Placeholder)):
		return out, "its placeholder is shorter than " + strconv.Itoa(leastHolder) + " bytes, longer than 256, or has bytes that a header cannot have"
	}
	out = secret{host: name, port: port, plain: h.Plain, header: http.CanonicalHeaderKey(h.Header), placeholder: h.Placeholder, value: h.Value}
	if out.header == "" && out.placeholder == "" {
		out.header, out.value = "Authorization", "Bearer "+h.Value
	}
	return out, ""
}

// fieldValue tells whether a header can have a value (RFC 9110, 5.5), without blanks around it.
func fieldValue(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// fieldName tells whether a header can have a name, or none is given. Those that say where a message
// ends or goes are no place for secrets.
func fieldName(s string) bool {
	switch http.CanonicalHeaderKey(s) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Trailer", "Te":
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !tokenRune(r) })
}

// of returns the secrets of a host at a port, for HTTP in plain or over TLS.
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

// errTooLong is that of a request which secrets in the place of their placeholders would make too long.
var errTooLong = fmt.Errorf("with the secrets in the place of their placeholders the header of this request would be longer than %d KiB", maxSent>>10)

// add puts secrets into a request's header. Codes are what it made of some, in which the values are not to be seen.
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

// replaceIn puts the value in the place of its placeholder, also in the name and password of Basic (RFC 7617), whose
// code it returns then. False: the field would grow by more than there is room.
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

// hidden are what of secrets must not stand in an answer's header, the longest first: values, what of them is behind the
// name of a scheme, and codes; but for what is so short that it stands anywhere.
func hidden(secrets []secret, codes []string) (out []string) {
	add := func(one string) {
		for _, form := range []string{one, strings.TrimRight(one, "=")} { // a code without what fills it up, too
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

// mask takes what must not stand there out of an answer's header.
func mask(hidden []string, h http.Header) {
	for _, all := range h {
		for i := range all {
			for _, one := range hidden {
				all[i] = strings.ReplaceAll(all[i], one, masked)
			}
		}
	}
}
