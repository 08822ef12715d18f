package holt

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
)

// SessionSpec describes a program that an SSH client runs in a computer.
type SessionSpec struct {
	Command  OSString              `json:"command,omitempty"` // run by /bin/bash after the start-up files of a login; "": a login shell
	SFTP     bool                  `json:"sftp,omitempty"`    // run an SFTP server instead
	User     string                `json:"user,omitempty"`    // Linux user; "": agent
	Env      map[OSString]OSString `json:"env,omitempty"`     // added to the user's environment
	Terminal *SessionTerminal      `json:"terminal,omitempty"`
}

// SessionTerminal is the terminal of a session; without one it has three streams.
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
	Core     bool   `json:"core,omitempty"`   // it dumped core
}

// Session is a program that an SSH client runs in a computer. The program blocks until its output is read; nothing is
// lost. It ends with its connection: a terminal is hung up; without one, the program gets SIGHUP, its children do not.
type Session interface {
	io.Writer // its standard input, or what is typed
	// CloseWrite ends the standard input. A terminal has none to end.
	CloseWrite() error
	// Output copies what the program writes until its end, and returns how it ended. What a terminal
	// shows is all stdout.
	Output(stdout, stderr io.Writer) (SessionEnd, error)
	// Resize sets the terminal's size.
	Resize(ctx context.Context, size TerminalSize) error
	// Signal sends a signal such as TERM to the program, or to the foreground processes of a terminal.
	Signal(ctx context.Context, name string) error
	Close() error
}

// SessionAddress is a TCP port or a unix socket that a session connects to, or listens on, in a computer.
type SessionAddress struct {
	Host   string   // a name or IP address, resolved in the computer; ignored for listening, which uses the loopback
	Port   int      // 0 for a socket, or for any port to listen on
	Socket OSString // an absolute path; "": a port
	User   string   // Linux user that opens or creates the socket; "": agent
	Agent  bool     // to listen: a socket in a directory of the user, whose name the computer chooses
}

const mostHostName = 253 // bytes, of a name in the DNS

// Check reports whether the address is valid. The port may be 0 only to listen.
func (a SessionAddress) Check(listen bool) error {
	switch {
	case a.Agent:
		return nil
	case a.Socket != "":
		return PortAddress{Socket: a.Socket}.Check()
	case a.Port < 0 || a.Port > mostPort || a.Port == 0 && !listen:
		return Errorf(InvalidArgument, "%d is not a port", a.Port).WithHint("use a port from 1 to %d", mostPort)
	case len(a.Host) > mostHostName || strings.ContainsFunc(a.Host, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }):
		return Errorf(InvalidArgument, "invalid host %q", clip(a.Host))
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

// SessionListener is a port or a unix socket of a computer on which a session listens.
type SessionListener interface {
	// Address is the actual port or socket.
	Address() SessionAddress
	// Accept returns the next connection to it and the address it comes from ("" of a socket). A connection
	// that is not read for ten seconds is dropped.
	Accept(ctx context.Context) (conn PortConn, from string, err error)
	Close() error
}
