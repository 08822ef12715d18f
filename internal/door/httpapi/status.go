package httpapi

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Status is the one table from codes to HTTP status; docs/words.md shows it.
// Besides, what HTTP itself refuses (405, 406, 408, 413, 415, 416, 431) keeps
// its own status, with code invalid_argument in the body.
func Status(code holt.Code) int {
	switch code {
	case holt.InvalidArgument:
		return http.StatusBadRequest
	case holt.NotFound:
		return http.StatusNotFound
	case holt.AlreadyExists, holt.Conflict:
		return http.StatusConflict
	case holt.Unauthenticated:
		return http.StatusUnauthorized
	case holt.Forbidden:
		return http.StatusForbidden
	case holt.OutOfSpace:
		return http.StatusInsufficientStorage
	case holt.TooMany:
		return http.StatusTooManyRequests
	case holt.Unsupported:
		return http.StatusNotImplemented
	case holt.Unavailable:
		return http.StatusServiceUnavailable
	case holt.Timeout:
		return http.StatusGatewayTimeout
	case holt.Corrupt, holt.Internal:
	}
	return http.StatusInternalServerError
}

// answer is an error on its way out through huma; see translate.
type answer struct {
	e      *holt.Error
	status int
}

func (a answer) Error() string  { return a.e.Message }
func (a answer) GetStatus() int { return a.status }

// problem says where in a request something is wrong.
type problem struct {
	Where   string `json:"where,omitempty"`
	Message string `json:"message"`
}

// translate makes every error on its way out the one error type: ours, and
// those that huma makes itself (validation, limits, media types).
func translate(ctx huma.Context, _ string, v any) (any, error) {
	if a, ok := v.(answer); ok {
		return a.e, nil
	}
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	e := &holt.Error{Code: codeOfStatus(m.Status), Message: m.Detail}
	var problems []problem
	var texts []string
	for _, d := range m.Errors {
		if d == nil {
			continue
		}
		p := problem{Where: clip(strings.TrimPrefix(d.Location, "body.")), Message: clip(d.Message)}
		problems = append(problems, p)
		if p.Where != "" {
			texts = append(texts, p.Where+": "+p.Message)
		} else {
			texts = append(texts, p.Message)
		}
	}
	if len(problems) > 0 {
		e.Message = strings.Join(texts, "; ")
		e.Detail = problems
		e.Hint = "the API is described at /docs"
	}
	return e, nil
}

// codeOfStatus gives the code for an error that HTTP or huma made.
func codeOfStatus(status int) holt.Code {
	switch {
	case status == http.StatusNotFound:
		return holt.NotFound
	case status == http.StatusRequestTimeout:
		return holt.Timeout
	case status >= 500:
		return holt.Internal
	}
	return holt.InvalidArgument
}

// humaContext has a name that does not hide the interface's method Context.
type humaContext = huma.Context

// plain makes huma's own 422 the 400 that invalid_argument means everywhere.
type plain struct{ humaContext }

func (p plain) Unwrap() huma.Context { return p.humaContext }

func (p plain) SetStatus(status int) {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	p.humaContext.SetStatus(status)
}

// clip keeps a hostile value from filling a log or an answer.
func clip(s string) string { return holt.Clip(s, 256) }
