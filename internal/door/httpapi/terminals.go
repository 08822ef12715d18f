package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneTerminal names a terminal of a computer in a path.
type OneTerminal struct {
	OneComputer
	Terminal string `path:"terminal" doc:"terminal id, or its name: the one that runs, else the one that was started last"`
}

// refs checks both names.
func (in OneTerminal) refs() (computer, terminal string, err error) {
	if computer, err = parseRef(in.Computer); err != nil {
		return "", "", err
	}
	if _, err := holt.ParseTerminalID(in.Terminal); err == nil {
		return computer, in.Terminal, nil
	}
	terminal, err = holt.ParseName(in.Terminal)
	return computer, terminal, err
}

const terminalPath = "/v1/computers/{computer}/terminals/{terminal}"

func (s *Server) terminals(api huma.API) {
	const tag = "terminals"
	nouns := s.opt.Nouns.Terminals

	op := describe(http.MethodPost, "/v1/computers/{computer}/terminals", "openTerminal", tag, "Open a terminal: the one of that name that runs, or a new one")
	op.Description = "A stopped computer is started first."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.TerminalSpec
	}) (*reply[holt.Terminal], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		t, err := nouns.Open(ctx, ref, in.Body, in.Key)
		return &reply[holt.Terminal]{t}, err
	})

	register(api, describe(http.MethodGet, "/v1/computers/{computer}/terminals", "listTerminals", tag, "List the terminals of a computer by name"),
		func(ctx context.Context, in *struct {
			OneComputer
			Paging
		}) (*reply[holt.Page[holt.Terminal]], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			all, err := nouns.List(ctx, ref)
			return pageOf(all, func(t holt.Terminal) string { return t.Name + " " + string(t.ID) }, in.Paging), err
		})

	register(api, describe(http.MethodGet, terminalPath, "getTerminal", tag, "Get a terminal"),
		func(ctx context.Context, in *OneTerminal) (*reply[holt.Terminal], error) {
			computer, terminal, err := in.refs()
			if err != nil {
				return nil, err
			}
			t, err := nouns.Get(ctx, computer, terminal)
			return &reply[holt.Terminal]{t}, err
		})

	op = describe(http.MethodPost, terminalPath+"/signal", "signalTerminal", tag, "Send a signal to what is in a terminal's foreground, as its keys do")
	op.Description = "SIGKILL ends all processes of the terminal."
	register(api, op, func(ctx context.Context, in *struct {
		OneTerminal
		Keyed
		Body holt.SignalSpec
	}) (*noContent, error) {
		computer, terminal, err := in.refs()
		if err != nil {
			return nil, err
		}
		return &noContent{}, nouns.Signal(ctx, computer, terminal, in.Body.Signal, in.Key)
	})

	op = describe(http.MethodPost, terminalPath+"/close", "closeTerminal", tag, "End a terminal")
	op.Description = "As the loss of a line does: SIGHUP to all its processes; what has not ended 5 s later is killed. How it ended stays on record."
	register(api, op, func(ctx context.Context, in *struct {
		OneTerminal
		Keyed
	}) (*reply[holt.Terminal], error) {
		computer, terminal, err := in.refs()
		if err != nil {
			return nil, err
		}
		t, err := nouns.Close(ctx, computer, terminal, in.Key)
		return &reply[holt.Terminal]{t}, err
	})
	s.attachTerminal(api)
}

// socketControl is a text message of a client.
type socketControl struct {
	Kind   string            `json:"kind" enum:"resize,signal,wake"`
	Size   holt.TerminalSize `json:"size,omitzero" doc:"for resize"`
	Signal string            `json:"signal,omitempty" doc:"for signal: as SIGINT"`
}

