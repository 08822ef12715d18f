package sshd

import (
	"encoding/binary"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"holt"
)

// Payloads of requests and channels: RFC 4254, and OpenSSH's PROTOCOL. A packet has at most 256 KiB. ssh.Unmarshal
// returns an error for excess bytes.

type ptyRequest struct {
	Term                      string
	Cols, Rows, Width, Height uint32
	Modes                     string
}

type windowChange struct{ Cols, Rows, Width, Height uint32 }

type textRequest struct{ Text string } // exec, subsystem, signal

type envRequest struct{ Name, Value string }

type exitStatus struct{ Status uint32 }

type exitSignal struct {
	Name      string
	Core      bool
	Text, Tag string
}

// directTCP is the payload of direct-tcpip and forwarded-tcpip channels.
type directTCP struct {
	Host     string
	Port     uint32
	From     string
	FromPort uint32
}

type directSocket struct { // direct-streamlocal@openssh.com
	Path, Reserved string
	Port           uint32
}

type forwardedSocket struct{ Path, Reserved string }

type forwardTCP struct { // tcpip-forward and its cancel
	Host string
	Port uint32
}

type forwardSocket struct{ Path string }

type portAnswer struct{ Port uint32 }

const mostTerm = 64 // bytes of a TERM

var termName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9+._-]*$`)

// parsePTY parses a pty-req.
func parsePTY(payload []byte) (*holt.SessionTerminal, error) {
	var q ptyRequest
	if err := ssh.Unmarshal(payload, &q); err != nil {
		return nil, err
	}
	t := &holt.SessionTerminal{Size: sizeOf(q.Cols, q.Rows), Modes: parseModes(q.Modes)}
	if len(q.Term) <= mostTerm && termName.MatchString(q.Term) {
		t.Type = q.Term
	}
	return t, nil
}

func sizeOf(cols, rows uint32) holt.TerminalSize {
	return holt.TerminalSize{Rows: uint16(min(rows, holt.MostTerminalSize)), Cols: uint16(min(cols, holt.MostTerminalSize))}
}

// parseModes parses encoded terminal modes: an opcode and a u32 each, up to opcode 0, or to one from 160 on, whose
// arguments are undefined.
func parseModes(s string) (modes []holt.TerminalMode) {
	for len(s) >= 5 && s[0] != 0 && s[0] < holt.MostTerminalModes && len(modes) < holt.MostTerminalModes {
		modes = append(modes, holt.TerminalMode{Op: s[0], Value: binary.BigEndian.Uint32([]byte(s[1:5]))})
		s = s[5:]
	}
	return modes
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// environment has the variables that a client sets for a session.
type environment struct {
	vars  map[holt.OSString]holt.OSString
	bytes int
}

// set adds the variable of an env request, or returns false.
func (e *environment) set(payload []byte) bool {
	var q envRequest
	if err := ssh.Unmarshal(payload, &q); err != nil || !envName.MatchString(q.Name) || strings.Contains(q.Value, "\x00") || strings.HasPrefix(q.Name, "HOLT_") {
		return false
	}
	if e.bytes+len(q.Name)+len(q.Value) > mostEnvBytes || len(e.vars) >= mostEnv {
		return false
	}
	if e.vars == nil {
		e.vars = map[holt.OSString]holt.OSString{}
	}
	e.bytes += len(q.Name) + len(q.Value)
	e.vars[holt.OSString(q.Name)] = holt.OSString(q.Value)
	return true
}

// standardSignals are the signals of RFC 4254; others get OpenSSH's suffix.
const standardSignals = " ABRT ALRM FPE HUP ILL INT KILL PIPE QUIT SEGV TERM USR1 USR2 "

// signalMessage returns the name of a signal in an exit-signal.
func signalMessage(name string) string {
	name = strings.TrimPrefix(name, "SIG")
	if !strings.Contains(standardSignals, " "+name+" ") {
		name += "@openssh.com"
	}
	return name
}

// parseSignal parses a signal request, whose name has no SIG.
func parseSignal(payload []byte) (string, bool) {
	var q textRequest
	if err := ssh.Unmarshal(payload, &q); err != nil {
		return "", false
	}
	name := strings.TrimSuffix(q.Text, "@openssh.com")
	return name, len(name) > 0 && len(name) <= 16
}
