package servertest

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/nouns"
	"holt/internal/store/parcel"
)

// pastOf is one workspace whose past is tried.
type pastOf struct {
	*testing.T
	n nouns.Set
}

func (p pastOf) write(path, content string) {
	p.Helper()
	Must(p.n.WorkspaceFiles.Write(p.Context(), "past", path, holt.WriteSpec{Parents: true}, strings.NewReader(content)))(p.T)
}

func (p pastOf) read(ref, path string) string {
	p.Helper()
	var out bytes.Buffer
	fail(p.T, p.n.WorkspaceFiles.Read(p.Context(), ref, path, 0, -1, &out))
	return out.String()
}

// diff returns changes as "kind path".
func (p pastOf) diff(spec holt.DiffSpec) (all []string) {
	p.Helper()
	fail(p.T, p.n.History.Diff(p.Context(), "past", spec, func(c holt.Change) error {
		all = append(all, strings.TrimSpace(string(c.Kind)+" "+strings.TrimSpace(string(c.From+" "+c.Path))))
		return nil
	}))
	return all
}

func (p pastOf) want(what string, got, want any) {
	p.Helper()
	if d := cmp.Diff(want, got); d != "" {
		p.Errorf("%s: %s", what, d)
	}
}

// historyVerbs checks checkpoints, comparisons and ways back.
func historyVerbs(t *testing.T, n nouns.Set) {
	ctx, p := t.Context(), pastOf{t, n}
	Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "past"}, ""))(t)
	_, err := n.History.DiffPoints(ctx, "past", holt.DiffSpec{})
	WantCode(t, err, holt.NotFound) // no checkpoint yet
	p.write("/src/main.go", "package main\n")
	p.write("/notes.md", "one\ntwo\n")
	spec := holt.CheckpointSpec{Name: "before #1: 100% ok?", Note: "why not"}
	first := Must(n.History.Checkpoint(ctx, "past", spec, "take-1"))(t)
	if first.Name != spec.Name || first.Note != "why not" || first.ID == 0 || first.Auto || first.Files < 2 {
		t.Errorf("took %+v", first)
	}
	if again := Must(n.History.Checkpoint(ctx, "past", spec, "take-1"))(t); again.ID != first.ID {
		t.Errorf("a repeated call took %+v", again)
	}
	_, err = n.History.Checkpoint(ctx, "past", spec, "")
	WantCode(t, err, holt.AlreadyExists)
	_, err = n.History.Checkpoint(ctx, "past", holt.CheckpointSpec{Name: holt.Live}, "")
	WantCode(t, err, holt.InvalidArgument)
	if live := Must(n.History.GetCheckpoint(ctx, "past", holt.Live))(t); live.Parent != first.ID || live.Changed || live.Name != holt.Live {
		t.Errorf("the present is %+v", live)
	}
	p.want("points", Must(n.History.DiffPoints(ctx, "past", holt.DiffSpec{}))(t), holt.DiffSpec{From: first.Name, To: holt.Live})

	fail(t, n.WorkspaceFiles.Remove(ctx, "past", "/src", true, ""))
	fail(t, n.WorkspaceFiles.Rename(ctx, "past", holt.RenameSpec{From: "/notes.md", To: "/todo.md"}, ""))
	p.write("/todo.md", "one\nthree\n")
	p.write("/new\xff", "x")
	second := Must(n.History.Checkpoint(ctx, "past", holt.CheckpointSpec{}, ""))(t)
	if !second.Auto || second.Parent != first.ID {
		t.Errorf("took %+v", second)
	}
	p.want("list", len(Must(n.History.Checkpoints(ctx, "past"))(t)), 2)
	p.want("diff of a path", p.diff(holt.DiffSpec{Paths: []string{"/src"}}), []string{"deleted /src/main.go", "deleted /src"})
	if all := p.diff(holt.DiffSpec{From: first.Name, To: second.Name}); len(all) != 4 || !strings.HasPrefix(all[0], "deleted") || all[2] != "renamed /notes.md /todo.md" { // and overwritten then
		t.Errorf("diff: %q", all)
	}
	p.want("diff of one with itself", p.diff(holt.DiffSpec{From: second.Name, To: second.Name}), []string(nil))
	WantCode(t, n.History.Diff(ctx, "past", holt.DiffSpec{From: "missing"}, func(holt.Change) error { return nil }), holt.NotFound)
	var text bytes.Buffer
	fail(t, n.History.TextDiff(ctx, "past", holt.DiffSpec{Paths: []string{"/todo.md", "/src"}}, &text))
	for _, line := range []string{"--- a/src/main.go\n+++ /dev/null\n", "-package main\n", "+three\n"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no %q in the text diff:\n%s", line, text.String())
		}
	}
	p.then(first)
	p.back(first)
	p.ends(first, second)
}

