package preview

import (
	"context"
	"sync"

	"holt"
)

// admission is why a request was let in.
type admission string

const (
	byNobody admission = "" // it is being looked at
	byPublic admission = "public"
	byLink   admission = "link"
	byToken  admission = "token"
)

const (
	mostStreams   = 4096            // requests and connections of all computers at once
	mostOfTenants = mostStreams / 2 // of one tenant's
	mostOfOne     = 512             // of one computer
	mostPublic    = 128             // of these, strangers': fewer than the connections to a port, and to a computer
)

// streams are the requests and connections that are open, so that they end when the right to them does.
type streams struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int // as many are of each
	of      map[holt.ComputerID]map[*stream]struct{}
}

type stream struct {
	port int
	host string
	how  admission
	cut  context.CancelCauseFunc
}

// errCrowded is for who comes when too many are there.
var errCrowded = holt.Errorf(holt.TooMany, "too many requests to previews are open").WithHint("try again when some have ended")

// enter puts a request among those that are open. TooMany.
func (s *streams) enter(ctx context.Context, c holt.Computer, port int, host string) (context.Context, *stream, func(), error) {
	id, tenant := c.ID, tenantOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= mostStreams || s.tenants[tenant] >= mostOfTenants || len(s.of[id]) >= mostOfOne {
		return nil, nil, nil, errCrowded
	}
	ctx, cut := context.WithCancelCause(ctx)
	one := &stream{port: port, host: host, cut: cut}
	if s.of == nil {
		s.of, s.tenants = map[holt.ComputerID]map[*stream]struct{}{}, map[string]int{}
	}
	if s.of[id] == nil {
		s.of[id] = map[*stream]struct{}{}
	}
	s.of[id][one] = struct{}{}
	s.all++
	s.tenants[tenant]++
	return ctx, one, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.of[id], one); len(s.of[id]) == 0 {
			delete(s.of, id)
		}
		s.all--
		if s.tenants[tenant]--; s.tenants[tenant] == 0 {
			delete(s.tenants, tenant)
		}
		cut(context.Canceled)
	}, nil
}

// admit says why one was let in. TooMany: strangers leave a place to who has a link or a token.
func (s *streams) admit(id holt.ComputerID, one *stream, how admission) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if how == byPublic {
		strangers := 0
		for other := range s.of[id] {
			if other.how == byPublic {
				strangers++
			}
		}
		if strangers >= mostPublic {
			return errCrowded
		}
	}
	one.how = how
	return nil
}

// end ends those of a port that were let in in some ways.
func (s *streams) end(id holt.ComputerID, port int, why error, which func(admission) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.of[id] {
		if one.port == port && which(one.how) {
			one.cut(why)
		}
	}
}

// endHost ends those that came by a name.
func (s *streams) endHost(id holt.ComputerID, host string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.of[id] {
		if one.host == host {
			one.cut(why)
		}
	}
}
