package servertest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"holt"
	"holt/internal/nouns"
)

func fileVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "curie")
	const dir, file = "/home/agent/notes", "/home/agent/notes/a b&c.txt"
	made := Must(n.Files.Mkdir(ctx, "curie", holt.MkdirSpec{Path: dir}, ""))(t)
	if made.Kind != "dir" || made.Path != dir || made.Name != "notes" {
		t.Errorf("made %+v", made)
	}
	_, err := n.Files.Mkdir(ctx, "curie", holt.MkdirSpec{Path: dir}, "")
	WantCode(t, err, holt.AlreadyExists)
	Must(n.Files.Mkdir(ctx, "curie", holt.MkdirSpec{Path: dir + "/deep/er", Parents: true}, ""))(t)
	written := Must(n.Files.Write(ctx, "curie", file, holt.WriteSpec{Mode: 0o640}, strings.NewReader("0123456789")))(t)
	if written.Size != 10 || written.Mode != 0o640 || written.Kind != "file" {
		t.Errorf("wrote %+v", written)
	}
	for name, want := range map[string]uint32{file: 0o640, dir + "/new": 0o750} { // one that is there keeps its mode, a new one gets its source's less the umask
		if put := Must(n.Files.Write(ctx, "curie", name, holt.WriteSpec{NewMode: 0o770}, strings.NewReader("0123456789")))(t); put.Mode != want {
			t.Errorf("put %+v, want mode %o", put, want)
		}
	}
	fail(t, n.Files.Remove(ctx, "curie", dir+"/new", false, ""))
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, -1, "0123456789"}, {3, -1, "3456789"}, {0, 4, "0123"}, {8, 2, "89"}, {5, 0, ""}} {
		var got bytes.Buffer
		fail(t, n.Files.Read(ctx, "curie", file, c.off, c.n, &got))
		if got.String() != c.want {
			t.Errorf("read %d bytes at %d: %q, want %q", c.n, c.off, got.String(), c.want)
		}
	}
	if list := Must(n.Files.List(ctx, "curie", dir, holt.PageSpec{}))(t).Items; len(list) != 2 {
		t.Errorf("listed %+v", list)
	}
	partBehindLink(t, n.Files, "curie", "/home/agent/to", "notes/a b&c.txt")
	pages(t, n.Files, "curie", dir)
	links(t, n.Files, "curie", dir)
	fail(t, n.Files.Rename(ctx, "curie", holt.RenameSpec{From: file, To: dir + "/mov\xffed"}, ""))
	_, err = n.Files.Stat(ctx, "curie", file)
	WantCode(t, err, holt.NotFound)
	if info := Must(n.Files.Stat(ctx, "curie", dir+"/mov\xffed"))(t); info.Size != 10 {
		t.Errorf("moved %+v", info)
	}
	WantCode(t, n.Files.Remove(ctx, "curie", dir, false, ""), holt.Conflict)
	fail(t, n.Files.Remove(ctx, "curie", dir, true, ""))
	WantCode(t, n.Files.Remove(ctx, "curie", dir, true, ""), holt.NotFound)
	WantCode(t, n.Files.Read(ctx, "curie", dir, 0, -1, io.Discard), holt.NotFound)
}

// pages lists a directory page by page, and removes it.
func pages(t *testing.T, files nouns.Files, of, dir string) {
	t.Helper()
	ctx, dir := t.Context(), dir+"/pages"
	for _, name := range []string{"b", "a", "d", "c\xff", "e"} {
		Must(files.Mkdir(ctx, of, holt.MkdirSpec{Path: holt.OSString(dir + "/" + name), Parents: true}, ""))(t)
	}
	for most, want := range map[int]int{1: 5, 2: 3, 4: 2, 5: 1, 0: 1} {
		spec, got, n := holt.PageSpec{Limit: most}, map[holt.OSString]int{}, 0
		for {
			page := Must(files.List(ctx, of, dir, spec))(t)
			for i, f := range page.Items {
				if got[f.Name]++; i > 0 && page.Items[i-1].Name >= f.Name {
					t.Errorf("%q comes before %q", page.Items[i-1].Name, f.Name)
				}
			}
			if n++; page.Next == "" || n > want {
				break
			}
			spec.Cursor = page.Next
		}
		if n != want || len(got) != 5 || got["c\xff"] != 1 {
			t.Errorf("%d pages of %d, want %d: %v", n, most, want, got)
		}
	}
	fail(t, files.Remove(ctx, of, dir, true, ""))
}

