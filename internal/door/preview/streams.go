package preview

import (
	"context"
	"sync"

	"holt"
)

// admission is how a request was admitted.
type admission string

const (
	byNobody admission = "" // not admitted yet
	byPublic admission = "public"
	byLink   admission = "link"
	byToken  admission = "token"
)

const (
	mostStreams   = 4096            // requests and connections of all computers at once
	mostOfTenants = mostStreams / 2 // of one tenant
	mostOfOne     = 512             // of one computer
	mostPublic    = 128             // of these, of public visitors: fewer than the connections to a port, and to a computer
)

// streams is the set of open requests and connections, so that they can be ended when the right to them ends.
type streams struct {
	mu      sync.Mutex
	all     int
	tenants map[string]int // number by tenant
	of      map[holt.ComputerID]map[*stream]struct{}
}

type stream struct {
	port int
	host string
	how  admission
	cut  context.CancelCauseFunc
}

// errCrowded is the error of a request beyond a limit.
var errCrowded = holt.Errorf(holt.TooMany, "too many requests to previews are open").WithHint("try again when some have ended")

// enter adds a request, or returns TooMany.
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

// admit records how a request was admitted. It returns TooMany for public visitors beyond mostPublic, so that they leave
// room for visitors with a link or a token.
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

// end ends the requests of a port whose admission which selects.
func (s *streams) end(id holt.ComputerID, port int, why error, which func(admission) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.of[id] {
		if one.port == port && which(one.how) {
			one.cut(why)
		}
	}
}

// endHost ends the requests for a host name.
func (s *streams) endHost(id holt.ComputerID, host string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.of[id] {
		if one.host == host {
			one.cut(why)
		}
	}
}
