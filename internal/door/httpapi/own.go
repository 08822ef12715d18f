package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/internal/access"
	"holt/internal/api"
)

// What a computer may do to itself is bounded, since it may be anybody's program that asks.
const (
	mostOwn            = 64 << 10 // bytes of a body that it sends
	mostOwnForks       = 4        // forks that it makes, while they are there
	mostOwnSnapshots   = 32       // snapshots that it may have with one that it takes
	mostOwnCheckpoints = 64       // checkpoints, but for those of runs and terminals, that its workspace may have with one that it takes
	mostOwnKey         = 128      // bytes of an idempotency key, with its id
)

// ownRates bound how often each computer asks: what it changes is in the audit log, and its keys stay for a day.
type ownRates struct{ looks, changes access.Rate }

func newOwnRates() ownRates {
	return ownRates{looks: access.Rate{PerSecond: 20, Burst: 100}, changes: access.Rate{PerSecond: 1, Burst: 100}}
}

func (r *ownRates) take(q *http.Request, id holt.ComputerID) time.Duration {
	if q.Method == http.MethodGet {
		return r.looks.Take(string(id))
	}
	return r.changes.Take(string(id))
}

// OwnFork is how a computer may fork itself: from now, with what it may reach itself.
type OwnFork struct {
	Name  string `json:"name,omitempty"`
	Count int    `json:"count,omitempty"`
}

