package client

import (
	"context"
	"net/http"

	"holt"
)

// Limits are what the computers of tenants may have together.
type Limits struct{ c *Client }

// Get returns what a tenant may have and has.
func (n Limits) Get(ctx context.Context, tenant string) (out holt.Limit, err error) {
	err = n.c.json(ctx, call{method: http.MethodGet, path: join("limits", tenant)}, &out)
	return out, err
}

// List returns those of tenants that have limits or computers.
func (n Limits) List(ctx context.Context) ([]holt.Limit, error) {
	return list[holt.Limit](ctx, n.c, join("limits"), nil)
}

// Set changes what a tenant may have.
func (n Limits) Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (out holt.Limit, err error) {
	err = n.c.json(ctx, call{method: http.MethodPatch, path: join("limits", tenant), body: change, keyed: true, key: key}, &out)
	return out, err
}

// SetBudget changes what a computer and all its forks may use.
func (n Computers) SetBudget(ctx context.Context, ref string, change holt.BudgetChange, key string) (out holt.Budget, err error) {
	err = n.c.json(ctx, call{method: http.MethodPatch, path: join("computers", ref, "budget"), body: change, keyed: true, key: key}, &out)
	return out, err
}

// RemoveBudget takes it away.
func (n Computers) RemoveBudget(ctx context.Context, ref, key string) error {
	return n.c.json(ctx, call{method: http.MethodDelete, path: join("computers", ref, "budget"), keyed: true, key: key}, nil)
}
