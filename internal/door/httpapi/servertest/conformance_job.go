package servertest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holt"
	"holt/internal/nouns"
	"holt/internal/store/parcel"
)

// sendInputs sends files, by name, for jobs to begin with.
func sendInputs(t *testing.T, n nouns.Set, files map[string]string) holt.JobInputs {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		fail(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	var b bytes.Buffer
	w := Must(parcel.NewWriter(&b, parcel.Totals{}))(t)
	Must(parcel.Pack(t.Context(), dir, w, parcel.Options{}))(t)
	fail(t, w.Close())
	return Must(n.Jobs.Send(t.Context(), &b))(t)
}

// fetched returns the outputs of a job, by name.
func fetched(t *testing.T, n nouns.Set, id holt.JobID) map[string]string {
	t.Helper()
	var b bytes.Buffer
	fail(t, n.Jobs.Outputs(t.Context(), id, &b))
	dir := t.TempDir()
	Must(parcel.Unpack(t.Context(), Must(parcel.NewReader(&b))(t), dir, parcel.Options{}))(t)
	files := map[string]string{}
	for _, e := range Must(os.ReadDir(dir))(t) {
		files[e.Name()] = string(Must(os.ReadFile(filepath.Join(dir, e.Name())))(t))
	}
	return files
}

// jobSays follows a job from an offset on and returns what it says and its exit status.
func jobSays(t *testing.T, n nouns.Set, id holt.JobID, offset int64) (out string, status int) {
	t.Helper()
	fail(t, n.Jobs.Follow(t.Context(), id, offset, func(e holt.RunEvent) error {
		out += string(e.Data)
		if e.Run != nil {
			status = e.Run.ExitCode
		}
		return nil
	}))
	return out, status
}

func jobVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	in := sendInputs(t, n, map[string]string{"a": "alpha\n"})
	if in.Bytes != 6 {
		t.Errorf("sent %+v", in)
	}
	spec := holt.JobSpec{Inputs: in.ID, Run: holt.RunSpec{Command: "cat a; tr a-z A-Z < a > out/b; echo ended $WHERE; exit 3", Env: map[holt.OSString]holt.OSString{"WHERE": "here"}}}
	j := Must(n.Jobs.Create(ctx, spec, "one"))(t)
	if again := Must(n.Jobs.Create(ctx, spec, "one"))(t); again.ID != j.ID || j.State != holt.JobQueued || j.Spec.Run.Env != nil {
		t.Errorf("%+v, and again %s", j, again.ID)
	}
	if out, status := jobSays(t, n, j.ID, 0); out != "alpha\nended here\n" || status != 3 {
		t.Errorf("it said %q, %d", out, status)
	}
	if out, _ := jobSays(t, n, j.ID, 6); out != "ended here\n" { // again, of what is kept
		t.Errorf("it said at last %q", out)
	}
	j = Must(n.Jobs.Get(ctx, j.ID))(t)
	if j.State != holt.JobFailed || j.ExitCode != 3 || j.Error != nil || j.Attempts != 1 || j.Outputs == nil || *j.Outputs != (holt.JobOutputs{Files: 1, Bytes: 6, Kept: true}) || j.EndedAt == nil {
		t.Errorf("%+v", j)
	}
	if got := fetched(t, n, j.ID); len(got) != 1 || got["b"] != "ALPHA\n" {
		t.Errorf("outputs %q", got)
	}
	if all := Must(n.Computers.List(ctx))(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
	if j = Must(n.Jobs.Release(ctx, j.ID, ""))(t); j.Outputs.Kept {
		t.Errorf("released: %+v", j.Outputs)
	}
	WantCode(t, n.Jobs.Outputs(ctx, j.ID, &bytes.Buffer{}), holt.Conflict)

	other := Must(n.Jobs.Create(ctx, holt.JobSpec{Inputs: in.ID, Run: holt.RunSpec{Argv: holt.OSStrings{"/bin/cat", "a"}}}, ""))(t)
	if out, status := jobSays(t, n, other.ID, 0); out != "alpha\n" || status != 0 {
		t.Errorf("the other said %q, %d", out, status)
	}
	if list := Must(n.Jobs.List(ctx, "", 10))(t); len(list) != 2 || list[0].ID != other.ID || list[0].State != holt.JobDone {
		t.Errorf("%+v", list)
	}
	if list := Must(n.Jobs.List(ctx, other.ID, 10))(t); len(list) != 1 || list[0].ID != j.ID {
		t.Errorf("the next page: %+v", list)
	}
	jobEnds(t, n, in.ID)
}

// wantLost follows a job whose command does not come to its end.
func wantLost(t *testing.T, n nouns.Set, id holt.JobID) {
	t.Helper()
	var end *holt.Run
	fail(t, n.Jobs.Follow(t.Context(), id, 0, func(e holt.RunEvent) error { end = e.Run; return nil }))
	if end == nil || end.State != holt.RunLost {
		t.Errorf("the end of %s: %+v", id, end)
	}
}

func jobEnds(t *testing.T, n nouns.Set, in holt.JobInputsID) {
	ctx := t.Context()
	long := Must(n.Jobs.Create(ctx, holt.JobSpec{Inputs: in, Run: holt.RunSpec{Command: "echo begun; sleep 600"}}, ""))(t)
	if got := Must(n.Jobs.Cancel(ctx, long.ID, ""))(t); got.State != holt.JobCancelled {
		t.Errorf("cancelled: %+v", got)
	}
	wantLost(t, n, long.ID)
	fail(t, n.Jobs.Delete(ctx, long.ID, ""))
	_, err := n.Jobs.Get(ctx, long.ID)
	WantCode(t, err, holt.NotFound)

	lacks := Must(n.Jobs.Create(ctx, holt.JobSpec{Template: "nowhere", Run: holt.RunSpec{Command: "true"}}, ""))(t)
	wantLost(t, n, lacks.ID)
	if got := Must(n.Jobs.Get(ctx, lacks.ID))(t); got.State != holt.JobFailed || got.Error == nil || got.Error.Code != holt.NotFound || !strings.Contains(got.Error.Message, "nowhere") {
		t.Errorf("%+v", got)
	}
	fail(t, n.Jobs.Drop(ctx, in, ""))
	_, err = n.Jobs.Create(ctx, holt.JobSpec{Inputs: in, Run: holt.RunSpec{Command: "true"}}, "")
	WantCode(t, err, holt.NotFound)
	for _, bad := range []holt.JobSpec{
		{}, {Run: holt.RunSpec{Command: "true", Stdin: true}}, {Run: holt.RunSpec{Command: "true"}, Collect: "../other"}, {Run: holt.RunSpec{Command: "true"}, Collect: "/etc"},
		{Run: holt.RunSpec{Command: "true"}, CPUs: -1}, {Run: holt.RunSpec{Command: "true"}, Inputs: in, Workspace: "w"},
	} {
		_, err := n.Jobs.Create(ctx, bad, "")
		WantCode(t, err, holt.InvalidArgument)
	}
	if all := Must(n.Workspaces.List(ctx))(t); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}
