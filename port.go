package holt

import (
	"io"
	"strconv"
	"strings"
)

// Listener is a listening port of a computer and its process, as the guest reports
// them.
type Listener struct {
	Protocol     string     `json:"protocol" enum:"tcp,udp"`
	Address      string     `json:"address" doc:"IP address; 0.0.0.0 and :: stand for all addresses of the computer"`
	Port         int        `json:"port"`
	PID          int        `json:"pid,omitempty" doc:"listening process, if known"`
	Process      string     `json:"process,omitempty" doc:"its name"`
	User         string     `json:"user,omitempty" doc:"owner"`
	Run          RunID      `json:"run,omitempty" doc:"the one that it belongs to"`
	Terminal     TerminalID `json:"terminal,omitempty" doc:"the one that it belongs to"`
	TerminalName string     `json:"terminal_name,omitempty" doc:"name of that terminal"`
	Service      string     `json:"service,omitempty" doc:"the systemd unit that it belongs to, without .service"`
}

// PortAddress is a TCP port or a unix socket of a computer.
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
		return 0, Errorf(InvalidArgument, "%q is not a port", s).WithHint("use a port from 1 to %d", mostPort)
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

// Check reports whether the address is valid.
func (to PortAddress) Check() error {
	switch socket := string(to.Socket); {
	case (to.Port == 0) == (socket == ""):
		return Errorf(InvalidArgument, "an address is either a port or a socket").WithHint("use exactly one of them")
	case socket == "":
		_, err := ParsePort(strconv.Itoa(to.Port))
		return err
	case socket[0] != '/' || len(socket) > mostSocketPath || strings.ContainsRune(socket, 0):
		return Errorf(InvalidArgument, "%q is not a path of a unix socket", socket[:min(len(socket), mostSocketPath)]).
			WithHint("use an absolute path of at most %d bytes", mostSocketPath)
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
// io.EOF at the end of the stream, and an [*Error] if the connection breaks.
// Close without CloseWrite resets the connection; the last bytes written may be lost.
// One goroutine may read while another writes; Close ends both.
type PortConn interface {
	io.ReadWriteCloser
	// CloseWrite closes the sending direction only.
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
	PortEnd   PortMessageKind = "end"   // the sender has closed its sending direction
	PortError PortMessageKind = "error" // the connection broke; the last message
)