// partBehindLink reads parts of "0123456789" by a link to it, and removes the link.
func partBehindLink(t *testing.T, files nouns.Files, of, link, to string) {
	t.Helper()
	ctx := t.Context()
	Must(files.Symlink(ctx, of, holt.SymlinkSpec{Path: holt.OSString(link), Target: holt.OSString(to)}, ""))(t)
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, -1, "0123456789"}, {2, 3, "234"}, {7, -1, "789"}, {8, 100, "89"}, {100, 3, ""}} {
		var got bytes.Buffer
		fail(t, files.Read(ctx, of, link, c.off, c.n, &got))
		if got.String() != c.want {
			t.Errorf("read %d bytes at %d by a link: %q, want %q", c.n, c.off, got.String(), c.want)
		}
	}
	fail(t, files.Remove(ctx, of, link, false, ""))
}

// links makes symbolic links in an existing directory, and removes them.
func links(t *testing.T, files nouns.Files, of, dir string) {
	ctx, name := t.Context(), dir+"/link\xff"
	at := holt.OSString(name)
	for _, target := range []holt.OSString{"elsewhere/no\u00f6 thing \xf6", "/etc"} { // the second replaces the first
		made := Must(files.Symlink(ctx, of, holt.SymlinkSpec{Path: at, Target: target}, ""))(t)
		if made.Kind != "symlink" || made.Target != target || made.Path != at {
			t.Errorf("linked %+v", made)
		}
	}
	fail(t, files.Remove(ctx, of, name, false, ""))
	Must(files.Mkdir(ctx, of, holt.MkdirSpec{Path: at}, ""))(t)
	_, err := files.Symlink(ctx, of, holt.SymlinkSpec{Path: at, Target: "x"}, "")
	WantCode(t, err, holt.InvalidArgument) // a directory is not replaced
	_, err = files.Symlink(ctx, of, holt.SymlinkSpec{Path: holt.OSString(dir + "/missing/link"), Target: "x"}, "")
	WantCode(t, err, holt.NotFound)
	fail(t, files.Remove(ctx, of, name, false, ""))
}

// cutReader fails after its content.
type cutReader struct{ r io.Reader }

var errCut = errors.New("cut off")

