package holt

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
)

// SessionSpec says what somebody who is connected to a computer (by SSH) has run there.
type SessionSpec struct {
	Command  OSString              `json:"command,omitempty"` // run by /bin/bash after the start-up files of a login; "": a login shell
	SFTP     bool                  `json:"sftp,omitempty"`    // instead: an SFTP server
	User     string                `json:"user,omitempty"`    // Linux user; "": agent
	Env      map[OSString]OSString `json:"env,omitempty"`     // added to the user's environment
	Terminal *SessionTerminal      `json:"terminal,omitempty"`
}

// SessionTerminal is the terminal that a session has; without one it has three streams.
type SessionTerminal struct {
	Type  string         `json:"type,omitempty"` // TERM; "": xterm-256color
	Size  TerminalSize   `json:"size,omitzero"`
	Modes []TerminalMode `json:"modes,omitempty"` // at most [MostTerminalModes]
}

// MostTerminalModes bounds the modes of a [SessionTerminal]: as many as there are opcodes.
const MostTerminalModes = 160

// TerminalMode is a mode of a terminal as RFC 4254, section 8, numbers them.
type TerminalMode struct {
	Op    uint8  `json:"op"`
	Value uint32 `json:"value"`
}

// SessionEnd is how a session's program ended.
type SessionEnd struct {
	ExitCode int    `json:"exit_code"`        // its exit status; 128 + signal number when a signal ended it
	Signal   string `json:"signal,omitempty"` // the signal that ended it, as SIGHUP
	Core     bool   `json:"core,omitempty"`   // it left a core
}

// Session is a program that somebody who is connected to a computer has run there. What it writes waits until it is
// taken: nothing is lost, and the program waits too. It ends with its connection: a terminal is hung up,
// and without one the program, not what it has started, gets SIGHUP.
type Session interface {
	io.Writer // its standard input, or what is typed
	// CloseWrite ends the standard input. A terminal has none to end.
	CloseWrite() error
	// Output copies what the program writes until its end, and returns how it ended. What a terminal
	// shows is all stdout.
	Output(stdout, stderr io.Writer) (SessionEnd, error)
	// Resize sets the terminal's size.
	Resize(ctx context.Context, size TerminalSize) error
	// Signal sends a signal, as TERM, to the program, on a terminal to what is in its foreground.
	Signal(ctx context.Context, name string) error
	Close() error
}

// SessionAddress is what a session reaches, or listens at, in a computer: a TCP port or a unix socket.
type SessionAddress struct {
	Host   string   // a name or IP address, as the computer knows it; to listen: the loopback, whatever it is
	Port   int      // to listen: 0 is any; with a socket 0
	Socket OSString // an absolute path; "": a port
	User   string   // Linux user whose rights the socket is reached, or made, with; "": agent
	Agent  bool     // to listen: a socket that the computer finds a name for, in a directory of the user's own
}

const mostHostName = 253 // bytes, of a name in the DNS

// Check says whether there can be such an address; to listen, whether the port may be 0.
func (a SessionAddress) Check(listen bool) error {
	switch {
	case a.Agent:
		return nil
	case a.Socket != "":
		return PortAddress{Socket: a.Socket}.Check()
	case a.Port < 0 || a.Port > mostPort || a.Port == 0 && !listen:
		return Errorf(InvalidArgument, "%d is not a port", a.Port).WithHint("ports are 1 to %d", mostPort)
	case len(a.Host) > mostHostName || strings.ContainsFunc(a.Host, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }):
		return Errorf(InvalidArgument, "%q is no host", clip(a.Host))
	}
	return nil
}

func (a SessionAddress) String() string {
	switch {
	case a.Agent:
		return "the SSH agent"
	case a.Socket != "":
		return string(a.Socket)
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

// SessionListener is a port or a unix socket of a computer that somebody who is connected to it has listened at.
type SessionListener interface {
	// Address is where it listens: the port or socket that was chosen.
	Address() SessionAddress
	// Accept returns the next connection to it and the address it comes from ("" of a socket). A connection
	// that nobody takes for ten seconds is dropped.
	Accept(ctx context.Context) (conn PortConn, from string, err error)
	Close() error
}
