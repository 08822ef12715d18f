package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt/internal/httppart"
)

// rawBody describes a request body of any bytes.
func rawBody(description string) *huma.RequestBody {
	return &huma.RequestBody{Description: description, Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {},
	}}
}

// rawWriter streams an answer: headers go out with the first byte, so that an
// error before it still has a status of its own.
type rawWriter struct {
	q      *request
	status int
}

func (w *rawWriter) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.q.Write(p)
	if err == nil {
		w.q.Flush()
	}
	return n, err
}

func (w *rawWriter) begin() {
	if w.q.status == 0 {
		w.q.WriteHeader(w.status)
	}
}

// empty answers with the headers that were set, and nothing else.
func (s *Server) empty(ctx context.Context, status int) *huma.StreamResponse {
	q := requestOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) { q.WriteHeader(status) }}
}

// raw answers with what f writes. An error after the first byte cuts the
// connection, so that the caller cannot take the part for the whole.
func (s *Server) raw(ctx context.Context, contentType string, f func(context.Context, *rawWriter) error) *huma.StreamResponse {
	q := requestOf(ctx)
	return &huma.StreamResponse{Body: func(huma.Context) {
		ctx, cancel := s.stream(ctx)
		defer cancel()
		header := q.Header()
		if header.Get("Content-Type") == "" {
			header.Set("Content-Type", contentType)
		}
		w := &rawWriter{q: q, status: httppart.Status(header)}
		err := f(ctx, w)
		if err == nil {
			w.begin()
			return
		}
		if q.status == 0 {
			for _, name := range []string{"Content-Length", "Content-Range", "ETag", "Last-Modified", "Accept-Ranges"} {
				header.Del(name)
			}
			a := failed(ctx, err)
			q.fail(a.e, a.GetStatus())
			return
		}
		q.err = err
		panic(http.ErrAbortHandler)
	}}
}
