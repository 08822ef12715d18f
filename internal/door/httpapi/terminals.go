package httpapi

import (
	"context"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) terminals() {
	n := s.opt.Nouns.Terminals
	bind(s, api.OpenTerminal, func(ctx context.Context, in *api.ComputerBody[holt.TerminalSpec]) (holt.Terminal, error) {
		return n.Open(ctx, in.Computer, in.Body, in.Key)
	})
	bindList(s, api.ListTerminals, func(ctx context.Context, in *api.ComputerList) ([]holt.Terminal, error) {
		return n.List(ctx, in.Computer)
	})
	bind(s, api.GetTerminal, func(ctx context.Context, in *api.OneTerminal) (holt.Terminal, error) {
		return n.Get(ctx, in.Computer, in.Terminal)
	})
	bind(s, api.SignalTerminal, func(ctx context.Context, in *api.TerminalSignal) (api.None, error) {
		return api.None{}, n.Signal(ctx, in.Computer, in.Terminal, in.Body.Signal, in.Key)
	})
	bind(s, api.CloseTerminal, func(ctx context.Context, in *api.TerminalKeyed) (holt.Terminal, error) {
		return n.Close(ctx, in.Computer, in.Terminal, in.Key)
	})
	bindStream(s, api.AttachTerminal, s.attachTerminal)
}

// socketControl is a text message of a client.
type socketControl struct {
	Kind   string            `json:"kind" enum:"resize,signal,wake"`
	Size   holt.TerminalSize `json:"size,omitzero" doc:"for resize"`
	Signal string            `json:"signal,omitempty" doc:"for signal: as SIGINT"`
}

func (s *Server) attachTerminal(ctx context.Context, in *api.TerminalAttach) (*huma.StreamResponse, error) {
	n, r, terminal := s.opt.Nouns.Terminals, requestOf(ctx).r, in.Terminal
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, holt.Errorf(holt.InvalidArgument, "this is a WebSocket").WithHint("holt terminal attach speaks it")
	}
	offset, err := offsetOr(in.Offset, -1)
	if err != nil {
		return nil, err
	}
	spec := holt.AttachSpec{Offset: offset, Size: holt.TerminalSize{Rows: in.Rows, Cols: in.Cols}, Client: in.Client, Input: in.Input, Again: in.Again}
	if in.Open && !in.Again {
		if _, err := holt.ParseTerminalID(terminal); err == nil {
			return nil, holt.Errorf(holt.InvalidArgument, "a terminal is opened by name, not by %s", terminal)
		}
		open := api.ComputerBody[holt.TerminalSpec]{OneComputer: in.OneComputer}
		open.Body = holt.TerminalSpec{Name: terminal, Command: holt.OSString(in.Command), User: in.User, Cwd: holt.OSString(in.Cwd), Size: spec.Size}
		t, err := api.Do(ctx, s.registry, api.OpenTerminal, &open)
		if err != nil {
			return nil, err
		}
		terminal = string(t.ID) // the name may move to another terminal
	}
	return s.socket(ctx, r, func(ctx context.Context, k *socket) error {
		k.signal = func(ctx context.Context, signal string) error {
			one := api.TerminalSignal{OneTerminal: api.OneTerminal{OneComputer: in.OneComputer, Terminal: terminal}, Body: holt.SignalSpec{Signal: signal}}
			_, err := api.Do(ctx, s.registry, api.SignalTerminal, &one)
			return err
		}
		return n.Attach(ctx, in.Computer, terminal, spec, k.in, k.emit)
	}), nil
}
