package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holt"
	"holt/internal/api"
)

// mostJSON bounds the JSON body of a call, in bytes. Files and standard input
// are not JSON and have no bound.
const mostJSON = 1 << 20

// routes registers everything the API has and returns its OpenAPI document.
func (s *Server) routes(mux *http.ServeMux) []byte {
	h := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Holt",
				Version: s.opt.Version,
				Description: "Computers for AI agents, on your own machines. Over the unix socket no token is needed; " +
					"over TCP every call needs one.\n\n" +
					"Names of files, paths, targets of symlinks, names and values of tags are bytes. In JSON, of requests and answers, one that is UTF-8 is itself. " +
					"One that is not is written as Git writes such names: between quotes, with \\ooo (octal) for each byte that is not UTF-8 and a backslash before a quote or a backslash, as \"/caf\\351\". " +
					"(A name that looks just like that is written so once more; any other text in quotes is itself.) The commands, arguments and variables of runs are the same. " +
					"In a URL's query bytes are percent-encoded. A result of queryWorkspace has such a value as base64.",
			},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{translate},
	})
	h.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
		s.note(ctx)
		next(plain{ctx})
	})
	s.huma = h
	s.computers()
	s.limits()
	s.snapshots()
	s.tokens()
	s.audit()
	s.runs()
	s.terminals()
	s.ports()
	s.ssh()
	s.previews()
	s.services()
	s.files()
	s.workspaces()
	s.history()
	s.archive()
	s.schedules()
	s.jobs()
	s.eventLog()
	s.uploads()
	s.artifacts()
	bind(s, api.CreateTicket, s.makeTicket)
	s.daemon()
	for _, e := range s.registry.Unbound() {
		panic("endpoint " + e.ID + " is not bound")
	}
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // huma's, never sent: see translate
		delete(h.OpenAPI().Components.Schemas.Map(), unused)
	}
	for path, item := range h.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete, item.Patch, item.Head} {
			if op != nil {
				s.meters.names[op.Method+" "+path] = op.OperationID
			}
		}
	}
	nameErrors(h.OpenAPI())
	document, err := json.MarshalIndent(h.OpenAPI(), "", "  ")
	if err != nil {
		panic(err) // the document is made of our own types
	}
	mux.HandleFunc("OPTIONS /v1/uploads", tusOptions)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		w.Write(document)
	})
	page := docsPage(h.OpenAPI())
	mux.HandleFunc("GET /docs", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", docsPolicy)
		w.Write(page)
	})
	return document
}

// noContent is the answer of calls that have nothing to say.
type noContent struct{}

// reply is a JSON answer.
type reply[T any] struct{ Body T }

var errorType = reflect.TypeFor[holt.Error]()

// pageAfter is a page of items that list cuts itself: up to limit items after the one with an id.
func pageAfter[T any, ID ~string](p api.Paging, parse func(string) (ID, error), id func(T) ID, list func(after ID, limit int) ([]T, error)) (holt.Page[T], error) {
	var after ID
	if p.Cursor != "" {
		var err error
		if after, err = parse(p.Cursor); err != nil {
			return holt.Page[T]{}, err
		}
	}
	all, err := list(after, p.Limit+1)
	page := holt.Page[T]{Items: append([]T{}, all...)}
	if len(all) > p.Limit {
		page.Items, page.Next = page.Items[:p.Limit], string(id(all[p.Limit-1]))
	}
	return page, err
}

// register adds an operation with what is the same for all of them.
func register[I, O any](api huma.API, op huma.Operation, f func(context.Context, *I) (*O, error)) {
	op.BodyReadTimeout = -1 // see the package comment
	op.MaxBodyBytes = mostJSON
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "error",
		Content: map[string]*huma.MediaType{"application/json": {
			Schema: api.OpenAPI().Components.Schemas.Schema(errorType, true, ""),
		}},
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		if of, ok := any(in).(interface{ Of(func(string) string) }); ok { // see api.FileOwner
			of.Of(requestOf(ctx).param)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, failed(ctx, err)
		}
		if q := requestOf(ctx); op.Method != http.MethodGet {
			q.made = idOf(out)
		}
		return out, nil
	})
}

// failed makes err an answer and leaves it for the log.
func failed(ctx context.Context, err error) answer {
	q := requestOf(ctx)
	var a answer
	if errors.As(err, &a) {
		q.err = err
		return a
	}
	var e *holt.Error
	switch {
	case ctx.Err() != nil && holt.CodeOf(context.Cause(ctx)) == holt.Unauthenticated:
		e = holt.AsError(context.Cause(ctx)) // the token was revoked, or expired, during the call
	case errors.As(err, &e):
		e = holt.AsError(err)
	case errors.Is(err, context.DeadlineExceeded):
		e = holt.Errorf(holt.Timeout, "the call timed out: %w", err)
	case errors.Is(err, context.Canceled):
		e = holt.Errorf(holt.Unavailable, "the call was interrupted: %w", err).WithHint("the daemon may be ending; try again")
	default:
		e = holt.AsError(err)
	}
	q.err = e
	if e.Code == holt.Internal && e.Hint == "" {
		own := *e
		e = own.WithHint("the daemon's log has more under request %s", q.id)
	}
	return answer{e, Status(e.Code)}
}

// pageOf cuts one page out of all items, in the order of their keys.
func pageOf[T any](all []T, key func(T) string, p api.Paging) *reply[holt.Page[T]] {
	all = slices.Clone(all) // the noun's may be shared
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	first, found := slices.BinarySearchFunc(all, string(holt.ParseOSString(p.Cursor)), func(item T, cursor string) int { return cmp.Compare(key(item), cursor) })
	if found {
		first++
	}
	rest := all[first:]
	out := &reply[holt.Page[T]]{Body: holt.Page[T]{Items: []T{}}}
	out.Body.Items = append(out.Body.Items, rest[:min(p.Limit, len(rest))]...)
	if len(rest) > p.Limit {
		out.Body.Next = holt.OSString(key(rest[p.Limit-1])).Text() // keys may be names
	}
	return out
}