// Own answers a computer at http://holt.internal/, where it is known by the way that its calls come. It
// speaks of itself only, and gets no more than it has: neither another computer's snapshots, nor
// another network policy for its forks.
//
//	GET  /v1/self                    the computer; /snapshots, /network, /network/traffic of it
//	POST /v1/self/checkpoint         of its workspace   {name, note}
//	POST /v1/self/snapshot           a snapshot           {name}
//	POST /v1/self/fork               computers          {name, count}
//	POST /v1/self/artifacts          of a file of it    {path, name, tags}
//	POST /v1/self/pause              until somebody wakes it; the answer may come then, or never
func (s *Server) Own(id holt.ComputerID) http.Handler {
	mux, ref := http.NewServeMux(), string(id)
	self := api.OneComputer{Computer: ref}
	own(mux, "GET /v1/self", func(ctx context.Context, _ struct{}, _ string) (any, error) {
		return view(holt.SelfOf)(api.Do(ctx, s.registry, api.GetComputer, &self))
	})
	own(mux, "GET /v1/self/snapshots", func(ctx context.Context, _ struct{}, _ string) (any, error) {
		return view(viewSnapshots)(api.DoList(ctx, s.registry, api.ListSnapshots, &api.SnapshotsOf{Computer: ref}))
	})
	own(mux, "GET /v1/self/network", func(ctx context.Context, _ struct{}, _ string) (any, error) {
		return told(api.Do(ctx, s.registry, api.GetNetwork, &self))
	})
	own(mux, "GET /v1/self/network/traffic", func(ctx context.Context, _ struct{}, _ string) (any, error) {
		return told(api.Do(ctx, s.registry, api.GetTraffic, &self))
	})
	changes(s, mux, id, "checkpoint", func(ctx context.Context, c holt.Computer, spec holt.CheckpointSpec, key string) (any, error) {
		ctx = holt.Before(ctx, func(ctx context.Context) error { return s.mayCheckpoint(ctx, c) })
		return told(api.Do(ctx, s.registry, api.CreateCheckpoint, &api.WorkspaceBody[holt.CheckpointSpec]{api.OneWorkspace{c.Workspace}, api.Keyed{key}, spec}))
	})
	changes(s, mux, id, "snapshot", func(ctx context.Context, c holt.Computer, spec holt.SnapshotSpec, key string) (any, error) {
		ctx = holt.Before(ctx, func(ctx context.Context) error { return s.maySnapshot(ctx, c) })
		in := api.ComputerBody[holt.SnapshotSpec]{OneComputer: self, Keyed: api.Keyed{Key: key}, Body: spec}
		return view(viewSnapshot)(api.Do(ctx, s.registry, api.TakeSnapshot, &in))
	})
	changes(s, mux, id, "fork", func(ctx context.Context, c holt.Computer, spec OwnFork, key string) (any, error) {
		if _, err := holt.ParseName(spec.Name); spec.Name != "" && err != nil {
			return nil, err
		}
		ctx = holt.Before(ctx, func(ctx context.Context) error { return s.mayFork(ctx, c, max(1, spec.Count)) })
		in := api.ComputerBody[holt.ComputerForkSpec]{OneComputer: self, Keyed: api.Keyed{Key: key}, Body: holt.ComputerForkSpec{Name: spec.Name, Count: spec.Count}}
		return view(viewForks)(api.Do(ctx, s.registry, api.ForkComputer, &in))
	})
	changes(s, mux, id, "artifacts", func(ctx context.Context, c holt.Computer, spec holt.OwnArtifact, key string) (any, error) {
		name := path.Join("/", cmp.Or(spec.Name, path.Base(string(spec.Path)))) // no .. leads out of its own
		if name == "/" {
			return nil, holt.Errorf(holt.InvalidArgument, "invalid name %q of an artifact", clip(spec.Name))
		}
		in := api.Body[holt.ArtifactSpec]{Keyed: api.Keyed{Key: key}, Body: holt.ArtifactSpec{Computer: ref, Path: spec.Path, Bucket: holt.ComputersBucket, Name: c.Name + name, Tags: spec.Tags}}
		out, err := view(holt.PublishedOf)(api.Do(ctx, s.registry, api.PublishArtifact, &in))
		switch holt.CodeOf(err) {
		case holt.NotFound, holt.InvalidArgument, holt.Conflict, holt.TooMany: // about its own file and names
			err = ownBound{holt.AsError(err)}
		}
		return out, err
	})
	changes(s, mux, id, "pause", func(ctx context.Context, _ holt.Computer, _ struct{}, key string) (any, error) {
		return view(holt.SelfOf)(api.Do(ctx, s.registry, api.PauseComputer, &api.ComputerKeyed{OneComputer: self, Keyed: api.Keyed{Key: key}}))
	})
	keyed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); key != "" { // it is this computer's own
			r.Header.Set("Idempotency-Key", ref+" "+key)
		}
		q := requestOf(r.Context())
		q.body.until = time.Now().Add(s.opt.Patience)
		q.by, q.noun, q.ref = holt.WithActor(r.Context(), holt.Actor{Computer: id}), "computers", ref
		if wait := s.own.take(r, id); wait > 0 {
			q.quiet = true
			q.slow(wait, "this computer asks too often")
			return
		}
		if _, known := mux.Handler(r); known == "" {
			q.quiet = true
			noSuchPath(mux).ServeHTTP(w, r)
			return
		}
		if c, err := told(api.Do(q.by, s.registry, api.GetComputer, &self)); err == nil { // else the call says why
			q.by = holt.WithActor(r.Context(), holt.Actor{Computer: id, Name: c.Name, Tenant: c.Tenant})
		}
		if r.Method != http.MethodGet {
			q.op = "self" + strings.TrimPrefix(r.URL.Path, "/v1/self")
		}
		noSuchPath(mux).ServeHTTP(w, r.WithContext(q.by))
	})
	return s.call("guest", sameOrigin(keyed))
}

// changes registers a call by which a computer changes itself, in its own name. It does one such thing at a
// time, until that has ended, whether it waits for it or not: so it cannot queue any before its owner's calls. Who
// repeats that one, by its key, waits for its answer.
func changes[I any](s *Server, mux *http.ServeMux, id holt.ComputerID, verb string, f func(context.Context, holt.Computer, I, string) (any, error)) {
	own(mux, "POST /v1/self/"+verb, func(ctx context.Context, in I, key string) (any, error) {
		if len(key) > mostOwnKey {
			return nil, holt.Errorf(holt.InvalidArgument, "the idempotency key is longer than %d bytes", mostOwnKey-len(id)-1)
		}
		ended, err := s.change(ctx, id, key)
		if err != nil {
			return nil, err
		}
		defer ended()
		c, err := told(api.Do(ctx, s.registry, api.GetComputer, &api.OneComputer{Computer: string(id)}))
		if err == nil && c.Job != "" && verb != "artifacts" {
			err = holt.Errorf(holt.Forbidden, "the computer of a job cannot %s itself: it is deleted with the job", verb)
		}
		if err != nil {
			return nil, err
		}
		return f(holt.WithActor(context.WithoutCancel(ctx), holt.Actor{Computer: id, Name: c.Name, Tenant: c.Tenant}), c, in, key)
	})
}

