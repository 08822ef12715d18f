package holt

import (
	"time"
)

// TerminalState is the state of a terminal.
type TerminalState string

// The states of a terminal.
const (
	TerminalRunning TerminalState = "running"
	TerminalExited  TerminalState = "exited"
	TerminalLost    TerminalState = "lost" // the computer ended first
)

// DefaultTerminal is the default name of a terminal.
const DefaultTerminal = "main"

// TerminalSize is the size of a terminal in characters. Zero: 24 by 80.
type TerminalSize struct {
	Rows uint16 `json:"rows" maximum:"1000" doc:"lines; 0: 24"`
	Cols uint16 `json:"cols" maximum:"1000" doc:"characters in a line; 0: 80"`
}

// MostTerminalSize bounds both fields of a [TerminalSize].
const MostTerminalSize = 1000

// TerminalSpec describes a terminal to open. If a terminal of that name is
// running, it is used, and the other fields are ignored.
type TerminalSpec struct {
	Name    string                `json:"name,omitempty" doc:"a DNS label, unique among the running terminals of the computer; default: main"`
	Command OSString              `json:"command,omitempty" doc:"a shell command, run by /bin/bash after the start-up files of a login; default: the user's login shell"`
	Argv    OSStrings             `json:"argv,omitempty" doc:"instead of command: a program and its arguments, run without a shell"`
	Env     map[OSString]OSString `json:"env,omitempty" writeOnly:"true" doc:"added to the user's environment; never stored or shown, because it may contain secrets; TERM defaults to xterm-256color"`
	Cwd     OSString              `json:"cwd,omitempty" doc:"absolute; default: the workspace, /home/agent"`
	User    string                `json:"user,omitempty" doc:"Linux user; default: agent"`
	Size    TerminalSize          `json:"size,omitzero"`
}

// Terminal is a program with a pseudoterminal in a computer, usually a shell. It
// runs independently of clients; any number of them can attach. Files that it
// changes in the workspace have its id as writer.
type Terminal struct {
	ID         TerminalID    `json:"id" doc:"unique in its computer; forks have terminals of the same id"`
	ComputerID ComputerID    `json:"computer_id"`
	Name       string        `json:"name"`
	Spec       TerminalSpec  `json:"spec" doc:"the spec that it was started with"`
	State      TerminalState `json:"state" enum:"running,exited,lost"`
	ExitCode   int           `json:"exit_code" nullable:"true" doc:"exit status; 128 + signal number if a signal ended it; null until it has exited"`
	Signal     string        `json:"signal,omitempty" doc:"the signal that ended it, such as SIGHUP"`
	Size       TerminalSize  `json:"size" doc:"current size: that of the client that attached or resized last"`
	Attached   int           `json:"attached" doc:"number of attached clients"`
	StartedAt  time.Time     `json:"started_at"`
	EndedAt    *time.Time    `json:"ended_at,omitempty"`
}

// MarshalJSON writes a null exit status before there is one.
func (t Terminal) MarshalJSON() ([]byte, error) {
	type plain Terminal
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(t), shownExit(t.ExitCode, t.State == TerminalExited)})
}

// AttachSpec says how to attach to a terminal.
type AttachSpec struct {
	Offset int64        // offset in its output to start at; negative: the oldest output that is kept
	Size   TerminalSize // zero: do not resize

	// Client and Input make input exactly-once across reconnects: a random name of the
	// client ("" for none), and how many bytes of its input it no longer has.
	Client string
	Input  int64
	// Again marks a reconnect. A paused computer is then not woken until input arrives.
	Again bool
}

// TerminalInput is what an attached client sends: bytes, or a new size.
type TerminalInput struct {
	Data []byte
	Size *TerminalSize
}

// TerminalEvent is one step of an attachment.
type TerminalEvent struct {
	Kind     TerminalEventKind `json:"kind" enum:"paused,attached,output,gap,resize,taken,exit,error"`
	Offset   int64             `json:"offset,omitempty" doc:"for attached and gap: position in the terminal's output, bytes from its start"`
	Data     []byte            `json:"-"`
	End      int64             `json:"end,omitempty" doc:"for attached: current end of the output; output up to here is a replay"`
	Dropped  int64             `json:"dropped,omitempty" doc:"for gap: number of missing bytes"`
	Taken    int64             `json:"taken,omitempty" doc:"for attached and taken: bytes of this client's input that the terminal has received"`
	Size     *TerminalSize     `json:"size,omitempty" doc:"for resize"`
	Terminal *Terminal         `json:"terminal,omitempty" doc:"for attached and exit"`
	Error    *Error            `json:"error,omitempty" doc:"for error: why the attachment ended"`
}

// TerminalEventKind says what a [TerminalEvent] is.
type TerminalEventKind string

// The kinds of terminal events.
const (
	TerminalPaused   TerminalEventKind = "paused"   // before attached: the computer is paused, and is resumed by input
	TerminalAttached TerminalEventKind = "attached" // the first
	TerminalOutput   TerminalEventKind = "output"
	TerminalGap      TerminalEventKind = "gap"    // output was dropped because the client read too slowly
	TerminalResized  TerminalEventKind = "resize" // another client has changed the size
	TerminalTaken    TerminalEventKind = "taken"  // input was received
	TerminalExit     TerminalEventKind = "exit"   // the last
	TerminalError    TerminalEventKind = "error"  // the last event of a broken attachment
)
