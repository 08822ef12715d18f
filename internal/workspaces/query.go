package workspaces

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/workspace"
)

// Query runs one SQL SELECT over a workspace, or over several.
//
// Errors: NotFound (a workspace or checkpoint), InvalidArgument (the SQL, or a
// limit), Timeout, TooMany (too many queries of the tenant are waiting).
func (s *Store) Query(ctx context.Context, ref string, q holt.QuerySpec) (out holt.QueryResult, err error) {
	limits := workspace.Limits{Rows: q.MaxRows, Time: time.Duration(q.TimeoutMS) * time.Millisecond}
	if q.TimeoutMS > maxQueryTime.Milliseconds() {
		return out, holt.Errorf(holt.InvalidArgument, "invalid timeout: a query may take %s at most", holt.ShortDuration(maxQueryTime)).WithHint("split the query")
	}
	all, several, err := s.queried(ctx, ref, q)
	if err != nil {
		return out, err
	}
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = string(one.id)
	}
	end, err := s.queries.Take(ctx, ids...)
	if err != nil {
		return out, err
	}
	defer end()
	var asked []workspace.QuerySource
	var used []*entry
	for _, one := range all {
		e, ws, err := s.open.acquire(one.id)
		if err != nil {
			return out, fmt.Errorf("%s: %w", one.label(), err)
		}
		defer s.open.release(e)
		during, done := e.during(ctx)
		defer done()
		ctx, used = during, append(used, e)
		asked = append(asked, workspace.QuerySource{W: ws, At: one.at, Name: one.label()})
	}
	if several {
		out, err = workspace.QueryAcross(ctx, asked, q.SQL, limits)
	} else {
		out, err = asked[0].Query(ctx, q.SQL, limits)
	}
	for _, e := range used {
		err = e.reason(err)
	}
	return out, hosterror.Describe(err)
}

// queriedRow is a workspace that a query reads.
type queriedRow struct {
	row
	at string
}

// label is the value of the column workspace.
func (q queriedRow) label() string {
	if q.at == "" || q.at == holt.Live {
		return q.name
	}
	return holt.AtCheckpoint(q.name, q.at)
}

// queried finds the workspaces that a query reads, each once.
func (s *Store) queried(ctx context.Context, ref string, q holt.QuerySpec) (all []queriedRow, several bool, err error) {
	add := func(r row, at string) {
		one := queriedRow{r, at}
		if !slices.ContainsFunc(all, func(o queriedRow) bool { return o.id == r.id && o.label() == one.label() }) {
			all = append(all, one)
		}
	}
	used := q.Forks // whether q.At applies to a workspace
	for _, ref := range append([]string{ref}, q.Also...) {
		name, at := holt.CutCheckpoint(ref)
		if at == "" {
			at, used = q.At, true
		}
		r, err := s.table.find(ctx, name)
		if err != nil {
			return nil, false, err
		}
		add(r, at)
	}
	if q.At != "" && !used {
		return nil, false, holt.Errorf(holt.InvalidArgument, "the checkpoint %s applies to no workspace: each workspace names its own", clip(q.At)).
			WithHint("leave out --at, or the checkpoint after a workspace")
	}
	if q.Forks {
		rows, err := s.table.rows(ctx, `WHERE state = 'ready' AND (?1 = '' OR tenant = ?1) ORDER BY created, id`, holt.Confined(ctx))
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows { // a fork is younger than its parent
			if r.parent != nil && slices.ContainsFunc(all, func(o queriedRow) bool { return o.id == r.parent.ID }) {
				add(r, q.At)
			}
		}
	}
	if len(all) > holt.MostQueried {
		return nil, false, holt.Errorf(holt.InvalidArgument, "the query reads %d workspaces: the maximum is %d", len(all), holt.MostQueried).
			WithHint("query fewer workspaces at a time")
	}
	return all, q.Forks || len(q.Also) > 0, nil
}
