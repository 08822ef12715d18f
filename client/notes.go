package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Notes are short texts that a tenant keeps under names.
type Notes struct{ c *Client }

// Create creates a note.
func (n Notes) Create(ctx context.Context, spec holt.NoteSpec, key string) (holt.Note, error) {
	return do(ctx, n.c, api.CreateNote, api.Body[holt.NoteSpec]{api.Keyed{key}, spec})
}

// Get returns a note.
func (n Notes) Get(ctx context.Context, name string) (holt.Note, error) {
	return do(ctx, n.c, api.GetNote, api.OneNote{name})
}

// List returns the notes by name.
func (n Notes) List(ctx context.Context) ([]holt.Note, error) {
	return doList(ctx, n.c, api.ListNotes, api.Paging{})
}

// Update changes the text of a note.
func (n Notes) Update(ctx context.Context, name string, change holt.NoteChange, key string) (holt.Note, error) {
	return do(ctx, n.c, api.UpdateNote, api.NoteUpdate{api.OneNote{name}, api.Keyed{key}, change})
}

// Delete deletes a note.
func (n Notes) Delete(ctx context.Context, name, key string) error {
	return doNone(ctx, n.c, api.DeleteNote, api.NoteKeyed{api.OneNote{name}, api.Keyed{key}})
}
