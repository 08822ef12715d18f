package holt

import (
	"regexp"
	"time"
)

// AuditEntry is one thing that somebody did, or was not let do, through a door. It never holds what was sent.
type AuditEntry struct {
	Seq     int64     `json:"seq" doc:"its number, without gaps but for what has gone"`
	At      time.Time `json:"at" doc:"when it ended, or, with the code begun, began"`
	Tenant  string    `json:"tenant,omitempty" doc:"to whose things the call was confined; absent: nobody knows who it was"`
	Actor   string    `json:"actor" enum:"person,token,computer,schedule,nobody" doc:"what the caller is"`
	Token   TokenID   `json:"token,omitempty"`
	Name    string    `json:"name,omitempty" doc:"of the token, the schedule or the computer"`
	Door    string    `json:"door" doc:"socket, tcp, guest, ssh or preview"`
	Remote  string    `json:"remote,omitempty" doc:"address that it came from"`
	Op      string    `json:"op" doc:"operation id of the API, or what another door calls it"`
	Noun    string    `json:"noun,omitempty" doc:"what kind of thing it was about"`
	Ref     string    `json:"ref,omitempty" doc:"names and ids of what it was about, and the path of a file"`
	Made    string    `json:"made,omitempty" doc:"id of what it made"`
	Code    string    `json:"code" doc:"ok, begun (of what goes on, or starts what does: it has another entry at its end), or an error's code"`
	Status  int       `json:"status,omitempty" doc:"HTTP status, where there is one"`
	Request string    `json:"request,omitempty" doc:"request id, as in the daemon's log"`
	TookMS  float64   `json:"took_ms"`
}

// AuditSpec says which entries to show.
type AuditSpec struct {
	Before int64 // only those with a lower number; 0: from the newest on
	Limit  int
	Tenant string // only this one's; "": of all that the caller may see
}

// AuditQuery is a question to the audit log.
type AuditQuery struct {
	SQL       string `json:"sql" doc:"one SELECT statement (SQLite); the table is audit"`
	MaxRows   int    `json:"max_rows,omitempty" minimum:"0" doc:"default: 10000"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"0" doc:"default: 10000; at most 60000"`
}

var secretRE = regexp.MustCompile(`holt_[a-z2-7]{16}_[a-z2-7]{52}`)

// Redact takes secrets of tokens out of a text that is written down somewhere: people put them in wrong places.
func Redact(s string) string {
	if len(s) < 5+16+1+52 {
		return s
	}
	return secretRE.ReplaceAllStringFunc(s, func(secret string) string { return secret[:5+16] + "_***" })
}
