package netstack

import (
	"encoding/base64"
	"net"
	"net/http"
	"strconv"
	"strings"

	"holt"
)

const (
	maxSecrets  = 64
	maxSecret   = 16 << 10 // bytes of a value
	leastHolder = 8        // bytes of a placeholder: what is shorter stands by chance too
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

// add puts the secret into a request's header.
func (s *secret) add(h http.Header) {
	if s.placeholder == "" {
		h.Set(s.header, s.value)
		return
	}
	for key, all := range h {
		if s.header != "" && key != s.header {
			continue
		}
		for i := range all {
			all[i] = replaceIn(all[i], s.placeholder, s.value)
		}
	}
}

// replaceIn puts a value in the place of its placeholder, also in the name and password of Basic (RFC 7617).
func replaceIn(field, placeholder, value string) string {
	if scheme, code, ok := strings.Cut(field, " "); ok && strings.EqualFold(scheme, "Basic") {
		if pair, err := base64.StdEncoding.DecodeString(code); err == nil && strings.Contains(string(pair), placeholder) {
			return scheme + " " + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(pair), placeholder, value)))
		}
	}
	return strings.ReplaceAll(field, placeholder, value)
}

// mask takes the secret out of an answer's header, unless it is so short that it stands anywhere.
func (s *secret) mask(h http.Header) {
	value := strings.TrimPrefix(s.value, "Bearer ")
	if len(value) < leastHolder {
		return
	}
	for _, all := range h {
		for i := range all {
			all[i] = strings.ReplaceAll(all[i], value, masked)
		}
	}
}
