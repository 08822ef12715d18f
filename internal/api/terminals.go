package api

import "holt"

// OneTerminal names a terminal of a computer in a path.
type OneTerminal struct {
	OneComputer
	Terminal string `path:"terminal" doc:"terminal id, or its name: the running one of that name, else the one that was started last"`
}

// Inputs of terminals.
type (
	TerminalKeyed struct {
		OneTerminal
		Keyed
	}
	TerminalSignal struct {
		OneTerminal
		Keyed
		Body holt.SignalSpec
	}
	TerminalAttach struct {
		OneTerminal
		Offset  string `query:"offset" pattern:"^[0-9]{1,18}$" doc:"where in the terminal's output to begin, bytes from its start; default: the oldest that is kept"`
		Rows    uint16 `query:"rows" maximum:"1000" doc:"size to set; default: it stays"`
		Cols    uint16 `query:"cols" maximum:"1000"`
		Client  string `query:"client" maxLength:"64" doc:"random text that names the client"`
		Input   int64  `query:"input" minimum:"0" doc:"input bytes that the client cannot send again"`
		Open    bool   `query:"open" doc:"start a terminal of that name unless one is running"`
		Command string `query:"command" maxLength:"65536" doc:"for open: a shell command; default: the user's login shell"`
		User    string `query:"user" maxLength:"32" doc:"for open: Linux user; default: agent"`
		Cwd     string `query:"cwd" maxLength:"4096" doc:"for open: absolute; default: the workspace, /home/agent"`
		Again   bool   `query:"again" doc:"the client was attached before: a paused computer is not woken until the client sends something"`
	}
)

const terminalPath = computerPath + "/terminals/{terminal}"

var (
	terminalsTag = Tag("terminals")
	terminalUser = As(func(t holt.Terminal) string { return t.Spec.User })
)

// Terminals are programs on terminals of their own in computers.
var (
	OpenTerminal = Post[ComputerBody[holt.TerminalSpec], holt.Terminal](computerPath+"/terminals", "openTerminal", "Open a terminal: the running one of that name, or a new one",
		Need{On: Computer, User: "Body.User", Change: true}, terminalsTag, terminalUser, Audited(AuditStart), Doc("A stopped computer is started first."))
	ListTerminals = GetList[ComputerList](computerPath+"/terminals", "listTerminals", "List the terminals of a computer by name",
		readComputer, func(t holt.Terminal) string { return t.Name + " " + string(t.ID) }, terminalsTag, terminalUser)
	GetTerminal    = Get[OneTerminal, holt.Terminal](terminalPath, "getTerminal", "Get a terminal", Need{On: Terminal}, terminalsTag)
	SignalTerminal = Post[TerminalSignal, None](terminalPath+"/signal", "signalTerminal", "Send a signal to the foreground of a terminal, as its keys do",
		Need{On: Terminal, Change: true}, terminalsTag, Doc("SIGKILL ends all processes of the terminal."))
	CloseTerminal = Post[TerminalKeyed, holt.Terminal](terminalPath+"/close", "closeTerminal", "End a terminal",
		Need{On: Terminal, Change: true}, terminalsTag, Doc("All its processes get SIGHUP, as when a line is lost; those that have not ended 5 s later are killed. The record says how it ended."))
	AttachTerminal = Get[TerminalAttach, Stream](terminalPath+"/attach", "attachTerminal", "Attach to a terminal by WebSocket",
		Need{On: Content, Change: true}, terminalsTag, WebSocket[holt.TerminalEvent](), Audited(AuditStart), Doc("Binary messages are bytes: output of the terminal from the server, input from the client. Text messages are JSON. "+
			"From the server they are a TerminalEvent: attached (the first: where the output begins, where it is now, and how much of this client's input has arrived), gap, resize (by another client), taken, "+
			"exit (the last) or error (the last). From the client: {\"kind\":\"resize\",\"size\":{\"rows\":…,\"cols\":…}} or {\"kind\":\"signal\",\"signal\":…}. "+
			"Any number of clients may be attached; one that reads too slowly gets a gap. A client that was cut off reconnects with the offset after the last byte it got and, to neither lose nor repeat "+
			"input, with its client text and input: taken then says where to continue, in bytes from its first. With again it does not wake a paused computer: the first event is then paused, "+
			"and attached follows once the computer resumes for another reason or this client sends input or {\"kind\":\"wake\"}. A client should have at most 65,536 bytes sent but not yet in taken. The server pings. "+
			"With open it is one URL for a terminal by name: the running one, or a new one with command, user and cwd; a paused or stopped computer is woken before the answer, 101. "+
			"A browser, which can send no header with a WebSocket, offers the subprotocol holt and after it a ticket (createTicket)."))
)
