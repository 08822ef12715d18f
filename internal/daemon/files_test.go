package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/user"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/daemon"
)

// TestFiles: what the API does shows in the guest, running or not.
func TestFiles(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, files := t.Context(), d.Computers().Files()
	write := func(path, content string, spec holt.WriteSpec) holt.FileInfo {
		t.Helper()
		spec.User = "root"
		info, err := files.Write(ctx, "curie", path, spec, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	info := write("/home/agent/a/b/../b/notes.md", "first", holt.WriteSpec{Parents: true, Mode: 0o600})
	if info.Path != "/home/agent/a/b/notes.md" || info.Size != 5 || info.Mode != 0o600 || info.Kind != "file" {
		t.Errorf("%+v", info)
	}
	if info = write("/home/agent/a/b/notes.md", "second!", holt.WriteSpec{}); info.Mode != 0o600 || info.Size != 7 {
		t.Errorf("the mode of the replaced file: %+v", info)
	}
	if info = write("/home/agent/plain", "", holt.WriteSpec{}); info.Mode != 0o644 {
		t.Errorf("the mode of a new file: %+v", info)
	}
	if out := succeeds(t, d, "curie", "cat a/b/notes.md"); out != "second!" {
		t.Errorf("%q", out)
	}
	if _, err := files.Mkdir(ctx, "curie", holt.MkdirSpec{Path: "/home/agent/dir", User: "root"}, ""); err != nil {
		t.Error(err)
	}
	if err := files.Rename(ctx, "curie", holt.RenameSpec{From: "/home/agent/plain", To: "/home/agent/dir/moved"}, ""); err != nil {
		t.Error(err)
	}
	succeeds(t, d, "curie", "ln -s dir/moved link; ln -s /home/agent/a/b abs; ln -s /etc/hostname out; ln -s loop loop; mkfifo fifo")
	running := view(t, d)
	page, err := files.List(ctx, "curie", "/home/agent", holt.PageSpec{Limit: 1})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	if _, err := d.Computers().Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	_, err = files.List(ctx, "curie", "/home/agent", holt.PageSpec{Cursor: page.Next})
	wantCode(t, err, holt.Conflict) // an offset of the guest's, and nobody there to seek to it
	stopped := view(t, d)
	if diff := cmp.Diff(running, stopped); diff != "" {
		t.Errorf("running and stopped (-running +stopped):\n%s", diff)
	}
	if got := read(t, d, "curie", "/home/agent/abs/notes.md"); got != "second!" {
		t.Errorf("through an absolute symlink: %q", got)
	}
	var part strings.Builder
	if err := files.Read(ctx, "curie", "/home/agent/a/b/notes.md", 2, 3, &part); err != nil || part.String() != "con" {
		t.Errorf("a range: %q %v", part.String(), err)
	}
	_, err = files.Stat(ctx, "curie", "/home/agent/nothing")
	wantCode(t, err, holt.NotFound)
	if err := files.Read(ctx, "curie", "/home/agent/loop", 0, -1, io.Discard); err == nil {
		t.Error("a loop of symlinks was read")
	}
	if c, _ := d.Computers().Get(ctx, "curie"); c.State != holt.ComputerStopped {
		t.Error("reading started the computer")
	}
	if err := files.Remove(ctx, "curie", "/home/agent/a", false, ""); err == nil { // wakes it
		t.Error("a directory that is not empty was removed")
	}
	if err := files.Remove(ctx, "curie", "/home/agent/a", true, ""); err != nil {
		t.Error(err)
	}
	_, err = files.Stat(ctx, "curie", "/home/agent/a/b/notes.md")
	wantCode(t, err, holt.NotFound)
	if got := read(t, d, "curie", "/proc/sys/kernel/ostype"); got != "Linux\n" {
		t.Errorf("outside of the workspace: %q", got)
	}
}

// view lists the workspace as the API shows it, page by page: the pages of a
// running computer come as its directory has them.
func view(t *testing.T, d *daemon.Daemon) (all []holt.FileInfo) {
	t.Helper()
	for _, dir := range []string{"/home/agent", "/home/agent/a/b", "/home/agent/dir"} {
		spec := holt.PageSpec{Limit: 3}
		for {
			page, err := d.Computers().Files().List(t.Context(), "curie", dir, spec)
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, page.Items...); page.Next == "" {
				break
			}
			spec.Cursor = page.Next
		}
	}
	slices.SortFunc(all, func(a, b holt.FileInfo) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return all
}

// TestBigFile: what goes in comes out, and a source that fails leaves what was there.
func TestBigFile(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, files := t.Context(), d.Computers().Files()
	big := make([]byte, 20<<20+17)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	if _, err := files.Write(ctx, "curie", "/home/agent/big", holt.WriteSpec{User: "root"}, bytes.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if err := files.Read(ctx, "curie", "/home/agent/big", 0, -1, h); err != nil || [32]byte(h.Sum(nil)) != sha256.Sum256(big) {
		t.Error("it came out otherwise:", err)
	}
	broken := errors.New("the source broke")
	src := io.MultiReader(strings.NewReader("half"), &failing{broken})
	if _, err := files.Write(ctx, "curie", "/home/agent/big", holt.WriteSpec{User: "root"}, src); !errors.Is(err, broken) {
		t.Error(err)
	}
	sink := &failing{errors.New("the sink broke")}
	if err := files.Read(ctx, "curie", "/home/agent/big", 0, -1, sink); !errors.Is(err, sink.err) {
		t.Error(err)
	}
	var list holt.Page[holt.FileInfo]
	within(t, "the guest to remove what was half-written", func() bool {
		var err error
		if list, err = files.List(ctx, "curie", "/home/agent", holt.PageSpec{}); err != nil {
			t.Fatal(err)
		}
		return len(list.Items) == 1
	})
	if list.Items[0].Size != int64(len(big)) {
		t.Errorf("%+v", list)
	}
}

// failing is a source and a sink that fails.
type failing struct{ err error }

func (f *failing) Read([]byte) (int, error)  { return 0, f.err }
func (f *failing) Write([]byte) (int, error) { return 0, f.err }

// TestWriterOfAPI: what the API writes into a running computer is the caller's,
// and nothing else in the guest is.
func TestWriterOfAPI(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	files, ctx := d.Computers().Files(), t.Context()
	token := holt.WithActor(ctx, holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Name: "ci"})
	for name, ctx := range map[string]context.Context{"person": ctx, "token": token} {
		if _, err := files.Write(ctx, "curie", "/home/agent/"+name+"/file", holt.WriteSpec{Parents: true}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Symlink(ctx, "curie", holt.SymlinkSpec{Path: holt.OSString("/home/agent/" + name + "/link"), Target: "file"}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Workspaces().Files().Write(ctx, "curie", "/"+name+"/beside", holt.WriteSpec{}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	// A run is a run, whatever it calls itself.
	succeeds(t, d, "curie", "mkdir run; printf holt:1 > /proc/self/comm; echo x > run/file; echo y >> token/file; mv person/link run/link")
	out, err := d.Workspaces().Query(ctx, "curie", holt.QuerySpec{SQL: "SELECT path, writer_kind, writer FROM files WHERE path NOT IN ('/', '/.profile', '/.bashrc') ORDER BY path"})
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range out.Rows {
		got = append(got, strings.TrimSpace(fmt.Sprintln(row...)))
	}
	person, agent, ci := " person "+me.Username, " run agent", " token ci"
	want := []string{"/person" + agent, "/person/beside" + person, "/person/file" + person, "/run" + agent, "/run/file" + agent, "/run/link" + agent,
		"/token" + ci, "/token/beside" + ci, "/token/file" + agent, "/token/link" + ci}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
