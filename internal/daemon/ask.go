package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holt"
	"holt/internal/workspace"
)

// What bounds queries.
const (
	mostQueries  = 4               // at once: each may take some hundred MiB; others wait
	mostOfOne    = 2               // of them about one workspace
	mostOfTenant = 2               // of them of one tenant
	longestQuery = 5 * time.Minute // what it reads stays in the index's log meanwhile
)

// Query runs one SQL SELECT over a workspace, or over several.
//
// Errors: NotFound (a workspace or checkpoint), InvalidArgument (the SQL, or
// too much of something), Timeout, TooMany (others of the tenant wait).
func (w *Workspaces) Query(ctx context.Context, ref string, q holt.QuerySpec) (out holt.QueryResult, err error) {
	limits := workspace.Limits{Rows: q.MaxRows, Time: time.Duration(q.TimeoutMS) * time.Millisecond}
	if q.TimeoutMS > longestQuery.Milliseconds() {
		return out, holt.Errorf(holt.InvalidArgument, "a query may take %s at most", holt.ShortDuration(longestQuery)).WithHint("ask for less at a time")
	}
	all, several, err := w.queried(ctx, ref, q)
	if err != nil {
		return out, err
	}
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = string(one.id)
	}
	end, err := w.asking.Take(ctx, ids...)
	if err != nil {
		return out, err
	}
	defer end()
	var asked []workspace.QuerySource
	var used []*entry
	for _, one := range all {
		e, ws, err := w.shelf.acquire(one.id)
		if err != nil {
			return out, fmt.Errorf("%s: %w", one.label(), err)
		}
		defer w.shelf.release(e)
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
	return out, described(err)
}

// queriedRow is a workspace that a query is about.
type queriedRow struct {
	row
	at string
}

// label is what the column workspace has.
func (q queriedRow) label() string {
	if q.at == "" || q.at == holt.Live {
		return q.name
	}
	return holt.AtCheckpoint(q.name, q.at)
}

// queried finds the workspaces that a query is about, each once.
func (w *Workspaces) queried(ctx context.Context, ref string, q holt.QuerySpec) (all []queriedRow, several bool, err error) {
	add := func(r row, at string) {
		one := queriedRow{r, at}
		if !slices.ContainsFunc(all, func(o queriedRow) bool { return o.id == r.id && o.label() == one.label() }) {
			all = append(all, one)
		}
	}
	open := q.Forks // does anything have the state of q.At?
	for _, ref := range append([]string{ref}, q.Also...) {
		name, at := holt.CutCheckpoint(ref)
		if at == "" {
			at, open = q.At, true
		}
		r, err := w.table.find(ctx, name)
		if err != nil {
			return nil, false, err
		}
		add(r, at)
	}
	if q.At != "" && !open {
		return nil, false, holt.Errorf(holt.InvalidArgument, "a checkpoint is named twice: with each workspace, and for those that name none").
			WithHint("leave one of them out")
	}
	if q.Forks {
		rows, err := w.table.rows(ctx, `WHERE state = 'ready' AND (?1 = '' OR tenant = ?1) ORDER BY created, id`, holt.Confined(ctx))
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows { // a fork is younger than what it is of
			if r.parent != nil && slices.ContainsFunc(all, func(o queriedRow) bool { return o.id == r.parent.ID }) {
				add(r, q.At)
			}
		}
	}
	if len(all) > holt.MostQueried {
		return nil, false, holt.Errorf(holt.InvalidArgument, "a query is about %d workspaces, and may be about %d", len(all), holt.MostQueried).
			WithHint("name some of them")
	}
	return all, q.Forks || len(q.Also) > 0, nil
}
