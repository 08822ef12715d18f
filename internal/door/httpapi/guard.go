package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"holt"
	"holt/internal/access"
)

// Tokens judges the bearer tokens of callers who come over TCP; it is what
// [access.Tokens] does.
type Tokens interface {
	// Check returns whose token it is, or Unauthenticated. It takes the same
	// time for every wrong secret.
	Check(ctx context.Context, secret string) (access.Token, error)
	// Hold returns a context for a call with the token: it ends when that is revoked or expires.
	Hold(ctx context.Context, token access.Token) (context.Context, context.CancelFunc)
}

// public reports whether a page needs no token: those that describe the API.
func public(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/docs" || r.URL.Path == "/openapi.json")
}

// guard admits calls over TCP. Every caller needs a token, on loopback too: other users and guests of this host reach loopback.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := requestOf(r.Context())
		if !s.knownHost(r.Host) {
			q.refuse(holt.Errorf(holt.Forbidden, "the host name %q is not a name of this server", clip(r.Host)).
				WithHint("start the daemon with --host %s, or use an IP address", hostFlag(r.Host)))
			return
		}
		if public(r) {
			next.ServeHTTP(w, r)
			return
		}
		token, err := s.authenticate(q, r)
		if err != nil {
			s.unauthenticated(q, err)
			return
		}
		q.by = holt.WithActor(r.Context(), token.Actor())
		leave, admitted := s.admit(q, token)
		if !admitted {
			q.often = true
			return
		}
		defer leave()
		actor, err := within(r, token.Actor())
		if err != nil {
			q.refuse(err)
			return
		}
		ctx, end := s.opt.Tokens.Hold(holt.WithActor(r.Context(), actor), token)
		defer end()
		q.by = ctx
		cut := q.cutWith(ctx)
		defer func() {
			if cut() {
				panic(http.ErrAbortHandler) // closes the connection: the next call on it would fail
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// unauthenticated answers a call without a valid token, of which each address has a limited number.
func (s *Server) unauthenticated(q *request, err error) {
	if holt.CodeOf(err) == holt.Unauthenticated {
		if wait := s.opt.Failures.Take(holt.Source(q.remote)); wait > 0 {
			q.slow(wait, "this address made too many calls without a valid token")
			return
		}
	}
	q.Header().Set("WWW-Authenticate", "Bearer")
	q.refuse(err)
}

// admit counts a call of a token until leave is called, or answers it: the token or its tenant calls too often, or has too
// many open calls.
func (s *Server) admit(q *request, token access.Token) (leave func(), admitted bool) {
	if wait, why := s.mayCall(token); wait > 0 {
		q.slow(wait, why)
		return nil, false
	}
	leave, err := s.open.Enter(s.openOf(token)...)
	if err != nil {
		q.refuse(err)
	}
	return leave, err == nil
}

// mayCall returns how long a token must wait because it, or all tokens of its tenant together, make too many calls.
func (s *Server) mayCall(token access.Token) (wait time.Duration, why string) {
	if wait = s.opt.Calls.Take(string(token.ID)); wait > 0 || token.Rights.Admin {
		return wait, "the token makes too many calls"
	}
	return s.opt.Tenants.Take(token.Tenant), "the tokens of the tenant make too many calls together"
}

// mostOpen is how many calls of one token may be open at once, as those that follow something.
const mostOpen = 2000

// openOf returns the counts that an open call of a token is part of. The first few calls of a tenant do not count in the sum
// of all tenants, so that no tenant can keep others out.
func (s *Server) openOf(token access.Token) []access.Share {
	own := access.Share{Of: " of the token " + string(token.ID), Most: s.opt.Open}
	if token.Rights.Admin {
		return []access.Share{own}
	}
	shares := []access.Share{own, {Of: " of the tenant " + token.Tenant, Most: 2 * s.opt.Open}}
	if s.open.Open(shares[1].Of) >= max(1, s.opt.Open/20) {
		shares = append(shares, access.Share{Most: 4 * s.opt.Open})
	}
	return shares
}

// slow refuses a call that comes too soon.
func (q *request) slow(wait time.Duration, why string) {
	seconds := int(wait/time.Second) + 1
	q.Header().Set("Retry-After", strconv.Itoa(seconds))
	q.refuse(holt.Errorf(holt.TooMany, "%s", why).WithHint("try again in %s", holt.ShortDuration(time.Duration(seconds)*time.Second)))
}

// TenantHeader names the tenant that an admin's call is for.
const TenantHeader = "Holt-Tenant"

// within confines a call to the tenant of its actor, or to the one that an admin names.
func within(r *http.Request, a holt.Actor) (holt.Actor, error) {
	if name := r.Header.Get(TenantHeader); name != "" {
		tenant, err := holt.ParseTenant(name)
		if err != nil {
			return a, err
		}
		if !a.Admin() && tenant != a.Tenant {
			return a, holt.Errorf(holt.Forbidden, "the token is for the tenant %s only", a.Tenant).WithHint("omit %s, or use a token with the scope admin", TenantHeader)
		}
		a.Tenant = tenant
	}
	return a, nil
}

// person admits calls over the unix socket: its callers are admins.
func (s *Server) person(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, err := within(r, holt.Actor{Tenant: holt.DefaultTenant})
		if err != nil {
			requestOf(r.Context()).refuse(err)
			return
		}
		r = r.WithContext(holt.WithActor(r.Context(), actor))
		requestOf(r.Context()).by = r.Context()
		next.ServeHTTP(w, r)
	})
}

