package httpapi

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"holt"
	"holt/internal/api"
	"holt/internal/nouns"
)

func (s *Server) computers() {
	n := s.opt.Nouns.Computers
	bind(s, api.CreateComputer, func(ctx context.Context, in *api.Body[holt.ComputerSpec]) (holt.Computer, error) {
		return n.Create(ctx, in.Body, in.Key)
	})
	bindList(s, api.ListComputers, func(ctx context.Context, _ *api.Paging) ([]holt.Computer, error) { return n.List(ctx) })
	bind(s, api.GetComputer, func(ctx context.Context, in *api.OneComputer) (holt.Computer, error) { return n.Get(ctx, in.Computer) })
	bind(s, api.UpdateComputer, func(ctx context.Context, in *api.ComputerBody[holt.ComputerUpdate]) (holt.Computer, error) {
		return n.Update(ctx, in.Computer, in.Body, in.Key)
	})
	bind(s, api.DeleteComputer, func(ctx context.Context, in *api.ComputerKeyed) (holt.DeletedComputer, error) {
		return n.Delete(ctx, in.Computer, in.Key)
	})
	bind(s, api.StartComputer, func(ctx context.Context, in *api.ComputerKeyed) (holt.Computer, error) {
		return n.Start(ctx, in.Computer, in.Key)
	})
	bind(s, api.StopComputer, func(ctx context.Context, in *api.ComputerKeyed) (holt.Computer, error) {
		return n.Stop(ctx, in.Computer, in.Key)
	})
	bind(s, api.PauseComputer, func(ctx context.Context, in *api.ComputerKeyed) (holt.Computer, error) {
		return n.Pause(ctx, in.Computer, in.Key)
	})
	bind(s, api.ResumeComputer, func(ctx context.Context, in *api.ComputerKeyed) (holt.Computer, error) {
		return n.Resume(ctx, in.Computer, in.Key)
	})
	bind(s, api.ResizeComputer, func(ctx context.Context, in *api.ComputerBody[holt.ResizeSpec]) (holt.ResizedComputer, error) {
		return n.Resize(ctx, in.Computer, in.Body, in.Key)
	})
	bindStream(s, api.ComputerLogs, func(ctx context.Context, in *api.ComputerLog) (*huma.StreamResponse, error) {
		return s.log(ctx, in.Follow, func(ctx context.Context, w *rawWriter) error {
			return n.Logs(ctx, in.Computer, holt.LogQuery{TailBytes: in.Tail, Follow: in.Follow}, w)
		}), nil
	})
	s.idle(n)
	s.use(n)
	s.networks()
}

// log answers with lines of text. A log that is followed has an entry in the audit log at its beginning, too.
func (s *Server) log(ctx context.Context, follow bool, f func(context.Context, *rawWriter) error) *huma.StreamResponse {
	if follow {
		s.begun(requestOf(ctx))
	}
	return s.raw(ctx, "text/plain; charset=utf-8", func(ctx context.Context, w *rawWriter) error {
		defer w.q.wait(ctx)()
		return f(ctx, w)
	})
}

func (s *Server) idle(n nouns.Idle) {
	bind(s, api.WhyAwake, func(ctx context.Context, in *api.OneComputer) (holt.Awake, error) { return n.Awake(ctx, in.Computer) })
	bind(s, api.HoldComputer, func(ctx context.Context, in *api.ComputerBody[holt.HoldSpec]) (holt.Hold, error) {
		return n.Hold(ctx, in.Computer, in.Body, in.Key)
	})
	bindList(s, api.ListHolds, func(ctx context.Context, in *api.ComputerList) ([]holt.Hold, error) { return n.Holds(ctx, in.Computer) })
	bind(s, api.ReleaseHold, func(ctx context.Context, in *api.HoldKeyed) (api.None, error) {
		return api.None{}, n.Release(ctx, in.Computer, holt.HoldID(in.Hold), in.Key)
	})
}

func (s *Server) use(budgets nouns.Budgets) {
	stats := s.opt.Nouns.Stats
	bindList(s, api.ListStats, func(ctx context.Context, _ *api.Paging) ([]holt.ComputerStats, error) { return stats.List(ctx) })
	bind(s, api.GetStats, func(ctx context.Context, in *api.OneComputer) (holt.ComputerStats, error) {
		return stats.Get(ctx, in.Computer)
	})
	bind(s, api.SetBudget, func(ctx context.Context, in *api.ComputerBody[holt.BudgetChange]) (holt.Budget, error) {
		return budgets.SetBudget(ctx, in.Computer, in.Body, in.Key)
	})
	bind(s, api.RemoveBudget, func(ctx context.Context, in *api.ComputerKeyed) (api.None, error) {
		return api.None{}, budgets.RemoveBudget(ctx, in.Computer, in.Key)
	})
}

func (s *Server) networks() {
	n, secrets := s.opt.Nouns.Networks, s.opt.Nouns.Secrets
	bind(s, api.GetNetwork, func(ctx context.Context, in *api.OneComputer) (holt.NetworkPolicy, error) {
		return n.Get(ctx, in.Computer)
	})
	bind(s, api.SetNetwork, func(ctx context.Context, in *api.NetworkChange) (holt.NetworkPolicy, error) {
		return n.Set(ctx, in.Computer, in.Body)
	})
	bind(s, api.GetTraffic, func(ctx context.Context, in *api.OneComputer) (holt.NetworkTraffic, error) {
		return n.Traffic(ctx, in.Computer)
	})
	bindList(s, api.ListSecrets, func(ctx context.Context, in *api.ComputerList) ([]holt.ComputerSecret, error) {
		return secrets.List(ctx, in.Computer)
	})
	bind(s, api.SetSecret, func(ctx context.Context, in *api.SecretChange) (holt.ComputerSecret, error) {
		return secrets.Set(ctx, in.Computer, in.Secret, in.Body)
	})
	bind(s, api.DeleteSecret, func(ctx context.Context, in *api.SecretKeyed) (api.None, error) {
		return api.None{}, secrets.Delete(ctx, in.Computer, in.Secret, in.Key)
	})
}
