package servertest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"holt"
	"holt/internal/nouns"
)

// forkVerbs forks a workspace, lets both change, and merges back.
func forkVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "origin"}, ""))(t)
	put := func(ref, path, text string) {
		t.Helper()
		Must(n.WorkspaceFiles.Write(ctx, ref, path, holt.WriteSpec{}, strings.NewReader(text)))(t)
	}
	get := func(ref, path string) string {
		t.Helper()
		var b bytes.Buffer
		fail(t, n.WorkspaceFiles.Read(ctx, ref, path, 0, -1, &b))
		return b.String()
	}
	put("origin", "/a", "1\n2\n3\n")
	put("origin", "/b", "b\n")
	forked := Must(n.Workspaces.Fork(ctx, "origin", holt.ForkSpec{Name: "other"}, "fork-key"))(t)
	again := Must(n.Workspaces.Fork(ctx, "origin", holt.ForkSpec{Name: "other"}, "fork-key"))(t)
	if len(forked.Workspaces) != 1 || len(again.Workspaces) != 1 || again.Workspaces[0].Workspace.ID != forked.Workspaces[0].Workspace.ID {
		t.Fatalf("forked %+v, again %+v", forked, again)
	}
	w := Must(n.Workspaces.Get(ctx, "other"))(t)
	if w.Parent == nil || w.Parent.Name != "origin" || w.Parent.Checkpoint == "" {
		t.Fatalf("parent %+v", w.Parent)
	}
	put("other", "/a", "one\n2\n3\n")
	put("other", "/new", "new\n")
	put("other", "/b", "theirs\n")
	put("origin", "/a", "1\n2\nthree\n")
	put("origin", "/b", "ours\n")
	mergeVerbs(ctx, t, n, get)
	if get("other", "/b") != "theirs\n" || get("origin", "/b") != "ours\n" || get("origin", "/a") != "one\n2\nthree\n" {
		t.Error("what was forked is not apart, or not merged")
	}
	settleVerbs(ctx, t, n, put, get)
	then := Must(n.Workspaces.Fork(ctx, "origin", holt.ForkSpec{At: w.Parent.Checkpoint, Name: "then", Count: 2}, ""))(t)
	if len(then.Workspaces) != 2 || then.Workspaces[1].Workspace == nil || get(then.Workspaces[1].Workspace.Name, "/b") != "b\n" {
		t.Errorf("forks of a checkpoint %+v", then)
	}
	askForks(ctx, t, n)
	fail(t, n.Workspaces.Delete(ctx, "origin", ""))
	if get("other", "/new") != "new\n" {
		t.Error("a fork did not outlive what it was forked from")
	}
	if got := Must(n.Workspaces.Get(ctx, "other"))(t); got.Parent == nil || got.Parent.Name != "" || got.Parent.Was != "origin" {
		t.Errorf("it was forked from %+v", got.Parent)
	}
	forkErrors(ctx, t, n)
}

func mergeVerbs(ctx context.Context, t *testing.T, n nouns.Set, get func(string, string) string) {
	t.Helper()
	dry := Must(n.Workspaces.Merge(ctx, "origin", holt.MergeSpec{From: "other", DryRun: true}, ""))(t)
	if len(dry.Conflicts) != 2 || dry.Conflicts[0].Code != holt.BothChanged || dry.Conflicts[0].Reason == "" || dry.Counts.Created != 1 || dry.Before != "" || dry.After != "" {
		t.Errorf("dry run %+v", dry)
	}
	real := Must(n.Workspaces.Merge(ctx, "origin", holt.MergeSpec{From: "other", Text: true}, ""))(t)
	if len(real.Conflicts) != 1 || real.Conflicts[0].Path != "/b" || len(real.Merged) != 1 || real.Merged[0] != "/a" || real.Before == "" || real.After == "" {
		t.Errorf("merged %+v", real)
	}
	if get("origin", "/new") != "new\n" {
		t.Error("what is new was not merged")
	}
}

