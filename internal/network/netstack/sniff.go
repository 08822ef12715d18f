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

// A connection that is allowed only by a name must be to that name: an address of a content delivery network has
// thousands of names. So the first bytes of the guest are checked.

const (
	maxHello   = 32 << 10 // bytes of a ClientHello; usual ones have up to 2,000
	maxLine    = 8 << 10  // bytes of the first line of HTTP
	maxMethod  = 32
	maxSniffed = 2*maxHello + maxLine // TLS records may be short
	sniffLimit = 10 * time.Second     // from the first byte
	tlsRecord  = 5                    // bytes of a record's header
	handshake  = 22
	nameOfHost = 0
)

// accessDenied is the fatal alert access_denied (RFC 8446, 6.2), which clients show.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

type protocol int

const (
	undecided protocol = iota // more bytes are needed
	other                     // neither HTTP/1 nor TLS
	protoHTTP                 // HTTP/1
	protoTLS
	malformed // not well formed, but a lenient server might accept it as HTTP or TLS
)

type greeting struct {
	protocol protocol
	name     string // SNI of TLS, canonical; "": none
}

// sniff reads until the protocol is decided. heard has the bytes that it has read.
func sniff(in net.Conn) (heard []byte, said greeting) {
	b := make([]byte, 0, 2048)
	for {
		b = slices.Grow(b, 1)
		n, err := in.Read(b[len(b):min(cap(b), maxSniffed)])
		if len(b) == 0 && n > 0 {
			in.SetReadDeadline(time.Now().Add(sniffLimit))
		}
		b = b[:len(b)+n]
		said = parseGreeting(b)
		switch {
		case said.protocol != undecided:
		case errors.Is(err, io.EOF):
			said.protocol = other // an empty connection is harmless
			if len(b) > 0 {
				said.protocol = malformed
			}
		case err != nil || len(b) >= maxSniffed:
			said.protocol = malformed
		default:
			continue
		}
		in.SetReadDeadline(time.Time{})
		return b, said
	}
}

// parseGreeting determines the protocol of the first bytes of a connection.
func parseGreeting(b []byte) greeting {
	switch {
	case len(b) == 0:
		return greeting{protocol: undecided}
	case b[0] == handshake:
		return clientHello(b)
	case b[0]&0x80 != 0:
		return oldHello(b)
	}
	return greeting{protocol: request(b)}
}

// oldHello recognises the hello of SSL 2, which some servers accept for later versions. It has no name.
func oldHello(b []byte) greeting {
	switch {
	case len(b) < 4:
		return greeting{protocol: undecided}
	case b[2] == 1 && (b[3] == 3 || b[3] == 0):
		return greeting{protocol: protoTLS}
	}
	return greeting{protocol: other}
}

// clientHello parses the first message of TLS, which may be in several records.
func clientHello(b []byte) greeting {
	var message []byte
	for {
		if len(b) > 1 && b[1] != 3 {
			return greeting{protocol: malformed}
		}
		if len(b) < tlsRecord {
			return greeting{protocol: undecided}
		}
		n := int(binary.BigEndian.Uint16(b[3:]))
		if b[0] != handshake || n == 0 || n > 1<<14 {
			return greeting{protocol: malformed}
		}
		part := b[tlsRecord:min(tlsRecord+n, len(b))]
		message = append(message, part...)
		if len(message) > 0 && message[0] != 1 {
			return greeting{protocol: malformed}
		}
		if len(message) >= 4 {
			size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
			if size > maxHello {
				return greeting{protocol: malformed}
			}
			if len(message) >= 4+size {
				return helloName(message[4 : 4+size])
			}
		}
		if len(part) < n {
			return greeting{protocol: undecided}
		}
		b = b[tlsRecord+n:]
	}
}

// field takes a field that is preceded by its length in the given number of bytes.
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

// helloName finds the SNI in a ClientHello (RFC 8446, 4.1.2; RFC 6066, 3).
func helloName(b []byte) greeting {
	bad, name, seen := greeting{protocol: malformed}, "", false
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
		return greeting{protocol: protoTLS}
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
	return greeting{protocol: protoTLS, name: name}
}

// hostName returns the name of a server_name extension.
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

// methods start a request even without a version (HTTP/0.9), which may name a host too.
var methods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PRI"}

// request determines whether a first line is one of HTTP/1 for the most lenient of servers. First lines of other
// protocols do not contain HTTP/, and most do not start with a word and a blank.
func request(b []byte) protocol {
	b = bytes.TrimLeft(b, "\r\n\t ") // as some servers do
	word := bytes.IndexFunc(b, func(r rune) bool { return !tokenRune(r) })
	switch {
	case word < 0 && len(b) <= maxMethod:
		return undecided
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
		return malformed
	case strange:
		return other
	case !ended && len(line) > maxLine:
		return malformed
	case !ended:
		return undecided
	case known || bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")):
		return protoHTTP
	}
	return other
}

// tokenRune reports whether a character can be in a method (RFC 9110, 5.6.2).
func tokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r < 0x80 && bytes.ContainsRune([]byte("!#$%&'*+-.^_`|~"), r)
}

// replay is a connection that first returns bytes that were already read.
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
