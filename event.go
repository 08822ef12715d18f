package holt

import "time"

// Event is one change of an object. Events are numbered in the order in which they
// happened. A number is used once.
type Event struct {
	ID       string     `json:"id" doc:"decimal number, higher than those of all earlier events; use it as after to continue"`
	At       time.Time  `json:"at"`
	Kind     EventKind  `json:"kind" doc:"a noun, a dot, and what happened, such as computer.state; ready and reset are about the stream itself"`
	Tenant   string     `json:"tenant,omitempty" doc:"tenant that owns the object"`
	Computer ComputerID `json:"computer,omitempty" doc:"the computer, or the one that the object belongs to"`
	// ComputerName is its name at that time.
	ComputerName string `json:"computer_name,omitempty"`
	Ref          string `json:"ref,omitempty" doc:"id of the object; for a firing, its schedule's id; for a checkpoint, its workspace's id"`
	Name         string `json:"name,omitempty" doc:"name of the object at that time"`
	State        string `json:"state,omitempty" doc:"the new state"`
	Was          string `json:"was,omitempty" doc:"the previous state"`
	Reason       string `json:"reason,omitempty" doc:"reason, if it is not obvious"`
	ExitCode     *int   `json:"exit_code,omitempty" doc:"exit status of a run or terminal that has ended"`
	Run          RunID  `json:"run,omitempty" doc:"the run of a firing"`
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events.
const (
	EventReady EventKind = "ready" // first event of a stream: later events follow
	EventReset EventKind = "reset" // first event instead of ready: events after the given id are no longer kept; list the current state again

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
	EventFiringState       EventKind = "firing.state" // state of a schedule's firing
	EventArtifactCreated   EventKind = "artifact.created"
	EventArtifactDeleted   EventKind = "artifact.deleted"
	EventArtifactRefused   EventKind = "artifact.refused" // by the scan of its bucket
)

// EventKinds are all of them.
var EventKinds = []EventKind{
	EventReady, EventReset,
	EventComputerCreated, EventComputerState, EventComputerChanged, EventComputerDeleted,
	EventRunStarted, EventRunEnded, EventTerminalOpened, EventTerminalEnded, EventSnapshotCreated, EventSnapshotDeleted,
	EventWorkspaceCreated, EventWorkspaceChanged, EventWorkspaceDeleted, EventCheckpointCreated, EventCheckpointDeleted,
	EventJobCreated, EventJobState, EventJobDeleted, EventScheduleCreated, EventScheduleChanged, EventScheduleDeleted, EventFiringState,
	EventArtifactCreated, EventArtifactDeleted, EventArtifactRefused,
}

// EventsKept is how many events are kept.
const EventsKept = 5000

// EventQuery selects events.
type EventQuery struct {
	After    string   // an event's id; "": with Follow only new events, else all that are kept
	Follow   bool     // continue with new events until the context ends
	Kinds    []string // kinds, or nouns for all their kinds, such as computer; none: all
	Computer string   // name or id of a computer; "": any
}
