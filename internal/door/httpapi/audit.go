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

// note remembers what a call is about, for the audit log.
func (s *Server) note(ctx huma.Context) {
	q := requestOf(ctx.Context())
	if q == nil {
		return
	}
	op := ctx.Operation()
	q.param = ctx.Param
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
	if q.audit = op.Metadata[endpointKey].(*api.Endpoint).Audit; q.audit == api.AuditStart {
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

func (s *Server) audit() {
	n := s.opt.Nouns.Audit
	bind(s, api.ListAudit, func(ctx context.Context, in *api.AuditOf) (page holt.Page[holt.AuditEntry], err error) {
		spec := holt.AuditSpec{Limit: in.Limit + 1, Tenant: in.Tenant}
		if in.Cursor != "" {
			spec.Before, _ = strconv.ParseInt(in.Cursor, 10, 64) // its pattern says that it can be
		}
		page.Items, err = n.List(ctx, spec)
		if len(page.Items) > in.Limit {
			page.Items = page.Items[:in.Limit]
			page.Next = strconv.FormatInt(page.Items[in.Limit-1].Seq, 10)
		}
		return page, err
	})
	bind(s, api.QueryAudit, func(ctx context.Context, in *api.AuditQuestion) (holt.QueryResult, error) {
		return n.Query(ctx, in.Tenant, in.Body)
	})
}
