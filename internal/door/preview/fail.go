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

// wantsPage says whether a person looks at the answer.
func wantsPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode == "" || mode == "navigate"
}

const listWithin = 3 * time.Second // to say what listens, when something does not

// unreached is why an app's answer did not come.
type unreached struct {
	error
	nothing bool  // listens there
	ports   []int // that are listened at
}

func (u unreached) Unwrap() error { return u.error }

// unreached says why an app's answer did not come.
func (d *Door) unreached(a *answer, err error) error {
	if cause := context.Cause(a.r.Context()); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	var e *holt.Error
	if !errors.As(err, &e) {
		return holt.Errorf(holt.Unavailable, "the app at port %d broke off or did not answer as HTTP does: %w", a.site.port, err)
	}
	if e.Code != holt.Unavailable {
		return err
	}
	ctx, cancel := context.WithTimeout(a.r.Context(), listWithin)
	defer cancel()
	if a.visitor.how == byPublic { // a stranger is told of no list, and wakes nobody for it
		c, lost := d.store.cfg.Computers.Get(ctx, string(a.site.computer.ID))
		if lost == nil && c.State != holt.ComputerRunning && a.idle {
			return errResting
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
		u.error = holt.Errorf(holt.Unavailable, "nothing listens at port %d", a.site.port).WithHint("start what is to listen there")
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
		panic(http.ErrAbortHandler) // nobody is there to be answered, or the daemon ends
	case err == errWakes:
		a.Header().Set("Retry-After", "2")
		d.answer(a, r, http.StatusServiceUnavailable, err, page{Title: s.computer.Name + " is waking up", Lead: "It goes on where it was. This page comes back by itself.", Refresh: 2, Busy: true})
	case errors.As(err, &u) && u.nothing:
		d.nothing(a, r, s, v, u)
	default:
		e := holt.AsError(err)
		if v.how == byPublic && e.Code != holt.TooMany { // a stranger is told no more than that
			e = holt.Errorf(holt.Unavailable, "the app cannot be reached now").WithHint("try again later")
		} else if e.Code == holt.Internal {
			e = holt.Errorf(holt.Internal, "a defect in holt").WithHint("the daemon's log has the details under request %s", a.id)
		}
		d.refuse(a, r, status(e.Code), e)
	}
}

// status is the table from codes to HTTP status of this door: what is between a client and an app answers with 5xx
// where the API would with 4xx.
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

// refuse answers with an error that says all there is to say.
func (d *Door) refuse(a *answer, r *http.Request, status int, e *holt.Error) {
	a.err = e
	switch status {
	case http.StatusServiceUnavailable:
		a.Header().Set("Retry-After", "10")
	case http.StatusUnauthorized:
		a.Header().Set("WWW-Authenticate", `Bearer realm="holt preview"`)
	case http.StatusMethodNotAllowed:
		a.Header().Set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
	d.answer(a, r, status, e, page{Title: strings.TrimSuffix(sentence(e.Message), "."), Lead: sentence(e.Hint)})
}

// nothing answers where nothing listens, with what does, for those who may know.
func (d *Door) nothing(a *answer, r *http.Request, s site, v visitor, u unreached) {
	e := holt.AsError(u.error)
	p := page{Title: "Nothing listens at port " + strconv.Itoa(s.port), Lead: "Start what is to listen there, then come again."}
	if v.mayList() {
		p.Lead = "Start what is to listen there in " + s.computer.Name + ", then come again."
		for _, port := range u.ports {
			p.Ports = append(p.Ports, portLink{port, d.store.urlOf(s.computer, port)})
		}
		if len(u.ports) > 0 {
			e = holt.Errorf(e.Code, "%s", e.Message).WithHint("these ports are listened at: %s", strings.Join(texts(u.ports), ", "))
			p.Foot = "A link opens one port: another needs a link of its own, holt computer preview " + s.computer.Name + " PORT."
		}
	}
	if d.waker.freshly(s.computer.ID, time.Now()) {
		p.Lead = "The computer has just been woken; what listens there may still be starting. This page comes back by itself."
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

// elsewhere answers who came by a name that shows nothing.
func (d *Door) elsewhere(a *answer, r *http.Request) {
	p, _ := d.store.where() // this is one
	e := holt.Errorf(holt.NotFound, "no preview has this name").WithHint("previews are at PORT-COMPUTER.%s", p.Domain)
	a.err = e
	d.answer(a, r, http.StatusMisdirectedRequest, e, page{Title: "Here are the previews of holt", Lead: "Each port of a computer has an address of its own, as 3000-einstein." + p.Domain + ". This one: holt computer preview NAME PORT"})
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
	_ = json.NewEncoder(a).Encode(holt.AsError(e)) // a caller who hung up needs no answer
}

// sentence begins with a capital and ends with a dot.
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