// cutWith ends reads from and writes to the caller when the call's token is revoked or expires.
func (q *request) cutWith(ctx context.Context) (stop func() (was bool)) {
	done := make(chan struct{})
	never := revoked(ctx, func() {
		defer close(done)
		if q.hijacked.Load() {
			return // a WebSocket watches for it itself
		}
		q.body.Abandon() // a deadline alone ends no body that never pauses
		_ = q.ctl.SetWriteDeadline(time.Now())
	})
	return func() bool {
		if never() || holt.CodeOf(context.Cause(ctx)) != holt.Unauthenticated {
			return false
		}
		<-done
		return true
	}
}

// revoked calls f when the token of a call is revoked or expires. A hijacked connection outlives the call's context and needs this.
func revoked(ctx context.Context, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if holt.CodeOf(context.Cause(ctx)) == holt.Unauthenticated {
			f()
		}
	})
}

func (s *Server) authenticate(q *request, r *http.Request) (token access.Token, err error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return token, holt.Errorf(holt.Unauthenticated, "the call has no token").
			WithHint("send the header Authorization: Bearer TOKEN; the command line reads %s", holt.EnvToken)
	}
	if s.opt.Tokens == nil {
		return token, holt.Errorf(holt.Unauthenticated, "this daemon has no tokens")
	}
	if token, err = s.opt.Tokens.Check(r.Context(), secret); err == nil {
		q.token = token.ID
	}
	return token, err
}

// knownHost refuses host names that an attacker's DNS may have pointed here (DNS rebinding). IP addresses and localhost cannot be rebound.
func (s *Server) knownHost(hostport string) bool {
	host := withoutPort(hostport)
	if host == "localhost" || net.ParseIP(host) != nil {
		return true
	}
	for _, known := range s.opt.Hosts {
		if strings.EqualFold(host, known) {
			return true
		}
	}
	return false
}

func withoutPort(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

// hostFlag is what --host would be for a call to hostport.
func hostFlag(hostport string) string {
	host := withoutPort(hostport)
	if name, err := holt.ParseDomain(host); err == nil {
		return name
	}
	if name, err := holt.ParseName(strings.ToLower(host)); err == nil {
		return name
	}
	return "NAME"
}

// sameOrigin refuses calls that a page of another site makes a browser send. A browser names the page's origin; programs send none.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, q := r.Header.Get("Sec-Fetch-Site"), requestOf(r.Context())
		if q.origin != "" { // checked with its ticket
			next.ServeHTTP(w, r)
			return
		}
		if foreign(r) || site == "cross-site" || site == "same-site" {
			q.refuse(holt.Errorf(holt.Forbidden, "the call comes from a page of another site").
				WithHint("the API refuses calls from pages of other sites"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign reports whether the call's Origin differs from the host it was sent to.
func foreign(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// noSuchPath answers in JSON what http.ServeMux would answer in plain text.
func noSuchPath(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			requestOf(r.Context()).pattern = pattern
			mux.ServeHTTP(w, r)
			return
		}
		q := requestOf(r.Context())
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			other := r.Clone(r.Context())
			other.Method = method
			if _, pattern := mux.Handler(other); pattern != "" {
				w.Header().Add("Allow", method)
			}
		}
		if w.Header().Get("Allow") != "" {
			q.fail(holt.Errorf(holt.InvalidArgument, "the method %s is not supported for %s", clip(r.Method), clip(r.URL.Path)).
				WithHint("the API is described at /docs"), http.StatusMethodNotAllowed)
			return
		}
		q.refuse(holt.Errorf(holt.NotFound, "no such path: %s", clip(r.URL.Path)).
			WithHint("the API is described at /docs"))
	})
}
