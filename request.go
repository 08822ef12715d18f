package holt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
)

type requestIDKey struct{}

// mostRequestID bounds a caller's own request id, bytes.
const mostRequestID = 64

// NewRequestID returns a fresh random one: "req_" and 16 hexadecimal digits.
func NewRequestID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return "req_" + hex.EncodeToString(b[:])
}

// ValidRequestID reports whether a caller's own request id is accepted: 8 to 64 letters, digits, dots,
// dashes and underscores, which are safe in logs, files and URLs.
func ValidRequestID(s string) bool {
	if len(s) < 8 || len(s) > mostRequestID {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// WithRequestID returns a context whose calls are part of the request with that id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx belongs to; "" if there is none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// LogRequests returns a handler that adds the request id of the context to each record.
func LogRequests(h slog.Handler) slog.Handler { return requestLog{h} }

type requestLog struct{ slog.Handler }

func (h requestLog) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("request", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h requestLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestLog{h.Handler.WithAttrs(attrs)}
}

func (h requestLog) WithGroup(name string) slog.Handler { return requestLog{h.Handler.WithGroup(name)} }
