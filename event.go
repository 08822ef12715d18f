package holt

import "time"

// Event is one thing that has happened to a noun. Events are numbered in the order in
// which they happened; each number is given out once.
type Event struct {
	ID       string     `json:"id" doc:"where to go on from: a number in decimal, larger than that of every event before it"`
	At       time.Time  `json:"at"`
	Kind     EventKind  `json:"kind" doc:"a noun, a dot, and what became of it, as computer.state; ready and reset are of the stream itself"`
	Tenant   string     `json:"tenant,omitempty" doc:"whose the thing is"`
	Computer ComputerID `json:"computer,omitempty" doc:"the computer that it is, or belongs to"`
	// ComputerName is its name at that time.
	ComputerName string `json:"computer_name,omitempty"`
	Ref          string `json:"ref,omitempty" doc:"id of the thing: of the computer, run, terminal, snapshot, job or schedule; of a firing, its schedule's; of a workspace or a checkpoint the workspace's"`
	Name         string `json:"name,omitempty" doc:"its name at that time"`
	State        string `json:"state,omitempty" doc:"that it came to"`
	Was          string `json:"was,omitempty" doc:"the state before"`
	Reason       string `json:"reason,omitempty" doc:"why, when that is not obvious"`
	ExitCode     *int   `json:"exit_code,omitempty" doc:"of a run or a terminal that has ended"`
	Run          RunID  `json:"run,omitempty" doc:"of a firing: its run"`
}

// EventKind says what an [Event] is of, and what happened.
type EventKind string

// The kinds of events.
const (
	EventReady EventKind = "ready" // the first of a stream: what happens from now on will be told
	EventReset EventKind = "reset" // the first, in place of ready: what happened since the id that was given is not known any more; look at everything again

	EventComputerCreated   EventKind = "computer.created"
	EventComputerState     EventKind = "computer.state"
	EventComputerChanged   EventKind = "computer.changed" // its name or its shape
	EventComputerDeleted   EventKind = "computer.deleted"
	EventRunStarted        EventKind = "run.started"
	EventRunEnded          EventKind = "run.ended"
	EventTerminalOpened    EventKind = "terminal.opened"
	EventTerminalEnded     EventKind = "terminal.ended"
	EventSnapshotCreated   EventKind = "snapshot.created"
	EventSnapshotDeleted   EventKind = "snapshot.deleted"
	EventWorkspaceCreated  EventKind = "workspace.created"
	EventWorkspaceChanged  EventKind = "workspace.changed" // its name
	EventWorkspaceDeleted  EventKind = "workspace.deleted"
	EventCheckpointCreated EventKind = "checkpoint.created"
	EventCheckpointDeleted EventKind = "checkpoint.deleted"
	EventJobCreated        EventKind = "job.created"
	EventJobState          EventKind = "job.state"
	EventJobDeleted        EventKind = "job.deleted"
	EventScheduleCreated   EventKind = "schedule.created"
	EventScheduleChanged   EventKind = "schedule.changed"
	EventScheduleDeleted   EventKind = "schedule.deleted"
	EventFiringState       EventKind = "firing.state" // how far a firing of a schedule is
)

// EventKinds are all of them.
var EventKinds = []EventKind{
	EventReady, EventReset,
	EventComputerCreated, EventComputerState, EventComputerChanged, EventComputerDeleted,
	EventRunStarted, EventRunEnded, EventTerminalOpened, EventTerminalEnded, EventSnapshotCreated, EventSnapshotDeleted,
	EventWorkspaceCreated, EventWorkspaceChanged, EventWorkspaceDeleted, EventCheckpointCreated, EventCheckpointDeleted,
	EventJobCreated, EventJobState, EventJobDeleted, EventScheduleCreated, EventScheduleChanged, EventScheduleDeleted, EventFiringState,
}

// EventsKept is how many events can be gone on from at most.
const EventsKept = 5000

// EventQuery says which events are wanted.
type EventQuery struct {
	After    string   // an event's id; "": those from now on or, of those that are over, all that are kept
	Follow   bool     // go on with what happens, until the context ends; else end with what is over
	Kinds    []string // kinds, or nouns for all of their kinds, as computer; none: all
	Computer string   // name or id of the computer that they are about; "": any
}