// then reads files as they were.
func (p pastOf) then(first holt.Checkpoint) {
	ctx, ref := p.Context(), holt.AtCheckpoint("past", first.Name)
	p.want("a file then", p.read(ref, "/notes.md"), "one\ntwo\n")
	if info := Must(p.n.WorkspaceFiles.Stat(ctx, ref, "/src/main.go"))(p.T); info.Size != 13 || info.Kind != "file" {
		p.Errorf("a file then: %+v", info)
	}
	if list := Must(p.n.WorkspaceFiles.List(ctx, ref, "/src", holt.PageSpec{}))(p.T).Items; len(list) != 1 || list[0].Path != "/src/main.go" {
		p.Errorf("a directory then: %+v", list)
	}
	_, err := p.n.WorkspaceFiles.Stat(ctx, ref, "/todo.md")
	WantCode(p.T, err, holt.NotFound)
	_, err = p.n.WorkspaceFiles.Stat(ctx, holt.AtCheckpoint("past", "missing"), "/")
	WantCode(p.T, err, holt.NotFound)
	var sent bytes.Buffer
	fail(p.T, p.n.Workspaces.Export(ctx, "past", holt.ExportSpec{Path: "/src", At: first.Name}, &sent))
	dir := p.TempDir()
	in := Must(parcel.NewReader(&sent))(p.T)
	if report, err := parcel.Unpack(ctx, in, dir, parcel.Options{}); err != nil || report.Bytes != 13 {
		p.Errorf("exported %+v, %v", report, err)
	}
	WantCode(p.T, p.n.Workspaces.Export(ctx, "past", holt.ExportSpec{Path: "/todo.md", At: first.Name}, io.Discard), holt.NotFound)
	WantCode(p.T, p.n.Workspaces.Export(ctx, "past", holt.ExportSpec{Path: "/", At: "missing"}, io.Discard), holt.NotFound)
}

// back restores a path, and then everything.
func (p pastOf) back(first holt.Checkpoint) {
	ctx, h := p.Context(), p.n.History
	spec := holt.RestoreSpec{Checkpoint: first.Name, Paths: []string{"/src"}, DryRun: true}
	if dry := Must(h.Restore(ctx, "past", spec, ""))(p.T); dry.Before != "" || dry.Counts.Created != 2 || len(dry.Changes) != 2 {
		p.Errorf("a dry run said %+v", dry)
	}
	_, err := p.n.WorkspaceFiles.Stat(ctx, "past", "/src")
	WantCode(p.T, err, holt.NotFound)
	spec.DryRun = false
	if done := Must(h.Restore(ctx, "past", spec, "back-1"))(p.T); done.Before == "" || done.Counts.Created != 2 {
		p.Errorf("a restore said %+v", done)
	}
	p.want("a restored file", p.read("past", "/src/main.go"), "package main\n")
	p.want("a file beside it", p.read("past", "/todo.md"), "one\nthree\n")
	fail(p.T, p.n.WorkspaceFiles.Remove(ctx, "past", "/src", true, ""))
	Must(h.Restore(ctx, "past", spec, "back-1"))(p.T) // did its work before
	_, err = p.n.WorkspaceFiles.Stat(ctx, "past", "/src")
	WantCode(p.T, err, holt.NotFound)
	Must(h.Restore(ctx, "past", holt.RestoreSpec{Checkpoint: first.Name}, ""))(p.T)
	p.want("what differs after a restore", p.diff(holt.DiffSpec{From: first.Name}), []string(nil))
	if live := Must(h.GetCheckpoint(ctx, "past", holt.Live))(p.T); live.Parent != first.ID {
		p.Errorf("after a restore the present is %+v", live)
	}
	_, err = h.Restore(ctx, "past", holt.RestoreSpec{Checkpoint: "missing"}, "")
	WantCode(p.T, err, holt.NotFound)
	run := string(holt.NewRunID())
	_, err = h.Undo(ctx, "past", holt.UndoSpec{Run: run}, "")
	WantCode(p.T, err, holt.NotFound)
	if r := Must(h.Receipt(ctx, "past", run))(p.T); r.Counts.Total() != 0 || r.Changes == nil {
		p.Errorf("the receipt of a run that changed nothing: %+v", r)
	}
}

// ends asks what became of paths, and deletes a checkpoint.
func (p pastOf) ends(first, second holt.Checkpoint) {
	ctx, h := p.Context(), p.n.History
	events := Must(h.History(ctx, "past", "/todo.md"))(p.T)
	if len(events) < 2 || !events[0].Gone || events[1].Gone || events[1].At == nil {
		p.Errorf("history of a removed file: %+v", events)
	}
	_, err := h.History(ctx, "past", "/never")
	WantCode(p.T, err, holt.NotFound)
	Must(h.Blame(ctx, "past", "/notes.md"))(p.T)
	_, err = h.Blame(ctx, "past", "/todo.md")
	WantCode(p.T, err, holt.NotFound)
	dry := Must(h.DeleteCheckpoint(ctx, "past", second.Name, true, ""))(p.T)
	if freed := Must(h.DeleteCheckpoint(ctx, "past", second.Name, false, ""))(p.T); freed != dry {
		p.Errorf("freed %+v, and said %+v before", freed, dry)
	}
	_, err = h.GetCheckpoint(ctx, "past", second.Name)
	WantCode(p.T, err, holt.NotFound)
	_, err = h.DeleteCheckpoint(ctx, "past", second.Name, false, "")
	WantCode(p.T, err, holt.NotFound)
	p.want("the first stays", Must(h.GetCheckpoint(ctx, "past", first.Name))(p.T).ID, first.ID)
	_, err = h.Checkpoints(ctx, "missing")
	WantCode(p.T, err, holt.NotFound)
}
