package server

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"holt"
)

// public says which pages a browser may fetch without a token: they describe
// the API and hold nothing of anyone's.
func public(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.Path == "/docs" || r.URL.Path == "/openapi.json")
}

// guard lets in who may come over TCP. A token is asked of everyone, from
// loopback too: other users and guests of this host can reach loopback.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := requestOf(r.Context())
		if !s.knownHost(r.Host) {
			q.fail(holt.Errorf(holt.Denied, "this server is not %q", clip(r.Host)).
				WithHint("call it by an IP address, or name the host when the daemon starts"), http.StatusForbidden)
			return
		}
		if !public(r) {
			actor, err := s.authenticate(q, r)
			if err != nil {
				w.Header().Set("WWW-Authenticate", "Bearer")
				q.fail(err, Status(holt.CodeOf(err)))
				return
			}
			r = r.WithContext(holt.WithActor(r.Context(), actor))
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) authenticate(q *request, r *http.Request) (holt.Actor, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return holt.Actor{}, holt.Errorf(holt.Unauthenticated, "a token is needed").
			WithHint("send the header Authorization: Bearer TOKEN; the command line reads %s", holt.EnvToken)
	}
	if s.opt.Tokens == nil {
		return holt.Actor{}, holt.Errorf(holt.Unauthenticated, "this daemon has no tokens")
	}
	token, err := s.opt.Tokens.Check(r.Context(), secret)
	if err != nil {
		return holt.Actor{}, err
	}
	q.token = token.ID
	return token.Actor(), nil
}

// knownHost refuses names that someone else's DNS may have pointed here
// (rebinding). IP addresses and localhost cannot be rebound.
func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
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

// sameOrigin refuses what a page of another site makes a browser send, on
// every door: a browser names the page's origin, programs send none.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, q := r.Header.Get("Sec-Fetch-Site"), requestOf(r.Context())
		if q.origin != "" { // checked with its ticket
			next.ServeHTTP(w, r)
			return
		}
		if foreign(r) || site == "cross-site" || site == "same-site" {
			q.fail(holt.Errorf(holt.Denied, "a page of another site made this call").
				WithHint("the API takes no calls from other sites' pages"), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says that the call's Origin is not the host it was sent to.
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
			q.fail(holt.Errorf(holt.InvalidArgument, "%s cannot be used on %s", clip(r.Method), clip(r.URL.Path)).
				WithHint("the API is described at /docs"), http.StatusMethodNotAllowed)
			return
		}
		q.fail(holt.Errorf(holt.NotFound, "no such path: %s", clip(r.URL.Path)).
			WithHint("the API is described at /docs"), http.StatusNotFound)
	})
}
