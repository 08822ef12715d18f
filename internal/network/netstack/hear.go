package netstack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// If a connection is allowed only because of a name, the first bytes from the
// guest tell whether it uses that name: one address of a content delivery
// network serves thousands of names.

const (
	maxHello   = 32 << 10 // bytes of a ClientHello; usual ones have up to 2,000
	maxLine    = 8 << 10  // bytes of the first line of HTTP
	maxMethod  = 32
	maxHeard   = 2*maxHello + maxLine // records may be short
	hearLimit  = 10 * time.Second     // from the first byte
	tlsRecord  = 5                    // bytes of a record's header
	handshake  = 22
	nameOfHost = 0
)

// accessDenied is the fatal TLS alert of that name (RFC 8446, 6.2), which tools show by name.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

type speech int

const (
	unsure     speech = iota // more bytes are needed
	other                    // none of the following
	spokenHTTP               // HTTP/1
	spokenTLS                // with the requested name
	broken                   // malformed, but some server may accept it as HTTP or TLS
)

type utterance struct {
	speech speech
	name   string // TLS server name, canonical; "": none
}

// hear reads until the protocol is known. The caller must forward heard first.
func hear(in net.Conn) (heard []byte, said utterance) {
	b := make([]byte, 0, 2048)
	for {
		b = slices.Grow(b, 1)
		n, err := in.Read(b[len(b):min(cap(b), maxHeard)])
		if len(b) == 0 && n > 0 {
			in.SetReadDeadline(time.Now().Add(hearLimit))
		}
		b = b[:len(b)+n]
		said = understand(b)
		switch {
		case said.speech != unsure:
		case errors.Is(err, io.EOF):
			said.speech = other // the guest sends no more
			if len(b) > 0 {
				said.speech = broken
			}
		case err != nil || len(b) >= maxHeard:
			said.speech = broken
		default:
			continue
		}
		in.SetReadDeadline(time.Time{})
		return b, said
	}
}

// understand classifies the beginning of a connection.
func understand(b []byte) utterance {
	switch {
	case len(b) == 0:
		return utterance{speech: unsure}
	case b[0] == handshake:
		return clientHello(b)
	case b[0]&0x80 != 0:
		return oldHello(b)
	}
	return utterance{speech: request(b)}
}

// oldHello recognises the ClientHello of SSL 2, with which some servers still
// accept newer versions. It has no server name.
func oldHello(b []byte) utterance {
	switch {
	case len(b) < 4:
		return utterance{speech: unsure}
	case b[2] == 1 && (b[3] == 3 || b[3] == 0):
		return utterance{speech: spokenTLS}
	}
	return utterance{speech: other}
}

// clientHello parses the first message of TLS, which may span several records.
func clientHello(b []byte) utterance {
	var message []byte
	for {
		if len(b) > 1 && b[1] != 3 {
			return utterance{speech: broken}
		}
		if len(b) < tlsRecord {
			return utterance{speech: unsure}
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != handshake || n == 0 || n > 1<<14 {
			return utterance{speech: broken}
		}
		part := b[tlsRecord:min(tlsRecord+n, len(b))]
		message = append(message, part...)
		if len(message) > 0 && message[0] != 1 {
			return utterance{speech: broken}
		}
		if len(message) >= 4 {
			size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if size > maxHello {
				return utterance{speech: broken}
			}
			if len(message) >= 4+size {
				return helloName(message[4 : 4+size])
			}
		}
		if len(part) < n {
			return utterance{speech: unsure}
		}
		b = b[tlsRecord+n:]
	}
}

// field cuts a field with a length prefix of some bytes off b.
func field(b *[]byte, bytes int) ([]byte, bool) {
	if len(*b) < bytes {
		return nil, false
	}
	n := 0
	for _, c := range (*b)[:bytes] {
		n = n<<8 | int(c)
	}
	if len(*b) < bytes+n {
		return nil, false
	}
	out := (*b)[bytes : bytes+n]
	*b = (*b)[bytes+n:]
	return out, true
}

// helloName finds the server name in a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3).
func helloName(b []byte) utterance {
	bad, name, seen := utterance{speech: broken}, "", false
	if len(b) < 34 {
		return bad
	}
	b = b[34:]
	for _, bytes := range []int{1, 2, 1} { // session, cipher suites, compression methods
		if _, ok := field(&b, bytes); !ok {
			return bad
		}
	}
	if len(b) == 0 {
		return utterance{speech: spokenTLS}
	}
	extensions, ok := field(&b, 2)
	if !ok || len(b) > 0 {
		return bad
	}
	for len(extensions) > 0 {
		if len(extensions) < 2 {
			return bad
		}
		kind := binary.BigEndian.Uint16(extensions)
		extensions = extensions[2:]
		body, ok := field(&extensions, 2)
		if !ok {
			return bad
		}
		if kind != 0 {
			continue
		}
		if name, ok = hostName(body); !ok || seen {
			return bad
		}
		seen = true
	}
	return utterance{speech: spokenTLS, name: name}
}

// hostName returns the single name of a server_name extension.
func hostName(b []byte) (string, bool) {
	list, ok := field(&b, 2)
	if !ok || len(b) > 0 || len(list) == 0 || list[0] != nameOfHost {
		return "", false
	}
	list = list[1:]
	name, ok := field(&list, 2)
	if !ok || len(list) > 0 {
		return "", false
	}
	return canonical(string(name))
}

// methods can begin a request without a version (HTTP/0.9), which may also name a host.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PRI"}

// request reports whether the first line is a request of HTTP/1 for the most
// lenient server. Lines of other protocols do not contain HTTP/, and most do
// not begin with a word and a space.
func request(b []byte) speech {
	b = bytes.TrimLeft(b, "\r\n\t ") // as some servers do
	word := bytes.IndexFunc(b, func(r rune) bool { return !tokenRune(r) })
	switch {
	case word < 0 && len(b) <= maxMethod:
		return unsure
	case word <= 0 || word > maxMethod:
		return other
	case b[word] != ' ' && b[word] != '\t':
		return other
	}
	known := slices.Contains(methods, string(b[:word]))
	line, _, ended := bytes.Cut(b, []byte("\n"))
	strange := bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || r == 0x7f })
	switch {
	case known && strange:
		return broken
	case strange:
		return other
	case !ended && len(line) > maxLine:
		return broken
	case !ended:
		return unsure
	case known || bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")):
		return spokenHTTP
	}
	return other
}

// tokenRune reports whether a method may contain the character (RFC 9110, 5.6.2).
func tokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r < 0x80 && bytes.ContainsRune([]byte("!#$%&'*+-.^_`|~"), r)
}

// replay is a connection of which something was read already.
type replay struct {
	half
	first []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) == 0 {
		return r.half.Read(b)
	}
	n := copy(b, r.first)
	r.first = r.first[n:]
	return n, nil
}
