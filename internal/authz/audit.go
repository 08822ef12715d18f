package authz

import (
	"context"

	"holt"
)

// audit is [httpapi.Audit]: an admin sees all of it, others what their tenant did.
type audit struct{ w *warden }

// whose returns the tenant whose entries a call may see; "": all.
func (n audit) whose(ctx context.Context, wanted string) (string, error) {
	a, _ := holt.ActorOf(ctx)
	if a.Admin() {
		return wanted, nil
	}
	if err := n.w.tenant(ctx, look); err != nil {
		return "", err
	}
	if len(a.Rights.Users) > 0 || wanted != "" && wanted != a.Tenant {
		return "", denied(a)
	}
	return a.Tenant, nil
}

func (n audit) List(ctx context.Context, spec holt.AuditSpec) ([]holt.AuditEntry, error) {
	var err error
	if spec.Tenant, err = n.whose(ctx, spec.Tenant); err != nil {
		return nil, err
	}
	return n.w.n.Audit.List(ctx, spec)
}

func (n audit) Query(ctx context.Context, tenant string, q holt.AuditQuery) (holt.QueryResult, error) {
	tenant, err := n.whose(ctx, tenant)
	if err != nil {
		return holt.QueryResult{}, err
	}
	return n.w.n.Audit.Query(ctx, tenant, q)
}
