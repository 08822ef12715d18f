package holt

import (
	"regexp"
	"time"
)

// AuditEntry records one call, or a refused one. It never contains the request's body.
type AuditEntry struct {
	Seq     int64     `json:"seq" doc:"number of the entry; consecutive, except for expired entries"`
	At      time.Time `json:"at" doc:"end of the call; with code begun, its beginning"`
	Tenant  string    `json:"tenant,omitempty" doc:"tenant of the caller; absent if the caller was not authenticated"`
	Actor   string    `json:"actor" enum:"person,token,computer,schedule,nobody" doc:"kind of caller"`
	Token   TokenID   `json:"token,omitempty"`
	Name    string    `json:"name,omitempty" doc:"name of the token, schedule or computer"`
	Door    string    `json:"door" doc:"socket, tcp, guest, ssh or preview"`
	Remote  string    `json:"remote,omitempty" doc:"address of the caller"`
	Op      string    `json:"op" doc:"operation id of the API, or the name of an SSH or preview operation"`
	Noun    string    `json:"noun,omitempty" doc:"kind of object"`
	Ref     string    `json:"ref,omitempty" doc:"names and ids of the object, and the path of a file"`
	Made    string    `json:"made,omitempty" doc:"id of the created object"`
	Code    string    `json:"code" doc:"ok, begun (a long call, which gets a second entry at its end), or the code of the error"`
	Status  int       `json:"status,omitempty" doc:"HTTP status, if any"`
	Request string    `json:"request,omitempty" doc:"request id, as in the daemon's log"`
	TookMS  float64   `json:"took_ms"`
}

// AuditSpec selects audit entries.
type AuditSpec struct {
	Before int64 // only entries with a lower number; 0: start with the newest
	Limit  int
	Tenant string // "": all tenants that the caller may see
}

// TableQuery is a SQL query on the audit log or on artifacts.
type TableQuery struct {
	SQL       string `json:"sql" doc:"one SELECT statement (SQLite)"`
	MaxRows   int    `json:"max_rows,omitempty" minimum:"0" doc:"default: 10000"`
	TimeoutMS int64  `json:"timeout_ms,omitempty" minimum:"0" doc:"default: 10000; at most 60000"`
}

var secretRE = regexp.MustCompile(`holt_[a-z2-7]{16}_[a-z2-7]{52}`)

// Redact removes secrets of tokens from text that is stored or logged.
func Redact(s string) string {
	if len(s) < 5+16+1+52 {
		return s
	}
	return secretRE.ReplaceAllStringFunc(s, func(secret string) string { return secret[:5+16] + "_***" })
}
