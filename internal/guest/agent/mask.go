package agent

import (
	"bytes"

	"holt"
)

// mask replaces secrets in a stream of output with [holt.Masked], independent
// of how the stream is split into writes. Only a possible beginning of a secret
// is held back, until more output or the end of the stream. Encoded secrets
// (base64, reversed) are not recognised.
type mask struct {
	secrets [][]byte // none empty, the longest first
	first   [256]bool
	held    []byte // may be the beginning of a secret
}

// newMask returns the mask of one stream; nil, which masks nothing, without secrets.
func newMask(secrets []string) *mask {
	if len(secrets) == 0 {
		return nil
	}
	m := &mask{}
	for _, s := range secrets {
		m.secrets = append(m.secrets, []byte(s))
		m.first[s[0]] = true
	}
	return m
}

// hide adds p to the stream and returns the output that can be shown.
func (m *mask) hide(p []byte) []byte {
	if m == nil {
		return p
	}
	return m.scan(append(m.held, p...), false)
}

// flush returns what was held back, at the stream's end.
func (m *mask) flush() []byte {
	if m == nil {
		return nil
	}
	return m.scan(m.held, true)
}

func (m *mask) scan(in []byte, last bool) []byte {
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		plain := 0
		for plain < len(in) && !m.first[in[plain]] {
			plain++
		}
		out, in = append(out, in[:plain]...), in[plain:]
		n, more := m.match(in)
		switch {
		case more && !last:
			m.held = in
			return out
		case n > 0:
			out, in = append(out, holt.Masked...), in[n:]
		case len(in) > 0:
			out, in = append(out, in[0]), in[1:]
		}
	}
	m.held = nil
	return out
}

// match returns the length of the longest secret that in begins with, 0 if
// none, and whether in may begin a longer one.
func (m *mask) match(in []byte) (n int, more bool) {
	for _, s := range m.secrets {
		switch {
		case len(s) > len(in):
			more = more || len(in) > 0 && bytes.HasPrefix(s, in)
		case bytes.HasPrefix(in, s):
			return len(s), more
		}
	}
	return 0, more
}
