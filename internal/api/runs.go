package api

import (
	"strconv"

	"holt"
)

// OneRun names a run in a path.
type OneRun struct {
	Run string `path:"run" doc:"run id"`
}

// EventsFrom is where in an output its follower begins.
type EventsFrom struct {
	Offset int64  `query:"offset" minimum:"0" doc:"where in the output to begin, bytes"`
	LastID string `header:"Last-Event-ID" maxLength:"20" doc:"as offset, and takes precedence over it"`
}

// At returns the offset.
func (f EventsFrom) At() (int64, error) {
	if f.LastID == "" {
		return f.Offset, nil
	}
	offset, err := strconv.ParseInt(f.LastID, 10, 64)
	if err != nil || offset < 0 {
		return 0, holt.Errorf(holt.InvalidArgument, "Last-Event-ID %q is not an offset", f.LastID)
	}
	return offset, nil
}

// Parse checks the offset.
func (f EventsFrom) Parse() error {
	_, err := f.At()
	return err
}

// InputEnd is how much of its input a run has taken.
type InputEnd struct {
	Offset int64 `json:"offset" doc:"bytes that the run has taken since its start: where the next call begins"`
}

// Inputs of runs.
type (
	RunEvents struct {
		OneRun
		EventsFrom
	}
	RunSignal struct {
		OneRun
		Keyed
		Body holt.SignalSpec
	}
	RunInput struct {
		OneRun
		Offset string `query:"offset" pattern:"^[0-9]{1,18}$" doc:"where in the input the body begins, bytes from its start; default: where the run is"`
		EOF    bool   `query:"eof" default:"true" doc:"close the input at the end of the body"`
		Wanted bool   `query:"wanted" doc:"wait first until a process of the run reads its input"`
	}
)

var runsTag = Tag("runs")

// Runs are commands in computers. The lists are cut into pages by what lists them, since there may be many.
var (
	StartRun = Post[ComputerBody[holt.RunSpec], holt.Run](computerPath+"/runs", "startRun", "Run a command",
		Need{On: Computer, User: "Body.User", Change: true}, Created, runsTag, Audited(AuditStart), Doc("The answer comes when the command has started; follow its events for its output and end. A stopped computer is started first."))
	ListRuns = Get[ComputerList, holt.Page[holt.Run]](computerPath+"/runs", "listRuns", "List the runs of a computer, newest first",
		Need{On: Computer, User: EveryUser}, runsTag)
	ListAllRuns = Get[Paging, holt.Page[holt.Run]]("/v1/runs", "listAllRuns", "List the runs of all computers, newest first", Need{On: Tenant, User: EveryUser})
	GetRun      = Get[OneRun, holt.Run]("/v1/runs/{run}", "getRun", "Get a run", Need{On: Run})
	FollowRun   = Get[RunEvents, Stream]("/v1/runs/{run}/events", "followRun", "Follow the output and the end of a run",
		Need{On: Run}, Events[holt.RunEvent](), Audited(AuditAll), Doc("Server-sent events: the name is the event's kind, the data a RunEvent, the id the offset after it. "+
			"A client that reconnects with that id as Last-Event-ID (or offset) misses nothing. The stream is complete "+
			"only when it ended with an exit event; an event named error carries an Error. Comments keep a quiet stream alive."))
	WriteRunInput = Put[RunInput, InputEnd]("/v1/runs/{run}/stdin", "writeRunInput", "Write to the standard input of a run",
		Need{On: Run, Change: true}, Takes("bytes for the standard input"), Doc("The body goes to the run as it arrives. It may be sent in any number of calls, one after the other; "+
			"the call with eof closes the input. A call that was cut off can be repeated with its offset: bytes that the run already has are skipped."))
	GetReceipt = Get[OneRun, holt.Receipt]("/v1/runs/{run}/receipt", "getRunReceipt", "Say what a run changed in its computer's workspace",
		Need{On: Run}, Doc("The receipt of a run that has ended is final: the call waits until the guest has written what it held in memory."))
	SignalRun = Post[RunSignal, None]("/v1/runs/{run}/signal", "signalRun", "Send a signal to every process of a run", Need{On: Run, Change: true})
)
