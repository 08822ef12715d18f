package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Idle is what keeps computers awake, and when they are paused.
type Idle interface {
	// Awake says why a computer is awake and when it is paused. It wakes none.
	Awake(ctx context.Context, ref string) (holt.Awake, error)
	// Update renames a computer, or changes when it is paused for being idle, whatever its state. AlreadyExists when
	// another has the name.
	Update(ctx context.Context, ref string, change holt.ComputerUpdate, key string) (holt.Computer, error)
	// Hold keeps a computer awake until it expires or is released; a paused one stays paused.
	// TooMany: it has as many as it may.
	Hold(ctx context.Context, ref string, spec holt.HoldSpec, key string) (holt.Hold, error)
	// Holds returns those that have neither expired nor been released, in any order.
	Holds(ctx context.Context, ref string) ([]holt.Hold, error)
	// Release ends one.
	Release(ctx context.Context, ref string, id holt.HoldID, key string) error
}

// OneHold names a hold of a computer in a path.
type OneHold struct {
	OneComputer
	Hold string `path:"hold" doc:"hold id"`
}

func (s *Server) idle(api huma.API) {
	const tag = "computers"
	nouns := s.opt.Nouns.Computers

	op := describe(http.MethodPatch, "/v1/computers/{computer}", "updateComputer", tag, "Rename a computer, or change when it is paused for being idle")
	op.Description = "Takes effect at once, whatever the computer's state; a rename waits for who changes the computer now. The id stays; previews and SSH have the new name, and the old one is free."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.ComputerUpdate
	}) (*reply[holt.Computer], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		c, err := nouns.Update(ctx, ref, in.Body, in.Key)
		return &reply[holt.Computer]{c}, err
	})

	op = describe(http.MethodGet, "/v1/computers/{computer}/awake", "whyAwake", tag, "Say why a computer is awake, and when it is paused")
	op.Description = "Names each run, terminal, connection, file access and hold that uses it, and what works in it by itself. It wakes none."
	register(api, op, func(ctx context.Context, in *OneComputer) (*reply[holt.Awake], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		a, err := nouns.Awake(ctx, ref)
		return &reply[holt.Awake]{a}, err
	})
	s.holds(api)
}

func (s *Server) holds(api huma.API) {
	const tag, path = "computers", "/v1/computers/{computer}/holds"
	nouns := s.opt.Nouns.Computers

	op := describe(http.MethodPost, path, "holdComputer", tag, "Keep a computer awake for a while")
	op.DefaultStatus = http.StatusCreated
	op.Description = "It is not paused for being idle until the hold expires or is released. A paused computer stays paused; the hold counts once it goes on."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.HoldSpec
	}) (*reply[holt.Hold], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		h, err := nouns.Hold(ctx, ref, in.Body, in.Key)
		return &reply[holt.Hold]{h}, err
	})

	register(api, describe(http.MethodGet, path, "listHolds", tag, "List the holds of a computer"),
		func(ctx context.Context, in *struct {
			OneComputer
			Paging
		}) (*reply[holt.Page[holt.Hold]], error) {
			ref, err := parseRef(in.Computer)
			if err != nil {
				return nil, err
			}
			all, err := nouns.Holds(ctx, ref)
			if err != nil {
				return nil, err
			}
			return pageOf(all, func(h holt.Hold) string { return string(h.ID) }, in.Paging), nil
		})

	op = describe(http.MethodDelete, path+"/{hold}", "releaseHold", tag, "Release a hold")
	op.DefaultStatus = http.StatusNoContent
	register(api, op, func(ctx context.Context, in *struct {
		OneHold
		Keyed
	}) (*noContent, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		id, err := holt.ParseHoldID(in.Hold)
		if err != nil {
			return nil, err
		}
		return nil, nouns.Release(ctx, ref, id, in.Key)
	})
}
