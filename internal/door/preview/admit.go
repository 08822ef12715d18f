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
	secureCookie  = "__Host-holt-preview" // by which a browser knows that no other host has set it
)

// credentials are what a request brings to be let in.
type credentials struct {
	secret  string   // of an API token
	link    string   // token of a link, in the address
	header  string   // likewise, in our header
	cookies []string // likewise
}

// shown says whether there are any.
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

// ourBearer returns the token of an Authorization that is for us. Every other one is for the app.
func ourBearer(authorization string) (string, bool) {
	scheme, secret, _ := strings.Cut(authorization, " ")
	secret = strings.TrimSpace(secret)
	ours := strings.EqualFold(scheme, "Bearer") && (strings.HasPrefix(secret, apiPrefix) || strings.HasPrefix(secret, linkPrefix))
	return secret, ours
}

// visitor is who was let in.
type visitor struct {
	how    admission
	ctx    context.Context // ends when the right does
	cookie bool            // it was a cookie that let them in, which browsers send for other sites' pages, too
	token  string          // of the link, if it came in the address
	end    time.Time       // of that
	as     string          // for the log: an API token's id
	partly bool            // that token covers a part of the computer
}

// mayList says whether they may know what listens besides.
func (v visitor) mayList() bool { return v.how == byToken && !v.partly || v.how == byLink }

// errStranger is what everybody hears who may not come, whatever there is: the same for what does not exist.
var errStranger = holt.Errorf(holt.Unauthenticated, "there is nothing here that you may see").
	WithHint("a link to it opens it (holt computer preview NAME PORT makes one); programs send its token, or an API token, as %s", tokenHeader)

// errNoSuch is for who has an API token.
var errNoSuch = holt.Errorf(holt.NotFound, "no such computer, or not yours")

// errTooOften is for who tries tokens.
var errTooOften = holt.Errorf(holt.TooMany, "from here too many came without a valid token").WithHint("come again in a minute")

// byAPIToken looks at an API token, and at whether its owner has the computer, if there is one.
func (d *Door) byAPIToken(ctx context.Context, secret string, s site, found bool) (visitor, context.CancelFunc, error) {
	token, err := d.store.cfg.Tokens.Check(ctx, secret)
	if err != nil {
		if holt.CodeOf(err) == holt.Unauthenticated {
			err = errStranger
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

// admit says whether, and why, who has no API token may come to a preview.
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
			held, release := access.Until(ctx, l.end, d.store.now, ended("was shown by a link that has expired"))
			if l.madeBy != "" {
				var done context.CancelFunc
				held, done = d.store.cfg.Tokens.Hold(held, access.Token{ID: l.madeBy})
				inner := release
				release = func() { done(); inner() }
			}
			if held.Err() != nil { // its token was revoked
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
	return visitor{}, nil, errStranger
}

// browses says that a person's browser goes to an address. Programs have none of this, and many keep no cookies: they are
// answered at the link's address.
func browses(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.Header.Get("Sec-Fetch-Mode") == "navigate" || strings.Contains(r.Header.Get("Accept"), "application/xhtml+xml"))
}

// keep has a client that keeps cookies keep the token of the link that it came by, for this host alone.
func (v visitor) keep(h http.Header, from origin) {
	if v.token == "" {
		return
	}
	name := plainCookie
	if from.scheme == "https" {
		name = secureCookie
	}
	h.Add("Set-Cookie", (&http.Cookie{Name: name, Value: v.token, Path: "/", Expires: v.end, HttpOnly: true, Secure: from.scheme == "https", SameSite: http.SameSiteLaxMode}).String())
}

// open answers a browser that came by a link: it keeps the token in a cookie, and asks again
// without it in the address, so that neither the app nor who is shown the address learns it.
func (d *Door) open(a *answer, r *http.Request, v visitor, from origin) {
	v.keep(a.Header(), from)
	to := url.URL{Scheme: from.scheme, Host: from.host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: withoutLink(r.URL.RawQuery)}
	a.Header().Set("Location", to.String()) // with our own host: a path that begins with // leads nowhere else
	a.Header().Set("Cache-Control", "no-store")
	a.Header().Set("Referrer-Policy", "no-referrer")
	a.WriteHeader(http.StatusSeeOther)
}

// withoutLink is a query without the token of a link, and else as it came.
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

// crossSite says that another site's page made a browser send a request with the cookie. SameSite keeps most of
// them away; those of other previews below one domain are of the same site. The pages of the computer's other ports may:
// who writes them can reach this one anyway.
func (d *Door) crossSite(r *http.Request, s site, from origin) bool {
	if text := r.Header.Get("Origin"); text != "" {
		if strings.EqualFold(text, from.scheme+"://"+from.host) {
			return false
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" { // null, as of a form of a page that sends no referrer
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

// withoutOurs removes from headers or trailers that go to the guest, and from Cookie, what is for us or speaks for us.
func withoutOurs(h http.Header) {
	for name := range h {
		if speaksForUs(name) {
			delete(h, name)
		}
	}
	if _, ours := ourBearer(h.Get("Authorization")); ours {
		h.Del("Authorization")
	}
	for i, from := range h["Referer"] { // a page at a link's address, as the answer to a form that was posted there, is one
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

// hostOnly makes the cookies that a guest sets those of its host alone.
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
