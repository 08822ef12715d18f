package httpapi

import (
	"context"

	"holt"
	"holt/internal/api"
)

func (s *Server) notes() {
	n := s.opt.Nouns.Notes
	bind(s, api.CreateNote, func(ctx context.Context, in *api.Body[holt.NoteSpec]) (holt.Note, error) {
		return n.Create(ctx, in.Body, in.Key)
	})
	bindList(s, api.ListNotes, func(ctx context.Context, _ *api.Paging) ([]holt.Note, error) { return n.List(ctx) })
	bind(s, api.GetNote, func(ctx context.Context, in *api.OneNote) (holt.Note, error) { return n.Get(ctx, in.Note) })
	bind(s, api.UpdateNote, func(ctx context.Context, in *api.NoteUpdate) (holt.Note, error) {
		return n.Update(ctx, in.Note, in.Body, in.Key)
	})
	bind(s, api.DeleteNote, func(ctx context.Context, in *api.NoteKeyed) (api.None, error) {
		return api.None{}, n.Delete(ctx, in.Note, in.Key)
	})
}
