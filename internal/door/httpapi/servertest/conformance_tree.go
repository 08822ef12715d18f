package servertest

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/nouns"
	"holt/internal/store/parcel"
)

// treeVerbs checks what is done with a workspace's files without a computer.
func treeVerbs(t *testing.T, n nouns.Set) {
	ctx, files := t.Context(), n.WorkspaceFiles
	Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, ""))(t)
	made := Must(files.Mkdir(ctx, "data", holt.MkdirSpec{Path: "/notes/deep", Parents: true}, ""))(t)
	if made.Kind != "dir" || made.Path != "/notes/deep" || made.UID != 1000 {
		t.Errorf("made %+v", made)
	}
	const file = "/notes/a b&c\xff.txt"
	written := Must(files.Write(ctx, "data", file, holt.WriteSpec{Mode: 0o640}, strings.NewReader("0123456789")))(t)
	if written.Size != 10 || written.Mode != 0o640 || written.Path != file || written.Name != "a b&c\xff.txt" {
		t.Errorf("wrote %+v", written)
	}
	var got bytes.Buffer
	fail(t, files.Read(ctx, "data", file, 3, 4, &got))
	if got.String() != "3456" {
		t.Errorf("read %q", got.String())
	}
	if _, err := files.Write(ctx, "data", file, holt.WriteSpec{}, cutReader{strings.NewReader("half of the n")}); err == nil {
		t.Error("a write that was cut off succeeded")
	}
	if info := Must(files.Stat(ctx, "data", file))(t); info.Size != 10 {
		t.Errorf("after a write that was cut off: %+v", info)
	}
	list := Must(files.List(ctx, "data", "/notes", holt.PageSpec{}))(t).Items
	for end := time.Now().Add(screenWait); len(list) > 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		list = Must(files.List(ctx, "data", "/notes", holt.PageSpec{}))(t).Items // over a wire it hears of the cut later, and clears away then
	}
	if len(list) != 2 || list[1].Path != "/notes/deep" {
		t.Errorf("listed %+v", list)
	}
	fail(t, files.Remove(ctx, "data", file, false, ""))
	const plain = "/notes/ä b&c"
	Must(files.Write(ctx, "data", plain, holt.WriteSpec{}, strings.NewReader("0123456789")))(t)
	partBehindLink(t, files, "data", "/to", "notes/ä b&c")
	pages(t, files, "data", "/notes")
	links(t, files, "data", "/notes")
	fail(t, files.Rename(ctx, "data", holt.RenameSpec{From: plain, To: "/notes/moved"}, ""))
	tags := Must(n.Workspaces.Tag(ctx, "data", holt.TagSpec{Path: "/notes/moved", Set: map[holt.OSString]holt.OSString{"urgent": "yes", "by": "me\xff"}}, ""))(t)
	if len(tags) != 2 || tags[0].Value != "me\xff" || tags[1].Name != "urgent" || tags[1].Value != "yes" {
		t.Errorf("tags %+v", tags)
	}
	Must(n.Workspaces.Tag(ctx, "data", holt.TagSpec{Path: "/notes/moved", Remove: []string{"by", "missing"}}, ""))(t)
	if tags := Must(n.Workspaces.Tags(ctx, "data", "/notes/moved"))(t); len(tags) != 1 {
		t.Errorf("tags %+v", tags)
	}
	usage := Must(n.Workspaces.Usage(ctx, "data", "/notes", 1))(t)
	if len(usage) != 2 || usage[0].Path != "/notes" || usage[0].Files != 1 || usage[0].Dirs != 2 || usage[0].Bytes != 10 {
		t.Errorf("usage %+v", usage)
	}
	WantCode(t, files.Remove(ctx, "data", "/notes", false, ""), holt.Conflict)
	WantCode(t, files.Remove(ctx, "data", "/", true, ""), holt.InvalidArgument)
	transfer(t, n)
	fail(t, files.Remove(ctx, "data", "/notes", true, ""))
	WantCode(t, files.Remove(ctx, "data", "/notes", true, ""), holt.NotFound)
	WantCode(t, files.Read(ctx, "data", "/notes/moved", 0, -1, io.Discard), holt.NotFound)
	_, err := files.Stat(ctx, "missing", "/")
	WantCode(t, err, holt.NotFound)
}

// transfer exports from one workspace and imports into another, with a quota.
func transfer(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	var sent bytes.Buffer
	fail(t, n.Workspaces.Export(ctx, "data", holt.ExportSpec{Path: "/notes"}, &sent))
	WantCode(t, n.Workspaces.Export(ctx, "data", holt.ExportSpec{Path: "/missing"}, io.Discard), holt.NotFound)
	w := Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "copy", Quota: holt.Quota{Bytes: 4}}, ""))(t)
	if w.Quota.Bytes != 4 {
		t.Errorf("created %+v", w)
	}
	spec := holt.ImportSpec{Path: "/here"}
	_, err := n.Workspaces.Import(ctx, "copy", spec, bytes.NewReader(sent.Bytes()))
	WantCode(t, err, holt.OutOfSpace)
	if holt.AsError(err).Detail == nil {
		t.Error("a failed import does not say what is there")
	}
	if w := Must(n.Workspaces.SetQuota(ctx, "copy", holt.Quota{Bytes: 1 << 20}))(t); w.Quota.Bytes != 1<<20 {
		t.Errorf("quota %+v", w)
	}
	report := Must(n.Workspaces.Import(ctx, "copy", spec, bytes.NewReader(sent.Bytes())))(t)
	if report.Entries != 3 || report.Bytes != 10 {
		t.Errorf("report %+v", report)
	}
	if tags := Must(n.Workspaces.Tags(ctx, "copy", "/here/moved"))(t); len(tags) != 1 {
		t.Errorf("tags %+v", tags)
	}
	_, err = n.Workspaces.Import(ctx, "copy", spec, bytes.NewReader(sent.Bytes()[:sent.Len()-1]))
	WantCode(t, err, holt.InvalidArgument)
	_, err = n.Workspaces.Import(ctx, "copy", spec, strings.NewReader("no parcel"))
	WantCode(t, err, holt.InvalidArgument)
	var none bytes.Buffer
	p := Must(parcel.NewWriter(&none, parcel.Totals{}))(t)
	fail(t, p.Close())
	_, err = n.Workspaces.Import(ctx, "copy", spec, &none)
	WantCode(t, err, holt.InvalidArgument)
}