// ownChange is what a computer is at work on.
type ownChange struct {
	key  string
	done chan struct{}
}

// change begins one, which ended ends.
func (s *Server) change(ctx context.Context, id holt.ComputerID, key string) (ended func(), err error) {
	mine := &ownChange{key, make(chan struct{})}
	for {
		at, busy := s.changing.LoadOrStore(id, mine)
		if !busy {
			return func() { s.changing.Delete(id); close(mine.done) }, nil
		}
		other := at.(*ownChange)
		if key == "" || other.key != key {
			return nil, holt.Errorf(holt.TooMany, "this computer is already changing itself").WithHint("wait until that change has ended")
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mayCheckpoint says why a computer may not take a checkpoint of its workspace.
func (s *Server) mayCheckpoint(ctx context.Context, c holt.Computer) error {
	all, err := told(api.DoList(ctx, s.registry, api.ListCheckpoints, &api.CheckpointsOf{OneWorkspace: api.OneWorkspace{c.Workspace}}))
	has := len(slices.DeleteFunc(all, func(c holt.Checkpoint) bool { return c.Run != "" }))
	if err == nil && has >= mostOwnCheckpoints {
		err = ownBound{holt.Errorf(holt.TooMany, "the workspace of %s has %d checkpoints; from %d on it cannot take any itself", c.Name, has, mostOwnCheckpoints).
			WithHint("its owner can: holt workspace checkpoint %s; holt workspace delete-checkpoint removes some", c.Workspace)}
	}
	return err
}

// maySnapshot says why a computer may not take a snapshot of itself.
func (s *Server) maySnapshot(ctx context.Context, c holt.Computer) error {
	has, err := told(api.DoList(ctx, s.registry, api.ListSnapshots, &api.SnapshotsOf{Computer: string(c.ID)}))
	if err == nil && len(has) >= mostOwnSnapshots {
		err = ownBound{holt.Errorf(holt.TooMany, "%s has %d snapshots; from %d on it cannot take any itself", c.Name, len(has), mostOwnSnapshots).
			WithHint("its owner can: holt computer snapshot %s; holt snapshot delete removes some", c.Name)}
	}
	return err
}

// mayFork says why a computer may not make so many forks of itself. Those cannot fork themselves, which would have no end.
func (s *Server) mayFork(ctx context.Context, c holt.Computer, count int) error {
	if c.Parent != nil {
		return ownBound{holt.Errorf(holt.Forbidden, "%s is a fork, and cannot fork itself", c.Name).WithHint("its owner can: holt computer fork %s", c.Name)}
	}
	all, err := told(s.opt.Nouns.Computers.List(ctx)) // of its tenant: only its own forks are counted
	for _, one := range all {
		if one.Parent != nil && one.Parent.ID == c.ID {
			count++
		}
	}
	if err == nil && count > mostOwnForks {
		err = ownBound{holt.Errorf(holt.TooMany, "%s would have %d forks; it can make at most %d itself", c.Name, count, mostOwnForks).
			WithHint("its owner can make more: holt computer fork %s", c.Name)}
	}
	return err
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
			q := requestOf(r.Context())
			q.fail(forComputer(err, a.e), a.status)
			q.err = a.e // which is logged
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // a caller who hung up needs no answer
	})
}

func readOwn(from io.Reader, into any) error {
	b, err := io.ReadAll(io.LimitReader(from, mostOwn+1))
	if err == nil && len(b) > mostOwn {
		return holt.Errorf(holt.InvalidArgument, "the body is larger than %d bytes", mostOwn)
	}
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return holt.Errorf(holt.InvalidArgument, "invalid body: %w", err)
	}
	return nil
}
