package httpapi

import (
	"cmp"
	"context"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
)

func (s *Server) eventLog() {
	n := s.opt.Nouns.Events
	bindStream(s, api.FollowEvents, func(ctx context.Context, in *api.EventsOf) (*huma.StreamResponse, error) {
		q := holt.EventQuery{After: cmp.Or(in.LastID, in.After), Follow: in.Follow, Kinds: in.Kind, Computer: in.Computer}
		if err := n.Follow(ctx, holt.EventQuery{After: q.After, Kinds: q.Kinds}, nothing); err != nil && err != errEnough {
			return nil, err // while there can still be a status
		}
		return s.eventStream(ctx, func(ctx context.Context, stream *eventStream) error {
			return n.Follow(ctx, q, func(e holt.Event) error {
				if s.registry.Seen(ctx, api.FollowEvents.Endpoint, e) != nil {
					return nil
				}
				return stream.put(string(e.Kind), "id: "+e.ID+"\n", e)
			})
		}), nil
	})
}

// nothing takes no event: the first shows that the query is one.
func nothing(holt.Event) error { return errEnough }

// errEnough ends a stream that is not wanted any more.
var errEnough = holt.Errorf(holt.Internal, "enough")
