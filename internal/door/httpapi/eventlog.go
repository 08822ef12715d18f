package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Events are what happens to nouns.
type Events interface {
	// Follow calls emit with a ready or a reset event and then, in order, with those that q asks for and the
	// caller may see, until emit fails (its error), ctx ends or, unless q.Follow, with nil at the end of
	// what is over. InvalidArgument: an unknown kind, or an id that is none.
	Follow(ctx context.Context, q holt.EventQuery, emit func(holt.Event) error) error
}

func (s *Server) eventLog(api huma.API) {
	op := describe(http.MethodGet, "/v1/events", "followEvents", "events", "Follow what happens: computers, runs, terminals, snapshots, workspaces, checkpoints, jobs, schedules")
	op.Description = "Server-sent events: the name is the event's kind, the data an Event, the id its number. The first is ready: what happens from then on will be told, so " +
		"whoever lists things after it and then applies what comes misses nothing. A client that comes again with the id that it got last (Last-Event-ID, or after) gets what happened since; " +
		"the last 5,000 are kept, also when the daemon is restarted. If what happened since is not known any more the first event is reset in place of ready: everything must be looked at again. " +
		"That also comes in the middle, to a client that reads more slowly than things happen. Comments keep a quiet stream alive; a client that reads nothing for a minute is cut off. " +
		"An event is there exactly if the change that it tells of is. The reasons, names and states are those of that time."
	op.Responses = map[string]*huma.Response{"200": {Description: "events", Content: map[string]*huma.MediaType{
		"text/event-stream": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[holt.Event](), true, "")},
	}}}
	register(api, op, func(ctx context.Context, in *struct {
		After    string   `query:"after" maxLength:"20" doc:"the id of the last event that was received; default: only what happens from now on"`
		LastID   string   `header:"Last-Event-ID" maxLength:"20" doc:"as after, and goes before it"`
		Kind     []string `query:"kind,explode" maxItems:"32" doc:"only these kinds, or of these nouns: as run.ended, or computer"`
		Computer string   `query:"computer" maxLength:"64" doc:"only those about this computer: name or id"`
		Follow   bool     `query:"follow" default:"true" doc:"go on with what happens; false: end with what is kept"`
	}) (*huma.StreamResponse, error) {
		q := holt.EventQuery{After: in.After, Follow: in.Follow, Kinds: in.Kind, Computer: in.Computer}
		if in.LastID != "" {
			q.After = in.LastID
		}
		if in.Computer != "" {
			if _, err := parseRef(in.Computer); err != nil {
				return nil, err
			}
		}
		if err := s.opt.Nouns.Events.Follow(ctx, holt.EventQuery{After: q.After, Kinds: q.Kinds}, nothing); err != nil && err != errEnough {
			return nil, err // while there can still be a status
		}
		return s.eventStream(ctx, func(ctx context.Context, stream *eventStream) error {
			return s.opt.Nouns.Events.Follow(ctx, q, func(e holt.Event) error {
				return stream.put(string(e.Kind), "id: "+e.ID+"\n", e)
			})
		}), nil
	})
}

// nothing takes no event: the first shows that the query is one.
func nothing(holt.Event) error { return errEnough }

// errEnough ends a stream that nobody wants.
var errEnough = holt.Errorf(holt.Internal, "enough")
