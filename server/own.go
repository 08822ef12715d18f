package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"holt"
)

const mostOwn = 64 << 10 // bytes of a body that a computer sends about itself

// OwnFork is how a computer may fork itself: from now, with what it may reach itself.
type OwnFork struct {
	Name  string `json:"name,omitempty"`
	Count int    `json:"count,omitempty"`
}

// Own answers a computer at http://holt.internal/, where it is known by the way that its calls come. It
// speaks of itself and nobody else, and gets no more than it has: neither another computer's moments, nor
// another network policy for its forks.
//
//	GET  /v1/self                    the computer; /moments, /network, /network/traffic of it
//	POST /v1/self/checkpoint         of its workspace   {name, note}
//	POST /v1/self/snapshot           a moment           {name}
//	POST /v1/self/fork               computers          {name, count}
//	POST /v1/self/pause              until somebody wakes it; the answer may come then, or never
func (s *Server) Own(id holt.ComputerID) http.Handler {
	mux, n, ref := http.NewServeMux(), s.opt.Nouns, string(id)
	own(mux, "GET /v1/self", func(ctx context.Context, _ struct{}, _ string) (any, error) { return n.Computers.Get(ctx, ref) })
	own(mux, "GET /v1/self/moments", func(ctx context.Context, _ struct{}, _ string) (any, error) { return n.Moments.List(ctx, ref) })
	own(mux, "GET /v1/self/network", func(ctx context.Context, _ struct{}, _ string) (any, error) { return n.Networks.Get(ctx, ref) })
	own(mux, "GET /v1/self/network/traffic", func(ctx context.Context, _ struct{}, _ string) (any, error) { return n.Networks.Traffic(ctx, ref) })
	own(mux, "POST /v1/self/checkpoint", func(ctx context.Context, spec holt.CheckpointSpec, key string) (any, error) {
		c, err := n.Computers.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		return n.History.Checkpoint(ctx, c.Workspace, spec, key)
	})
	own(mux, "POST /v1/self/snapshot", func(ctx context.Context, spec holt.SnapshotSpec, key string) (any, error) {
		return n.Computers.Snapshot(ctx, ref, spec, key)
	})
	own(mux, "POST /v1/self/fork", func(ctx context.Context, spec OwnFork, key string) (any, error) {
		if _, err := holt.ParseName(spec.Name); spec.Name != "" && err != nil {
			return nil, err
		}
		return n.Computers.Fork(ctx, ref, holt.ComputerForkSpec{Name: spec.Name, Count: spec.Count}, key)
	})
	own(mux, "POST /v1/self/pause", func(ctx context.Context, _ struct{}, key string) (any, error) {
		return n.Computers.Pause(ctx, ref, key)
	})
	keyed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "" { // it is this computer's own
			r.Header.Set("Idempotency-Key", ref+" "+clip(key))
		}
		noSuchPath(mux).ServeHTTP(w, r)
	})
	return s.call(sameOrigin(keyed))
}

// own registers a call that takes JSON, or nothing.
func own[I any](mux *http.ServeMux, pattern string, f func(ctx context.Context, in I, key string) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in I
		out, err := any(nil), readOwn(r.Body, &in)
		if err == nil {
			out, err = f(r.Context(), in, r.Header.Get("Idempotency-Key"))
		}
		if err != nil {
			a := failed(r.Context(), err)
			requestOf(r.Context()).fail(a.e, a.status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // a caller who hung up needs no answer
	})
}

func readOwn(from io.Reader, into any) error {
	b, err := io.ReadAll(io.LimitReader(from, mostOwn+1))
	if err == nil && len(b) > mostOwn {
		return holt.Errorf(holt.InvalidArgument, "the body has more than %d bytes", mostOwn)
	}
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return holt.Errorf(holt.InvalidArgument, "the body cannot be read: %w", err)
	}
	return nil
}
