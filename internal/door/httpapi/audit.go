package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
	"holt/internal/audit"
)

// Auditor writes down what was done; it is what [audit.Log] does.
type Auditor interface {
	Record(ctx context.Context, e holt.AuditEntry)
}

// Audit is the log of what was done through the doors.
type Audit interface {
	// List returns entries, the newest first, those of spec.Tenant, or of all with "".
	List(ctx context.Context, spec holt.AuditSpec) ([]holt.AuditEntry, error)
	// Query answers a question in SQL about a tenant's entries, or about all with "". InvalidArgument; Timeout.
	Query(ctx context.Context, tenant string, q holt.AuditQuery) (holt.QueryResult, error)
}

// reads are the operations that change nothing and are in the audit log all the same, also when they are allowed.
var reads = map[string]bool{
	"readFile": true, "readWorkspaceFile": true, "tarFiles": true, "tarWorkspaceFiles": true, "tarCheckpointFiles": true, "readCheckpointFile": true, "exportWorkspace": true, "queryWorkspace": true,
	"connectSSH": true, "diffText": true, "queryAudit": true,
}

// beginnings are the operations that always have an entry at their beginning, too: they may go on for days, or what they start
// goes on without them. What follows something has one if there is more to come; see [Server.begun].
var beginnings = map[string]bool{"connectSSH": true}

// note remembers what a call is about, for the audit log.
func (s *Server) note(ctx huma.Context) {
	q := requestOf(ctx.Context())
	if q == nil {
		return
	}
	op := ctx.Operation()
	q.op = op.OperationID
	if len(op.Tags) > 0 {
		q.noun = op.Tags[0]
	}
	var refs []string
	for _, p := range op.Parameters {
		if v := ""; p.In == "path" {
			if v = ctx.Param(p.Name); v != "" {
				refs = append(refs, v)
			}
		} else if p.In == "query" {
			switch p.Name {
			case "path", "dir", "port", "socket", "from", "to":
				if v = ctx.Query(p.Name); v != "" {
					refs = append(refs, p.Name+"="+v)
				}
			}
		}
	}
	q.ref = strings.Join(refs, " ")
	if q.audit = auditOf(op); q.audit == api.AuditStart {
		s.begun(q)
	}
}

// begun writes down that a call begins which has another entry at its end: a daemon that is killed before does not write that.
func (s *Server) begun(q *request) {
	if s.opt.Audit != nil {
		s.opt.Audit.Record(q.by, audit.Who(q.by, q.entry("begun", 0)))
	}
}

func (q *request) entry(code string, took time.Duration) holt.AuditEntry {
	return holt.AuditEntry{Door: q.door, Remote: q.remote, Op: q.op, Noun: q.noun, Ref: q.ref, Made: q.made, Code: code, Status: q.status, Request: q.id, TookMS: float64(took.Microseconds()) / 1000}
}

// audited writes a call down when it has ended, unless it only looked and was let.
func (s *Server) audited(q *request, took time.Duration) {
	if s.opt.Audit == nil || q.quiet {
		return
	}
	refused := q.status == http.StatusUnauthorized || q.status == http.StatusForbidden || q.status == http.StatusTooManyRequests
	looked := q.r.Method == http.MethodGet || q.r.Method == http.MethodHead || q.r.Method == http.MethodOptions
	if looked && !refused && q.audit == api.AuditChanges {
		return
	}
	code := "ok"
	if q.err != nil {
		code = string(holt.CodeOf(q.err))
	}
	e := q.entry(code, took)
	if e.Op == "" {
		e.Op, e.Ref = q.r.Method, q.r.URL.Path
	}
	if q.often {
		more, ok := s.often.Add(string(q.token), time.Now())
		if !ok {
			return
		}
		e.Ref = audit.More(e.Ref, more)
	}
	if q.by == nil {
		e.Actor = "nobody"
		s.opt.Audit.Record(context.Background(), e)
		return
	}
	s.opt.Audit.Record(context.WithoutCancel(q.by), audit.Who(q.by, e))
}

// idOf returns the id of what an answer is about, "" if it says none.
func idOf(answer any) string {
	v := reflect.Indirect(reflect.ValueOf(answer))
	for _, name := range []string{"Body", "ID"} {
		if v.Kind() != reflect.Struct {
			return ""
		}
		if v = v.FieldByName(name); !v.IsValid() {
			return ""
		}
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

func (s *Server) audit(h huma.API) {
	const tag, path = "audit", "/v1/audit"
	nouns := s.opt.Nouns.Audit
	op := describe(http.MethodGet, path, "listAudit", tag, "List what was done, the newest first")
	op.Description = "Everything that changed something, reads of files, of output and of logs, attached terminals, connections, and what was refused, through every door. What goes on, and what starts a command or a terminal, has an entry at its beginning, too, with the code begun. Nothing changes or removes an entry that is younger than " +
		strconv.Itoa(audit.KeepDays) + " days and among the newest " + strconv.Itoa(audit.KeepEntries) + ", or the newest " + strconv.Itoa(audit.KeepOwn) + " of their tenant; others go, the oldest first. What callers do whom nobody knows, and refusals of a token that makes too many calls, have one entry a minute of an address or token (more=N in ref: how many had none), and a few a minute of all. A token sees its own tenant's; an admin those of all, or of one."
	register(h, op, func(ctx context.Context, in *struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"most items in one answer"`
		Cursor string `query:"cursor" pattern:"^[0-9]{1,18}$" doc:"next of the previous page"`
		Tenant string `query:"tenant" maxLength:"63" doc:"only this one's"`
	}) (*reply[holt.Page[holt.AuditEntry]], error) {
		spec := holt.AuditSpec{Limit: in.Limit + 1, Tenant: in.Tenant}
		if in.Cursor != "" {
			spec.Before, _ = strconv.ParseInt(in.Cursor, 10, 64) // its pattern says that it can be
		}
		all, err := nouns.List(ctx, spec)
		out := &reply[holt.Page[holt.AuditEntry]]{Body: holt.Page[holt.AuditEntry]{Items: all}}
		if len(all) > in.Limit {
			out.Body.Items = all[:in.Limit]
			out.Body.Next = strconv.FormatInt(all[in.Limit-1].Seq, 10)
		}
		return out, err
	})

	op = describe(http.MethodPost, path+"/query", "queryAudit", tag, "Ask the audit log in SQL")
	op.Description = "One SELECT about the table audit (seq, at, tenant, actor, token, name, door, remote, op, noun, ref, made, code, status, request, took_us), read-only and bounded as queryWorkspace is. " +
		"at is text, as 2026-06-09T12:30:00.000Z. A tenant's token asks about the newest 50,000 entries of its tenant, an admin about all. Of a tenant one question runs at once, eight more wait, and what comes then is too_many."
	register(h, op, func(ctx context.Context, in *struct{ Body holt.AuditQuery }) (*reply[holt.QueryResult], error) {
		out, err := nouns.Query(ctx, "", in.Body)
		return &reply[holt.QueryResult]{out}, err
	})
}
