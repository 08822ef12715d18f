package preview

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"holt"
	"holt/internal/access"
)

const (
	linkParameter = "holt-link"
	tokenHeader   = "X-Holt-Token" // an API token, or that of a link
	apiPrefix     = "holt_"        // of the secrets of API tokens, see package access
	plainCookie   = "holt-preview"
	secureCookie  = "__Host-holt-preview" // browsers accept the prefix __Host- only from the host itself
)

// credentials are the credentials of a request.
type credentials struct {
	secret  string   // of an API token
	link    string   // token of a link, in the URL
	header  string   // token of a link, in tokenHeader
	cookies []string // tokens of links
}

// shown reports whether there are any.
func (c credentials) shown() bool {
	return c.secret != "" || c.link != "" || c.header != "" || len(c.cookies) > 0
}

func credentialsOf(r *http.Request) (c credentials) {
	if bearer, ours := ourBearer(r.Header.Get("Authorization")); ours {
		c.secret = bearer
	}
	if token := r.Header.Get(tokenHeader); strings.HasPrefix(token, linkPrefix) {
		c.header = token
	} else if token != "" {
		c.secret = token
	}
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if token, ok := strings.CutPrefix(part, linkParameter+"="); ok {
			c.link = token
		}
	}
	for _, one := range r.Cookies() {
		if one.Name == plainCookie || one.Name == secureCookie {
			c.cookies = append(c.cookies, one.Value)
		}
	}
	return c
}

// ourBearer returns the token of an Authorization header for holt. Others are for the app.
func ourBearer(authorization string) (string, bool) {
	scheme, secret, _ := strings.Cut(authorization, " ")
	secret = strings.TrimSpace(secret)
	ours := strings.EqualFold(scheme, "Bearer") && (strings.HasPrefix(secret, apiPrefix) || strings.HasPrefix(secret, linkPrefix))
	return secret, ours
}

// visitor is an admitted caller.
type visitor struct {
	how    admission
	ctx    context.Context // ends with the right
	cookie bool            // admitted by a cookie, which browsers also send for pages of other sites
	token  string          // of a link, if it came in the URL
	end    time.Time       // expiry of token
	as     string          // id of the API token, for the log
	partly bool            // the API token covers only a part of the computer
}

// mayList reports whether the visitor may see the other ports in use.
func (v visitor) mayList() bool { return v.how == byToken && !v.partly || v.how == byLink }

// errNoAccess is the error of a caller without access, whether the computer and the preview exist or not.
var errNoAccess = holt.Errorf(holt.Unauthenticated, "no access to this address").
	WithHint("open it by a link (holt computer preview NAME PORT makes one); programs send the link's token, or an API token, as %s", tokenHeader)

// errNoSuch is the error of a caller with an API token.
var errNoSuch = holt.Errorf(holt.NotFound, "no such computer, or no access to it")

// errTooOften is the error of a caller that sent too many invalid tokens.
var errTooOften = holt.Errorf(holt.TooMany, "too many calls without a valid token from this address").WithHint("try again in a minute")

// byAPIToken checks an API token, and that it covers the port of the computer.
func (d *Door) byAPIToken(ctx context.Context, secret string, s site, found bool) (visitor, context.CancelFunc, error) {
	token, err := d.store.cfg.Tokens.Check(ctx, secret)
	if err != nil {
		if holt.CodeOf(err) == holt.Unauthenticated {
			err = errNoAccess
			if d.opt.Failures.Take(holt.Source(answerOf(ctx).from.client.String())) > 0 {
				err = errTooOften
			}
		}
		return visitor{}, nil, err
	}
	ctx, release := d.store.cfg.Tokens.Hold(holt.WithActor(ctx, token.Actor()), token)
	if found {
		_, err = d.store.cfg.Computers.Get(ctx, string(s.computer.ID))
	}
	if found && err == nil && d.store.cfg.May != nil {
		err = d.store.cfg.May(ctx, s.computer.ID, s.port)
	}
	if !found || holt.CodeOf(err) == holt.NotFound || holt.CodeOf(err) == holt.Forbidden {
		err = errNoSuch
	}
	if err != nil {
		release()
		return visitor{}, nil, err
	}
	return visitor{how: byToken, ctx: ctx, as: string(token.ID), partly: token.Rights.Narrow() && !token.Rights.Computer(s.computer.ID)}, release, nil
}