func (c cutReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

func writes(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "darwin")
	const file = "/home/agent/new/dir/file"
	_, err := n.Files.Write(ctx, "darwin", file, holt.WriteSpec{}, strings.NewReader("x"))
	WantCode(t, err, holt.NotFound)
	Must(n.Files.Write(ctx, "darwin", file, holt.WriteSpec{Parents: true, Mode: 0o600}, strings.NewReader("old")))(t)
	if _, err := n.Files.Write(ctx, "darwin", file, holt.WriteSpec{}, cutReader{strings.NewReader("half of the n")}); err == nil {
		t.Error("a write that was cut off succeeded")
	}
	var got bytes.Buffer
	fail(t, n.Files.Read(ctx, "darwin", file, 0, -1, &got))
	if got.String() != "old" {
		t.Errorf("after a write that was cut off: %q, want %q", got.String(), "old")
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB, and more than any buffer on the way
	info := Must(n.Files.Write(ctx, "darwin", file, holt.WriteSpec{}, bytes.NewReader(big)))(t)
	if info.Mode != 0o600 {
		t.Errorf("mode %o after a replacement, want 600", info.Mode)
	}
	got.Reset()
	fail(t, n.Files.Read(ctx, "darwin", file, 0, -1, &got))
	if !bytes.Equal(got.Bytes(), big) {
		t.Errorf("read back %d bytes, or other ones; want %d", got.Len(), len(big))
	}
	if list := Must(n.Files.List(ctx, "darwin", "/home/agent/new/dir", holt.PageSpec{}))(t).Items; len(list) != 1 {
		t.Errorf("writes left %+v", list)
	}
}

func workspaceVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	w := Must(n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, ""))(t)
	_, err := n.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "data"}, "")
	WantCode(t, err, holt.AlreadyExists)
	for _, ref := range []string{"data", string(w.ID)} {
		if got := Must(n.Workspaces.Get(ctx, ref))(t); got.ID != w.ID {
			t.Errorf("get %s: %+v", ref, got)
		}
	}
	c := Must(n.Computers.Create(ctx, holt.ComputerSpec{Name: "volta", Workspace: "data"}, ""))(t)
	if c.Workspace != "data" {
		t.Errorf("created with workspace %q", c.Workspace)
	}
	_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "ampere", Workspace: "data"}, "")
	WantCode(t, err, holt.Conflict)
	_, err = n.Computers.Create(ctx, holt.ComputerSpec{Name: "ampere", Workspace: "missing"}, "")
	WantCode(t, err, holt.NotFound)
	WantCode(t, n.Workspaces.Delete(ctx, "data", ""), holt.Conflict)
	Must(n.Files.Write(ctx, "volta", "/home/agent/report.md", holt.WriteSpec{}, strings.NewReader("# hello\n")))(t)
	result := Must(n.Workspaces.Query(ctx, "data", holt.QuerySpec{SQL: "SELECT path, size FROM files WHERE name = 'report.md'"}))(t)
	if len(result.Rows) != 1 || !strings.HasSuffix(result.Rows[0][0].(string), "report.md") {
		t.Errorf("asked, got %+v", result)
	}
	_, err = n.Workspaces.Query(ctx, "data", holt.QuerySpec{SQL: "DELETE FROM files"})
	if code := holt.CodeOf(err); code != holt.InvalidArgument && code != holt.Forbidden {
		t.Errorf("a DELETE got %v", err)
	}
	if report := Must(n.Workspaces.Check(ctx, "data"))(t); len(report.Problems) > 0 {
		t.Errorf("problems: %q", report.Problems)
	}
	Must(n.Computers.Delete(ctx, "volta", ""))(t)
	Must(n.Workspaces.Get(ctx, "data"))(t) // it was there before the computer
	fail(t, n.Workspaces.Delete(ctx, "data", ""))
	if all := Must(n.Workspaces.List(ctx))(t); len(all) != 0 {
		t.Errorf("left %+v", all)
	}
}

func daemonVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	newComputer(t, n, "gauss")
	h := Must(n.Daemon.Health(ctx))(t)
	if h.Status != "ok" || h.PID == 0 || h.Running != 1 {
		t.Errorf("health %+v", h)
	}
	if len(Must(n.Daemon.Doctor(ctx))(t)) == 0 {
		t.Error("the doctor found nothing to look at")
	}
	Must(n.Images.List(ctx))(t)
	for _, ref := range []string{"none", strings.Repeat("0", 64)} {
		_, err := n.Images.Boot(ctx, ref, holt.Shape{}, "boot "+ref)
		if holt.CodeOf(err) != holt.Unsupported { // of an engine whose machines cannot be kept
			WantCode(t, err, holt.NotFound)
		}
	}
	if a := Must(n.Archive.Get(ctx))(t); a.Place == "" || a.Stored < a.Garbage {
		t.Errorf("archive %+v", a)
	}
	Must(n.Archive.Collect(ctx, "collect"))(t)
	if report := Must(n.Archive.Check(ctx))(t); len(report.Problems) > 0 || report.Problems == nil {
		t.Errorf("check of the archive: %+v", report)
	}
	report := Must(n.Daemon.Down(ctx, holt.DownSpec{Computers: holt.DownStop}, "down"))(t)
	if len(report.Stopped) != 1 || report.Stopped[0] != "gauss" {
		t.Errorf("down: %+v", report)
	}
}
