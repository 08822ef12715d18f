package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// Budgets are what computers with all their forks may use.
type Budgets interface {
	// SetBudget changes the budget of a computer and all its forks, or begins one; Get shows it. InvalidArgument:
	// nothing is changed, or nothing is left of it.
	SetBudget(ctx context.Context, ref string, change holt.BudgetChange, key string) (holt.Budget, error)
	// RemoveBudget takes it away. NotFound: there is none.
	RemoveBudget(ctx context.Context, ref, key string) error
}

func (s *Server) budgets(api huma.API) {
	const tag, path = "computers", "/v1/computers/{computer}/budget"
	nouns := s.opt.Nouns.Computers

	op := describe(http.MethodPatch, path, "setBudget", tag, "Change what a computer and all its forks may use")
	op.Description = "The first time it begins to count: what the computer, its forks and theirs, those there are and those to come, use from then on, by the host's own figures. " +
		"Once a part of it is used up all of them are paused, with their memory, within a quarter of a minute, and what would wake, start, fork or restore one is refused with too_many, until it is raised. " +
		"getComputer shows it. When the computer is gone its id still names the budget, as long as there are forks."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.BudgetChange
	}) (*reply[holt.Budget], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		b, err := nouns.SetBudget(ctx, ref, in.Body, in.Key)
		return &reply[holt.Budget]{b}, err
	})

	op = describe(http.MethodDelete, path, "removeBudget", tag, "Take the budget of a computer away")
	op.Description = "Those of what it was forked from stay. not_found: it has none of its own."
	op.DefaultStatus = http.StatusNoContent
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
	}) (*noContent, error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		return nil, nouns.RemoveBudget(ctx, ref, in.Key)
	})
}