// admit admits a caller without an API token, by a link or since the preview is public.
func (d *Door) admit(ctx context.Context, c credentials, s site, r row) (visitor, context.CancelFunc, error) {
	from := [][]string{{c.link}, {c.header}, c.cookies}
	if ours, ok := strings.CutPrefix(c.secret, linkPrefix); ok {
		from[1] = append(from[1], linkPrefix+ours)
	}
	for i, tokens := range from {
		for _, token := range tokens {
			l, ok := d.store.signer.check(token, s.computer.ID, s.port, r.serial, d.store.now())
			if !ok {
				continue
			}
			held, release := access.Until(ctx, l.end, d.store.now, ended("was opened by a link that has expired"))
			if l.madeBy != "" {
				var done context.CancelFunc
				held, done = d.store.cfg.Tokens.Hold(held, access.Token{ID: l.madeBy})
				inner := release
				release = func() { done(); inner() }
			}
			if held.Err() != nil { // the token of its maker was revoked
				release()
				continue
			}
			v := visitor{how: byLink, ctx: held, cookie: i == 2, end: l.end, as: string(l.madeBy)}
			if i == 0 {
				v.token = token
			}
			return v, release, nil
		}
	}
	if r.public {
		return visitor{how: byPublic, ctx: ctx}, func() {}, nil
	}
	return visitor{}, nil, errNoAccess
}

// browses reports whether a browser navigates. Programs do not send these headers, and many keep no cookies, so they are
// answered at the link's URL.
func browses(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "application/xhtml+xml"))
}

// setCookie sets a cookie with the token of the visitor's link, for this host only.
func (v visitor) setCookie(h http.Header, from origin) {
	if v.token == "" {
		return
	}
	name := plainCookie
	if from.scheme == "https" {
		name = secureCookie
	}
	h.Add("Set-Cookie", (&http.Cookie{Name: name, Value: v.token, Path: "/", Expires: v.end, HttpOnly: true, Secure: from.scheme == "https", SameSite: http.SameSiteLaxMode}).String())
}

// open answers a browser that opens a link: it sets the cookie and redirects to the URL without the token, so that
// neither the app nor the browser's history has it.
func (d *Door) open(a *answer, r *http.Request, v visitor, from origin) {
	v.setCookie(a.Header(), from)
	to := url.URL{Scheme: from.scheme, Host: from.host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: withoutLink(r.URL.RawQuery)}
	a.Header().Set("Location", to.String()) // absolute: a path that starts with // would otherwise lead to another host
	a.Header().Set("Cache-Control", "no-store")
	a.Header().Set("Referrer-Policy", "no-referrer")
	a.WriteHeader(http.StatusSeeOther)
}

// withoutLink returns a query without the token of a link, otherwise unchanged.
func withoutLink(query string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); name != linkParameter && (err != nil || plain != linkParameter) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// crossSite reports whether a page of another site made the browser send the request with the cookie. SameSite prevents
// most of these, but previews below one domain are the same site. Pages of the same computer's other ports are allowed,
// since they could reach this port anyway.
func (d *Door) crossSite(r *http.Request, s site, from origin) bool {
	if text := r.Header.Get("Origin"); text != "" {
		if strings.EqualFold(text, from.scheme+"://"+from.host) {
			return false
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" { // null, such as of a form on a page without a referrer
			return text != "null" || r.Header.Get("Sec-Fetch-Site") != "same-origin"
		}
		other, found, err := d.site(r.Context(), hostName(&http.Request{Host: u.Host}))
		return err != nil || !found || other.computer.ID != s.computer.ID
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Method != http.MethodGet && r.Method != http.MethodHead
	}
	return false
}

// withoutOurs removes holt's credentials, and headers that only a proxy may set, from headers or trailers for the guest.
func withoutOurs(h http.Header) {
	for name := range h {
		if speaksForUs(name) {
			delete(h, name)
		}
	}
	if _, ours := ourBearer(h.Get("Authorization")); ours {
		h.Del("Authorization")
	}
	for i, from := range h["Referer"] { // it can be a link's URL, such as after a form was posted there
		if at, query, found := strings.Cut(from, "?"); found {
			if kept := withoutLink(query); kept == "" {
				h["Referer"][i] = at
			} else {
				h["Referer"][i] = at + "?" + kept
			}
		}
	}
	var lines []string
	for _, line := range h["Cookie"] {
		var kept []string
		for part := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
			if name = strings.TrimSpace(name); name != plainCookie && name != secureCookie && strings.TrimSpace(part) != "" {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
		if len(kept) > 0 {
			lines = append(lines, strings.Join(kept, "; "))
		}
	}
	if delete(h, "Cookie"); lines != nil {
		h["Cookie"] = lines
	}
}

// hostOnly restricts the cookies of a guest's answer to its host.
func hostOnly(h http.Header) {
	var lines []string
	for _, line := range h["Set-Cookie"] {
		var kept []string
		for i, part := range strings.Split(line, ";") {
			name, _, _ := strings.Cut(part, "=")
			name = strings.TrimSpace(name)
			if i == 0 && (name == plainCookie || name == secureCookie) {
				break
			}
			if i == 0 || !strings.EqualFold(name, "Domain") {
				kept = append(kept, part)
			}
		}
		if kept != nil {
			lines = append(lines, strings.Join(kept, ";"))
		}
	}
	if delete(h, "Set-Cookie"); lines != nil {
		h["Set-Cookie"] = lines
	}
}
