package holt

import "time"

// Limits of notes.
const (
	MaxNotes    = 1000 // of a tenant
	MaxNoteText = 4096 // characters
)

// NoteSpec describes a note to create.
type NoteSpec struct {
	Name string `json:"name" doc:"1 to 63 characters a-z, 0-9 and -; unique in the tenant"`
	Text string `json:"text" doc:"1 to 4096 characters"`
}

// NoteChange changes a note.
type NoteChange struct {
	Text string `json:"text" doc:"1 to 4096 characters"`
}

// Note is a short text that a tenant keeps under a name.
type Note struct {
	Name      string    `json:"name"`
	Text      string    `json:"text"`
	Tenant    string    `json:"tenant"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