func (s *Server) attachTerminal(api huma.API) {
	op := describe(http.MethodGet, terminalPath+"/attach", "attachTerminal", "terminals", "Attach to a terminal by WebSocket")
	op.Description = "Binary messages are bytes: of the terminal's output from the server, of input from the client. Text messages are JSON. " +
		"From the server they are a TerminalEvent: attached (the first: where the output begins, where it stands now, and how much of this client's input has arrived), gap, resize (by another client), taken, " +
		"exit (the last) or error (the last). From the client: {\"kind\":\"resize\",\"size\":{\"rows\":…,\"cols\":…}} or {\"kind\":\"signal\",\"signal\":…}. " +
		"Any number of clients may be attached; one that reads too slowly gets a gap. A client that was cut off comes again with the offset behind the last byte it got and, to lose or double " +
		"nothing it sent, with its client text and input: then taken says where it goes on, counted in bytes from its first. With again it does not wake a paused computer: the first event is then paused, " +
		"and attached comes once somebody else lets the computer go on or this client sends input or {\"kind\":\"wake\"}. It should have no more than 65,536 bytes under way that are not taken. The server pings. " +
		"With open it is one URL for a terminal by name: the one that runs, or a new one, of what command, user and cwd say; a paused or stopped computer is woken before the answer, 101. " +
		"A browser, which can send no header with it, offers the subprotocol holt and, behind that, a ticket (createTicket)."
	op.Responses = map[string]*huma.Response{"101": {Description: "the WebSocket", Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(terminalEventType, true, "")},
	}}}
	register(api, op, func(ctx context.Context, in *struct {
		OneTerminal
		RawRequest
		Offset  string `query:"offset" pattern:"^[0-9]{1,18}$" doc:"where in the terminal's output to begin, bytes from its start; default: the oldest that is kept"`
		Rows    uint16 `query:"rows" maximum:"1000" doc:"size to set; default: it stays"`
		Cols    uint16 `query:"cols" maximum:"1000"`
		Client  string `query:"client" maxLength:"64" doc:"random text that names the client"`
		Input   int64  `query:"input" minimum:"0" doc:"bytes of its input that the client no longer has"`
		Open    bool   `query:"open" doc:"start a terminal of that name unless one runs"`
		Command string `query:"command" maxLength:"65536" doc:"for open: a shell command; default: the user's login shell"`
		User    string `query:"user" maxLength:"32" doc:"for open: Linux user; default: agent"`
		Cwd     string `query:"cwd" maxLength:"4096" doc:"for open: absolute; default: the workspace, /home/agent"`
		Again   bool   `query:"again" doc:"the client was attached before: a paused computer is not woken before something comes from it"`
	}) (*huma.StreamResponse, error) {
		computer, terminal, err := in.refs()
		if err != nil {
			return nil, err
		}
		if !strings.EqualFold(in.r.Header.Get("Upgrade"), "websocket") {
			return nil, holt.Errorf(holt.InvalidArgument, "this is a WebSocket").WithHint("holt terminal attach speaks it")
		}
		spec := holt.AttachSpec{Offset: -1, Size: holt.TerminalSize{Rows: in.Rows, Cols: in.Cols}, Client: in.Client, Input: in.Input, Again: in.Again}
		if in.Offset != "" {
			if spec.Offset, err = strconv.ParseInt(in.Offset, 10, 64); err != nil {
				return nil, holt.Errorf(holt.InvalidArgument, "%q is not an offset", in.Offset)
			}
		}
		if in.Open && !in.Again {
			if _, err := holt.ParseTerminalID(terminal); err == nil {
				return nil, holt.Errorf(holt.InvalidArgument, "a terminal is opened by name, not as %s", terminal)
			}
			t, err := s.opt.Nouns.Terminals.Open(ctx, computer, holt.TerminalSpec{Name: terminal, Command: holt.OSString(in.Command), User: in.User, Cwd: holt.OSString(in.Cwd), Size: spec.Size}, "")
			if err != nil {
				return nil, err
			}
			terminal = string(t.ID) // whatever has its name by then
		}
		return s.socket(ctx, in.r, func(ctx context.Context, k *socket) error {
			k.signal = func(ctx context.Context, signal string) error {
				return s.opt.Nouns.Terminals.Signal(ctx, computer, terminal, signal, "")
			}
			return s.opt.Nouns.Terminals.Attach(ctx, computer, terminal, spec, k.in, k.emit)
		}), nil
	})
}
