package client

import (
	"context"

	"holt"
	"holt/internal/api"
)

// Limits are what the computers of tenants may have together.
type Limits struct{ c *Client }

// Get returns what a tenant may have and has.
func (n Limits) Get(ctx context.Context, tenant string) (holt.Limit, error) {
	return do(ctx, n.c, api.GetLimit, api.OneTenant{tenant})
}

// List returns those of tenants that have limits or computers.
func (n Limits) List(ctx context.Context) ([]holt.Limit, error) {
	return doList(ctx, n.c, api.ListLimits, api.Paging{})
}

// Set changes what a tenant may have.
func (n Limits) Set(ctx context.Context, tenant string, change holt.LimitChange, key string) (holt.Limit, error) {
	return do(ctx, n.c, api.SetLimit, api.LimitChange{api.OneTenant{tenant}, api.Keyed{key}, change})
}

// SetBudget changes what a computer and all its forks may use.
func (n Computers) SetBudget(ctx context.Context, ref string, change holt.BudgetChange, key string) (holt.Budget, error) {
	return do(ctx, n.c, api.SetBudget, api.ComputerBody[holt.BudgetChange]{api.OneComputer{ref}, api.Keyed{key}, change})
}

// RemoveBudget takes it away.
func (n Computers) RemoveBudget(ctx context.Context, ref, key string) error {
	return doNone(ctx, n.c, api.RemoveBudget, api.ComputerKeyed{api.OneComputer{ref}, api.Keyed{key}})
}
