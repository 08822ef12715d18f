package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"holt"
)

// Audit is the log of what was done.
type Audit struct{ c *Client }

// List returns entries, the newest first.
func (n Audit) List(ctx context.Context, spec holt.AuditSpec) ([]holt.AuditEntry, error) {
	all := []holt.AuditEntry{}
	for spec.Limit == 0 || len(all) < spec.Limit {
		q := url.Values{"limit": {"1000"}}
		if spec.Limit > 0 {
			q.Set("limit", strconv.Itoa(min(1000, spec.Limit-len(all))))
		}
		if spec.Tenant != "" {
			q.Set("tenant", spec.Tenant)
		}
		if spec.Before > 0 {
			q.Set("cursor", strconv.FormatInt(spec.Before, 10))
		}
		var page holt.Page[holt.AuditEntry]
		if err := n.c.json(ctx, call{method: http.MethodGet, path: join("audit"), query: q}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			break
		}
		spec.Before = page.Items[len(page.Items)-1].Seq
	}
	return all, nil
}

// Query asks a question in SQL. Whose entries it is about the server says.
func (n Audit) Query(ctx context.Context, _ string, q holt.AuditQuery) (out holt.QueryResult, err error) {
	err = n.c.json(ctx, call{method: http.MethodPost, path: join("audit", "query"), body: q}, &out)
	return out, err
}
