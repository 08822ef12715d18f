package preview

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"holt"
)

// wantsPage reports whether the answer is for a person in a browser.
func wantsPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

const listWithin = 3 * time.Second // for the list of ports in use

// unreached is the error of a request without an answer of the app.
type unreached struct {
	error
	nothing bool  // no program listens at the port
	ports   []int // in use
}

func (u unreached) Unwrap() error { return u.error }

// unreached returns the error of a request without an answer of the app.
func (d *Door) unreached(a *answer, err error) error {
	if cause := context.Cause(a.r.Context()); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	var e *holt.Error
	if !errors.As(err, &e) {
		return holt.Errorf(holt.Unavailable, "the app at port %d closed the connection or did not answer in HTTP: %w", a.site.port, err)
	}
	if e.Code != holt.Unavailable {
		return err
	}
	ctx, cancel := context.WithTimeout(a.r.Context(), listWithin)
	defer cancel()
	if a.visitor.how == byPublic { // a public visit gets no list of ports, and does not wake the computer
		c, lost := d.store.cfg.Computers.Get(ctx, string(a.site.computer.ID))
		if lost == nil && c.State != holt.ComputerRunning && a.idle {
			return errPublicLimit
		}
		return unreached{error: holt.Errorf(holt.Unavailable, "nothing listens at port %d", a.site.port), nothing: true}
	}
	list, lost := d.store.cfg.Ports.List(ctx, string(a.site.computer.ID))
	if lost != nil {
		return err
	}
	u := unreached{error: err, nothing: true}
	for _, l := range list {
		if l.Protocol == "tcp" && !slices.Contains(u.ports, l.Port) {
			u.ports = append(u.ports, l.Port)
		}
		u.nothing = u.nothing && !(l.Protocol == "tcp" && l.Port == a.site.port)
	}
	if slices.Sort(u.ports); u.nothing {
		u.error = holt.Errorf(holt.Unavailable, "nothing listens at port %d", a.site.port).WithHint("start the app")
	}
	return u
}

// failed answers with an error: a page for a person, JSON for a program.
func (d *Door) failed(a *answer, r *http.Request, s site, v visitor, err error) {
	a.err = err
	if a.status != 0 {
		panic(http.ErrAbortHandler)
	}
	var u unreached
	var e *holt.Error
	switch {
	case errors.Is(err, context.Canceled) && !errors.As(err, &e):
		panic(http.ErrAbortHandler) // the client has disconnected, or the daemon ends
	case err == errWakes:
		a.Header().Set("Retry-After", "2")
		d.answer(a, r, http.StatusServiceUnavailable, err, page{Title: s.computer.Name + " is waking up", Lead: "This page reloads by itself.", Refresh: 2, Busy: true})
	case errors.As(err, &u) && u.nothing:
		d.notListening(a, r, s, v, u)
	default:
		e := holt.AsError(err)
		if v.how == byPublic && e.Code != holt.TooMany { // public visitors get no details
			e = holt.Errorf(holt.Unavailable, "the app cannot be reached").WithHint("try again later")
		} else if e.Code == holt.Internal {
			e = holt.Errorf(holt.Internal, "a bug in holt").WithHint("the daemon's log has the details under request %s", a.id)
		}
		d.refuse(a, r, status(e.Code), e)
	}
}

// status returns the HTTP status of a code at this door: a gateway answers with 5xx in many cases where the API answers
// with 4xx.
func status(code holt.Code) int {
	switch code {
	case holt.InvalidArgument:
		return http.StatusBadRequest
	case holt.NotFound:
		return http.StatusNotFound
	case holt.Unauthenticated:
		return http.StatusUnauthorized
	case holt.Forbidden:
		return http.StatusForbidden
	case holt.Timeout:
		return http.StatusGatewayTimeout
	case holt.Unavailable:
		return http.StatusBadGateway
	case holt.TooMany, holt.Conflict, holt.OutOfSpace, holt.Unsupported:
		return http.StatusServiceUnavailable
	case holt.AlreadyExists, holt.Corrupt, holt.Internal:
	}
	return http.StatusInternalServerError
}

// refuse answers with an error.
func (d *Door) refuse(a *answer, r *http.Request, status int, e *holt.Error) {
	a.err = e
	switch status {
	case http.StatusServiceUnavailable:
		a.Header().Set("Retry-After", "10")
	case http.StatusUnauthorized:
		a.Header().Set("WWW-Authenticate", `Bearer realm="holt preview"`)
	case http.StatusMethodNotAllowed:
		a.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		if a.site.links {
			a.Header().Set("Allow", "GET, HEAD")
		}
	}
	d.answer(a, r, status, e, page{Title: strings.TrimSuffix(sentence(e.Message), "."), Lead: sentence(e.Hint)})
}

// notListening answers that no program listens at the port, with the ports in use if the visitor may see them.
func (d *Door) notListening(a *answer, r *http.Request, s site, v visitor, u unreached) {
	e := holt.AsError(u.error)
	p := page{Title: "Nothing listens at port " + strconv.Itoa(s.port), Lead: "Start the app, then reload this page."}
	if v.mayList() {
		p.Lead = "Start the app in " + s.computer.Name + ", then reload this page."
		for _, port := range u.ports {
			p.Ports = append(p.Ports, portLink{port, d.store.urlOf(s.computer, port)})
		}
		if len(u.ports) > 0 {
			e = holt.Errorf(e.Code, "%s", e.Message).WithHint("ports in use: %s", strings.Join(texts(u.ports), ", "))
			p.Foot = "A link opens one port. For another port run: holt computer preview " + s.computer.Name + " PORT"
		}
	}
	if d.waker.recentlyWoken(s.computer.ID, time.Now()) {
		p.Lead = "The computer has just woken up, and the app may still be starting. This page reloads by itself."
		p.Refresh, p.Busy = 3, true
		a.Header().Set("Retry-After", "3")
	}
	d.answer(a, r, http.StatusBadGateway, e, p)
}

func texts(ports []int) (out []string) {
	for _, p := range ports {
		out = append(out, strconv.Itoa(p))
	}
	return out
}

// noPreview answers a request for a name that is not a preview's.
func (d *Door) noPreview(a *answer, r *http.Request) {
	p, _ := d.store.where() // a door exists, so there is a place
	e := holt.Errorf(holt.NotFound, "no preview has this name").WithHint("previews are at PORT-COMPUTER.%s", p.Domain)
	a.err = e
	d.answer(a, r, http.StatusMisdirectedRequest, e, page{Title: "No preview at this address", Lead: "Each port of a computer has its own address, such as 3000-einstein." + p.Domain + ". To get it run: holt computer preview NAME PORT"})
}

func (d *Door) answer(a *answer, r *http.Request, status int, e error, p page) {
	h := a.Header()
	h.Set("X-Request-Id", a.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if wantsPage(r) {
		p.Status, p.Request = status, a.id
		p.write(a)
		return
	}
	h.Set("Content-Type", "application/json")
	a.WriteHeader(status)
	_ = json.NewEncoder(a).Encode(holt.AsError(e)) // the client may have disconnected
}

// sentence makes a sentence of a message: with a capital and a dot.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.ContainsAny(s[len(s)-1:], ".!?)") {
		s += "."
	}
	return s
}

func isLink(token string) bool { return strings.HasPrefix(token, linkPrefix) }
