package holt

import (
	"io"
	"strconv"
	"strings"
)

// Listener is a port of a computer that something listens at, and who that is, as
// far as its guest tells.
type Listener struct {
	Protocol     string     `json:"protocol" enum:"tcp,udp"`
	Address      string     `json:"address" doc:"IP address; 0.0.0.0 or :: is each of the computer's"`
	Port         int        `json:"port"`
	PID          int        `json:"pid,omitempty" doc:"who listens, if that could be told"`
	Process      string     `json:"process,omitempty" doc:"its name"`
	User         string     `json:"user,omitempty" doc:"whose it is"`
	Run          RunID      `json:"run,omitempty" doc:"that it belongs to"`
	Terminal     TerminalID `json:"terminal,omitempty" doc:"that it belongs to"`
	TerminalName string     `json:"terminal_name,omitempty" doc:"of that terminal"`
	Service      string     `json:"service,omitempty" doc:"that it belongs to: a unit of systemd, without .service"`
}

// PortAddress is where one connects to in a computer: a TCP port or a unix socket.
type PortAddress struct {
	Port   int      // 1 to 65535; 0: a socket
	Socket OSString // an absolute path; "": a port
}

const (
	mostPort       = 1<<16 - 1
	mostSocketPath = 107 // bytes, see unix(7)
)

// ParsePort reads the number of a port.
func ParsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > mostPort || s[0] == '+' {
		return 0, Errorf(InvalidArgument, "%q is not a port", s).WithHint("ports are 1 to %d", mostPort)
	}
	return n, nil
}

// ParsePortAddress reads the number of a port or the absolute path of a socket.
func ParsePortAddress(s string) (to PortAddress, err error) {
	if !strings.HasPrefix(s, "/") {
		to.Port, err = ParsePort(s)
		return to, err
	}
	to.Socket = OSString(s)
	return to, to.Check()
}

// Check says whether there can be such an address.
func (to PortAddress) Check() error {
	switch socket := string(to.Socket); {
	case (to.Port == 0) == (socket == ""):
		return Errorf(InvalidArgument, "one connects to a port or to a socket").WithHint("give exactly one of them")
	case socket == "":
		_, err := ParsePort(strconv.Itoa(to.Port))
		return err
	case socket[0] != '/' || len(socket) > mostSocketPath || strings.ContainsRune(socket, 0):
		return Errorf(InvalidArgument, "%q cannot be a unix socket", socket[:min(len(socket), mostSocketPath)]).
			WithHint("it is an absolute path of at most %d bytes", mostSocketPath)
	}
	return nil
}

func (to PortAddress) String() string {
	if to.Socket != "" {
		return string(to.Socket)
	}
	return strconv.Itoa(to.Port)
}

// PortConn is a connection to a port or a unix socket of a computer. Read returns
// io.EOF once the far side sends no more, and an [*Error] when the connection broke.
// Close without CloseWrite breaks it off: what was written last may not arrive.
// One goroutine may read while another writes; Close ends both.
type PortConn interface {
	io.ReadWriteCloser
	// CloseWrite ends what this side sends; reading goes on.
	CloseWrite() error
}

// PortMessage is a text message in the WebSocket of a connection to a port; its
// binary messages are the bytes.
type PortMessage struct {
	Kind  PortMessageKind `json:"kind" enum:"end,error"`
	Error *Error          `json:"error,omitempty" doc:"of kind error"`
}

// PortMessageKind says what a [PortMessage] is.
type PortMessageKind string

// The kinds of text messages.
const (
	PortEnd   PortMessageKind = "end"   // its sender sends no more bytes; it still takes some
	PortError PortMessageKind = "error" // the connection broke; the last message
)
