package api

import "holt"

// OneNote names a note in a path.
type OneNote struct {
	Note string `path:"note" doc:"name"`
}

// Inputs of notes.
type (
	NoteUpdate struct {
		OneNote
		Keyed
		Body holt.NoteChange
	}
	NoteKeyed struct {
		OneNote
		Keyed
	}
)

// Notes are short texts that a tenant keeps under names.
var (
	CreateNote = Post[Body[holt.NoteSpec], holt.Note]("/v1/notes", "createNote", "Create a note", Need{On: Tenant, Change: true}, Created, Doc("A tenant has at most 1,000 notes."))
	ListNotes  = GetList[Paging]("/v1/notes", "listNotes", "List notes by name", Need{On: Tenant}, func(n holt.Note) string { return n.Tenant + "/" + n.Name })
	GetNote    = Get[OneNote, holt.Note]("/v1/notes/{note}", "getNote", "Get a note", Need{On: Tenant})
	UpdateNote = Patch[NoteUpdate, holt.Note]("/v1/notes/{note}", "updateNote", "Change the text of a note", Need{On: Tenant, Change: true})
	DeleteNote = Delete[NoteKeyed, None]("/v1/notes/{note}", "deleteNote", "Delete a note", Need{On: Tenant, Change: true})
)
