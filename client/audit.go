package client

import (
	"context"
	"strconv"

	"holt"
	"holt/internal/api"
)

// Audit is the log of what was done.
type Audit struct{ c *Client }

// List returns entries, the newest first.
func (n Audit) List(ctx context.Context, spec holt.AuditSpec) ([]holt.AuditEntry, error) {
	all := []holt.AuditEntry{}
	for spec.Limit == 0 || len(all) < spec.Limit {
		in := api.AuditOf{Limit: 1000, Tenant: spec.Tenant}
		if spec.Limit > 0 {
			in.Limit = min(1000, spec.Limit-len(all))
		}
		if spec.Before > 0 {
			in.Cursor = strconv.FormatInt(spec.Before, 10)
		}
		page, err := do(ctx, n.c, api.ListAudit, in)
		if err != nil {
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

// Query asks a question in SQL. The server decides whose entries it is about.
func (n Audit) Query(ctx context.Context, _ string, q holt.TableQuery) (holt.QueryResult, error) {
	return do(ctx, n.c, api.QueryAudit, api.AuditQuestion{Body: q})
}
