package agent

import (
	"bytes"

	"holt"
)

// mask puts [holt.Masked] in the place of secrets in a stream of output,
// however it is cut into pieces. What may be the beginning of a secret waits
// for what follows it, or for the stream's end; nothing else waits. A secret
// that a program writes in another form (base64, reversed) is not known again.
type mask struct {
	secrets [][]byte // none empty, the longest first
	first   [256]bool
	held    []byte // may be the beginning of a secret
}

// newMask returns the mask of one stream; nil, which hides nothing, if there are
// no secrets.
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

// hide returns what of the stream up to the end of p can be shown.
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
// none, and whether it may turn out to begin with a longer one.
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
