package holt

import (
	"time"
)

// TerminalState is where a terminal is in its life.
type TerminalState string

// The states of a terminal.
const (
	TerminalRunning TerminalState = "running"
	TerminalExited  TerminalState = "exited"
	TerminalLost    TerminalState = "lost" // the computer ended under it
)

// DefaultTerminal is the name of the terminal that is meant when none is named.
const DefaultTerminal = "main"

// TerminalSize is how much text a terminal shows. Zero: 24 by 80.
type TerminalSize struct {
	Rows uint16 `json:"rows" maximum:"1000" doc:"lines; 0: 24"`
	Cols uint16 `json:"cols" maximum:"1000" doc:"characters in a line; 0: 80"`
}

// MostTerminalSize bounds both of a [TerminalSize].
const MostTerminalSize = 1000

// TerminalSpec says which terminal to open: the one of that name that runs, or
// a new one, which is what the rest is for.
type TerminalSpec struct {
	Name    string                `json:"name,omitempty" doc:"a DNS label, unique among those that run in the computer; default: main"`
	Command OSString              `json:"command,omitempty" doc:"a shell command, run by /bin/bash after the start-up files of a login; default: the user's login shell"`
	Argv    OSStrings             `json:"argv,omitempty" doc:"instead of command: a program and its arguments, run without a shell"`
	Env     map[OSString]OSString `json:"env,omitempty" writeOnly:"true" doc:"added to the user's environment; never kept or shown, since it may hold secrets. TERM is xterm-256color unless it is given"`
	Cwd     OSString              `json:"cwd,omitempty" doc:"absolute; default: the workspace, /home/agent"`
	User    string                `json:"user,omitempty" doc:"Linux user; default: agent"`
	Size    TerminalSize          `json:"size,omitzero"`
}

// Terminal is a program on a terminal of its own in a computer, most often a
// shell. It belongs to the computer's agent, not to who opened it: any number
// of clients attach to it, at the same time or one after the other. It is also
// a writer: what it changes in the workspace carries its id.
type Terminal struct {
	ID         TerminalID    `json:"id" doc:"unique in its computer; forks of a computer have terminals of the same id"`
	ComputerID ComputerID    `json:"computer_id"`
	Name       string        `json:"name"`
	Spec       TerminalSpec  `json:"spec" doc:"what it was started with"`
	State      TerminalState `json:"state" enum:"running,exited,lost"`
	ExitCode   int           `json:"exit_code" nullable:"true" doc:"exit status; 128 + signal number when a signal ended it; null until it has exited"`
	Signal     string        `json:"signal,omitempty" doc:"the signal that ended it, as SIGHUP"`
	Size       TerminalSize  `json:"size" doc:"as it is now: that of who attached or resized last"`
	Attached   int           `json:"attached" doc:"clients that are attached now"`
	StartedAt  time.Time     `json:"started_at"`
	EndedAt    *time.Time    `json:"ended_at,omitempty"`
}

// MarshalJSON shows no exit status before there is one.
func (t Terminal) MarshalJSON() ([]byte, error) {
	type plain Terminal
	return asJSON(struct {
		plain
		ExitCode *int `json:"exit_code"`
	}{plain(t), shownExit(t.ExitCode, t.State == TerminalExited)})
}

// AttachSpec says how to attach to a terminal.
type AttachSpec struct {
	Offset int64        // where in its output to begin, bytes from its start; negative: with the oldest that is kept
	Size   TerminalSize // zero: its size stays

	// Client and Input let an attachment that broke be taken up again with
	// nothing lost or doubled of what was typed: a random text that names the
	// client, "" if there is none, and how many bytes of its input it no longer has.
	Client string
	Input  int64
	// Again: this client was attached before and was cut off. A paused computer is then not
	// woken before something comes from it.
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
	End      int64             `json:"end,omitempty" doc:"for attached: where the output stands; what comes before is a replay"`
	Dropped  int64             `json:"dropped,omitempty" doc:"for gap: bytes that are gone"`
	Taken    int64             `json:"taken,omitempty" doc:"for attached and taken: bytes of this client's input that the terminal has"`
	Size     *TerminalSize     `json:"size,omitempty" doc:"for resize"`
	Terminal *Terminal         `json:"terminal,omitempty" doc:"for attached and exit"`
	Error    *Error            `json:"error,omitempty" doc:"for error: why the attachment ends"`
}

// TerminalEventKind says what a [TerminalEvent] is.
type TerminalEventKind string

// The kinds of terminal events.
const (
	TerminalPaused   TerminalEventKind = "paused"   // before attached: the computer is paused, and goes on when something is typed
	TerminalAttached TerminalEventKind = "attached" // the first
	TerminalOutput   TerminalEventKind = "output"
	TerminalGap      TerminalEventKind = "gap"    // output was dropped that came faster than it was read
	TerminalResized  TerminalEventKind = "resize" // somebody else's client has another size
	TerminalTaken    TerminalEventKind = "taken"  // input has arrived
	TerminalExit     TerminalEventKind = "exit"   // the last
	TerminalError    TerminalEventKind = "error"  // the last, of a connection
)
