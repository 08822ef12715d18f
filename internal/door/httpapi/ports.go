package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

var portMessageType = reflect.TypeFor[holt.PortMessage]()

func listenerKey(l holt.Listener) string {
	return fmt.Sprintf("%05d %s %s %d", l.Port, l.Protocol, l.Address, l.PID)
}

// listeners leaves out what a process has at one address more than once, as with SO_REUSEPORT: a page's cursor counts on keys that differ.
func listeners(all []holt.Listener) []holt.Listener {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(l holt.Listener) bool {
		key := listenerKey(l)
		again := seen[key]
		seen[key] = true
		return again
	})
}

func (s *Server) ports(api huma.API) {
	const tag = "ports"
	nouns := s.opt.Nouns.Ports

	op := describe(http.MethodGet, "/v1/computers/{computer}/ports", "listPorts", tag, "List what listens in a computer")
	op.Description = "TCP and UDP ports, by number. A paused or stopped computer is woken first."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Paging
	}) (*reply[holt.Page[holt.Listener]], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		all, err := nouns.List(ctx, ref)
		return pageOf(listeners(all), listenerKey, in.Paging), err
	})

	op = describe(http.MethodGet, "/v1/computers/{computer}/connect", "connectPort", tag, "Connect to a port or a unix socket of a computer by WebSocket")
	op.Description = "Either port or socket is given. A port is connected to on the computer's loopback or, if nothing listens there, wherever something listens at it. " +
		"A paused or stopped computer is woken first. The answer is 101 once the connection is made; where nothing listens it is 503, code unavailable. " +
		"Binary messages are bytes, of any number. Text messages are JSON, from either side: {\"kind\":\"end\"} says that its sender sends no more bytes (a half-close); the other direction goes on. " +
		"When both sides have said so the server closes with 1000. A connection that breaks ends with a text message {\"kind\":\"error\",\"error\":…} of the server and 1011 " +
		"(it was broken off in the computer, or that was paused, stopped or deleted), or with 1001: the daemon is ending. A client that closes without having sent end breaks the connection off. " +
		"Who reads slowly is waited for; the bytes wait in the computer."
	op.Responses = map[string]*huma.Response{"101": {Description: "the WebSocket", Content: map[string]*huma.MediaType{
		"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(portMessageType, true, "")},
	}}}
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		RawRequest
		Port   int    `query:"port" minimum:"0" maximum:"65535" doc:"TCP port"`
		Socket string `query:"socket" maxLength:"107" doc:"absolute path of a unix socket"`
	}) (*huma.StreamResponse, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		to := holt.PortAddress{Port: in.Port, Socket: holt.OSString(in.Socket)}
		if err := to.Check(); err != nil {
			return nil, err
		}
		if !strings.EqualFold(in.r.Header.Get("Upgrade"), "websocket") {
			return nil, holt.Errorf(holt.InvalidArgument, "this is a WebSocket").WithHint("holt computer connect and forward speak it")
		}
		return s.tunnel(ctx, in.r, func(ctx context.Context) (holt.PortConn, error) { return nouns.Connect(ctx, ref, to) }), nil
	})
}
