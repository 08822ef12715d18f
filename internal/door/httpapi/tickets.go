package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"holt"
	"holt/internal/api"
)

const (
	subprotocol       = "holt"
	ticketPrefix      = "holt.ticket." // of the subprotocol that is one; dots, since RFC 6455 takes tokens of RFC 2616 only
	mostTickets       = 10_000         // not redeemed
	mostTicketsOf     = 100            // of one token
	mostTicketsTenant = 1000           // of one tenant's tokens: each may make others
	sweepTickets      = time.Second    // how often those that have expired are looked for
)

// tickets are those not yet redeemed, by the hash of what was given out: a table lookup takes no time
// that would tell something of it.
type tickets struct {
	mu    sync.Mutex
	set   map[[sha256.Size]byte]ticket
	of    map[pot]int // how many of set there are
	swept time.Time
}

// pot is what a ticket counts in: that of its maker, or that of its tenant.
type pot struct{ maker, tenant string }

// ticket is what a holder gets: the caller's own credential for one call. It is checked again when the ticket is
// redeemed, as that of any call, so a token that was revoked meanwhile opens nothing.
type ticket struct {
	maker         string // id of the token; "": the person
	whose         string // tenant of the token; "": an admin
	path          string
	query         url.Values
	origin        string
	authorization string
	tenant        string // for which an admin made it
	expires       time.Time
}

func (k ticket) pots() [2]pot { return [...]pot{{maker: k.maker}, {tenant: k.whose}} }

// put keeps a ticket and returns what its holder shows.
func (t *tickets) put(k ticket) (string, error) {
	secret := rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.full(k) {
		t.sweep(time.Now())
	}
	if t.full(k) {
		pots := k.pots()
		return "", holt.Errorf(holt.TooMany, "%d tickets wait to be redeemed, %d of this token, %d of its tenant", len(t.set), t.of[pots[0]], t.of[pots[1]]).
			WithHint("they expire within %s; a token may have %d, a tenant %d", holt.ShortDuration(holt.TicketLife), mostTicketsOf, mostTicketsTenant)
	}
	if t.set == nil {
		t.set, t.of = map[[sha256.Size]byte]ticket{}, map[pot]int{}
	}
	for _, p := range k.pots() {
		t.of[p]++
	}
	t.set[sha256.Sum256([]byte(secret))] = k
	return secret, nil
}

// full says whether there is no room for a ticket. The lock is held.
func (t *tickets) full(k ticket) bool {
	pots := k.pots()
	return len(t.set) >= mostTickets || k.maker != "" && t.of[pots[0]] >= mostTicketsOf || k.whose != "" && t.of[pots[1]] >= mostTicketsTenant
}

// sweep removes those that have expired, seldom: it looks at all. The lock is held.
func (t *tickets) sweep(now time.Time) {
	if now.Sub(t.swept) < sweepTickets {
		return
	}
	t.swept = now
	for at, old := range t.set {
		if now.After(old.expires) {
			t.remove(at)
		}
	}
}

// remove takes one out, if it is there. The lock is held.
func (t *tickets) remove(at [sha256.Size]byte) {
	k, ok := t.set[at]
	if !ok {
		return
	}
	delete(t.set, at)
	for _, p := range k.pots() {
		if t.of[p]--; t.of[p] == 0 {
			delete(t.of, p)
		}
	}
}

// take returns a ticket, which is none any more then, whatever it was for.
func (t *tickets) take(secret string) (ticket, bool) {
	at := sha256.Sum256([]byte(secret))
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.set[at]
	t.remove(at)
	return k, ok && time.Now().Before(k.expires)
}

// fits says whether a call is the one that the ticket is for: its holder adds nothing and leaves nothing out.
func (k ticket) fits(r *http.Request) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	origin := r.Header.Get("Origin")
	return err == nil && r.URL.Path == k.path && maps.EqualFunc(query, k.query, slices.Equal) && (origin == k.origin || k.origin == "" && !foreign(r))
}

func (s *Server) makeTicket(ctx context.Context, in *api.TicketFor) (holt.Ticket, error) {
	by, _ := holt.ActorOf(ctx)
	header := requestOf(ctx).r.Header
	k := ticket{maker: string(by.Token), origin: in.Body.Origin, authorization: header.Get("Authorization"), tenant: header.Get(TenantHeader), expires: time.Now().Add(holt.TicketLife)}
	if !by.Admin() {
		k.whose = by.Tenant
	}
	u, err := url.Parse(in.Body.Path)
	if err != nil || u.IsAbs() || u.Host != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/v1/") || u.Path != "/v1"+parsedPath(u.Path) {
		return holt.Ticket{}, holt.Errorf(holt.InvalidArgument, "%q is not the path of a WebSocket", clip(in.Body.Path)).
			WithHint("use everything after the host, such as /v1/computers/einstein/terminals/main/attach")
	}
	k.path, k.query = u.Path, u.Query()
	if k.origin != "" {
		o, err := url.Parse(k.origin)
		if err != nil || o.Host == "" || o.Scheme != "https" && o.Scheme != "http" || o.Scheme+"://"+o.Host != k.origin {
			return holt.Ticket{}, holt.Errorf(holt.InvalidArgument, "%q is not an origin", clip(k.origin)).WithHint("use the scheme and host of the page, such as https://app.example")
		}
	}
	secret, err := s.tickets.put(k)
	return holt.Ticket{Protocol: ticketPrefix + secret, ExpiresAt: k.expires.UTC()}, err
}

// parsedPath is what is behind /v1 in a path that has no odd elements.
func parsedPath(p string) string {
	clean, err := api.CleanPath(strings.TrimPrefix(p, "/v1"))
	if err != nil {
		return ""
	}
	return clean
}

// redeem makes of a WebSocket that shows a ticket a call of the ticket's maker.
func (s *Server) redeem(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := ""
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
				for one := range strings.SplitSeq(line, ",") {
					if secret, ok := strings.CutPrefix(strings.TrimSpace(one), ticketPrefix); ok {
						shown = secret
					}
				}
			}
		}
		if shown == "" {
			next.ServeHTTP(w, r)
			return
		}
		q := requestOf(r.Context())
		k, ok := s.tickets.take(shown)
		if !ok || !k.fits(r) {
			q.refuse(holt.Errorf(holt.Unauthenticated, "the ticket is not valid for this call").
				WithHint("a ticket is valid once, for %s, for one path with its query and for one origin; make a new one", holt.ShortDuration(holt.TicketLife)))
			return
		}
		if k.authorization != "" {
			r.Header.Set("Authorization", k.authorization)
		}
		r.Header.Del(TenantHeader) // its holder chooses nothing
		if k.tenant != "" {
			r.Header.Set(TenantHeader, k.tenant)
		}
		q.origin = k.origin
		next.ServeHTTP(w, r)
	})
}

// upgrade makes the call a WebSocket. Its origin is that of this server, or of its ticket. What it answers to a bad
// handshake is its own.
func (q *request) upgrade(r *http.Request) (*websocket.Conn, error) {
	q.hijacked.Store(true)
	return websocket.Accept(q, r, &websocket.AcceptOptions{Subprotocols: []string{subprotocol}, InsecureSkipVerify: q.origin != ""})
}