// settleVerbs settles a conflict for the one side, and then, changed again, for
// the other.
func settleVerbs(ctx context.Context, t *testing.T, n nouns.Set, put func(ref, path, text string), get func(string, string) string) {
	t.Helper()
	ours := Must(n.Workspaces.Merge(ctx, "origin", holt.MergeSpec{From: "other", Ours: []string{"/b"}}, ""))(t)
	if len(ours.Conflicts) > 0 || len(ours.Ours) != 1 || ours.Ours[0] != "/b" || get("origin", "/b") != "ours\n" {
		t.Errorf("settled %+v", ours)
	}
	if again := Must(n.Workspaces.Merge(ctx, "origin", holt.MergeSpec{From: "other"}, ""))(t); len(again.Conflicts) > 0 {
		t.Errorf("what was settled came again: %+v", again.Conflicts)
	}
	put("other", "/b", "theirs, later\n")
	put("origin", "/b", "ours, later\n")
	spec := holt.MergeSpec{From: "other", Theirs: []string{"/"}, Ours: []string{"/other"}, DryRun: true}
	dry := Must(n.Workspaces.Merge(ctx, "origin", spec, ""))(t)
	if len(dry.Theirs) != 1 || get("origin", "/b") != "ours, later\n" {
		t.Errorf("dry run %+v", dry)
	}
	spec.DryRun = false
	theirs := Must(n.Workspaces.Merge(ctx, "origin", spec, ""))(t)
	if len(theirs.Conflicts) > 0 || len(theirs.Theirs) != 1 || theirs.Theirs[0] != "/b" || get("origin", "/b") != "theirs, later\n" {
		t.Errorf("settled %+v", theirs)
	}
	_, err := n.Workspaces.Merge(ctx, "origin", holt.MergeSpec{From: "other", Ours: []string{"/b"}, Theirs: []string{"/b"}}, "")
	WantCode(t, err, holt.InvalidArgument)
}

func forkErrors(ctx context.Context, t *testing.T, n nouns.Set) {
	t.Helper()
	_, err := n.Workspaces.Fork(ctx, "missing", holt.ForkSpec{}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Fork(ctx, "other", holt.ForkSpec{Name: "then-1"}, "")
	WantCode(t, err, holt.AlreadyExists)
	_, err = n.Workspaces.Fork(ctx, "other", holt.ForkSpec{At: "missing", Name: "never"}, "")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Get(ctx, "never")
	WantCode(t, err, holt.NotFound)
	_, err = n.Workspaces.Merge(ctx, "other", holt.MergeSpec{From: "missing"}, "")
	WantCode(t, err, holt.NotFound)
	Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "stranger"}, ""))(t)
	_, err = n.Workspaces.Merge(ctx, "other", holt.MergeSpec{From: "stranger"}, "")
	WantCode(t, err, holt.InvalidArgument)
}

// askForks asks several workspaces at once.
func askForks(ctx context.Context, t *testing.T, n nouns.Set) {
	t.Helper()
	ask := func(q holt.QuerySpec) string {
		t.Helper()
		r := Must(n.Workspaces.Query(ctx, "origin", q))(t)
		return fmt.Sprint(r.Columns, r.Rows)
	}
	const b = "SELECT workspace, path FROM files WHERE path = '/b' ORDER BY 1"
	for want, q := range map[string]holt.QuerySpec{
		"[workspace path] [[origin /b] [other /b]]":                         {SQL: b, Also: []string{"other"}},
		"[workspace path] [[origin /b] [other /b] [then-1 /b] [then-2 /b]]": {SQL: b, Forks: true},
		"[n] [[0]]":             {SQL: "SELECT count(*) AS n FROM files WHERE path = '/new'", At: "#1"},
		"[workspace] [[other]]": {SQL: "SELECT DISTINCT workspace FROM changes('#1') WHERE path = '/new' AND workspace <> 'origin'", Forks: true},
		"[count(*)] [[1]]":      {SQL: "SELECT count(*) FROM checkpoints WHERE id = 1"},
	} {
		if got := ask(q); got != want {
			t.Errorf("%+v got %s, want %s", q, got, want)
		}
	}
	then := Must(n.Workspaces.Query(ctx, "origin@#1", holt.QuerySpec{SQL: "SELECT workspace, count(*) FROM files WHERE path = '/new' GROUP BY 1", Also: []string{"other"}}))(t)
	if got := fmt.Sprint(then.Rows); got != "[[other 1]]" {
		t.Errorf("of the first as it was, and another as it is: %s", got)
	}
	_, err := n.Workspaces.Query(ctx, "origin@missing", holt.QuerySpec{SQL: b})
	WantCode(t, err, holt.NotFound)
	for _, q := range []holt.QuerySpec{{SQL: b, Also: []string{"missing"}}, {SQL: b, At: "missing"}, {SQL: b, Also: []string{"other@missing"}},
		{SQL: "SELECT * FROM changes('missing')"}, {SQL: "SELECT * FROM changes('missing')", Forks: true}} {
		_, err := n.Workspaces.Query(ctx, "origin", q)
		WantCode(t, err, holt.NotFound)
	}
	_, err = n.Workspaces.Query(ctx, "origin", holt.QuerySpec{SQL: "DELETE FROM files", Forks: true})
	WantCode(t, err, holt.InvalidArgument)
}
