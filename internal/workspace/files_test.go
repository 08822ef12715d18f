package workspace

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"holt"
)

// TestWriteThroughLinks writes what symbolic links lead to, as open(2) does: the
// links stay, and nothing outside of the workspace is written.
func TestWriteThroughLinks(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c}
	link := func(name, target string) {
		t.Helper()
		_, err := files.Symlink(name, target)
		f.ok(err)
	}
	write := func(path string) error {
		_, err := files.Write(t.Context(), path, holt.WriteSpec{}, strings.NewReader("by "+path))
		return err
	}
	read := func(path string) string {
		t.Helper()
		var b strings.Builder
		f.ok(files.Read(t.Context(), path, 0, -1, &b))
		return b.String()
	}
	_, err := files.Mkdir("/d/e", 0, true)
	f.ok(err)
	f.put("c", "old")
	link("/b", "c")
	link("/a", "b")
	link("/home", Home+"/d/up") // by the path that a computer has it at, through a directory, and back
	link("/d/up", "../a")
	link("/dir", "d/e")
	link("/d/e/new", "../../dir/made") // what it names is not there yet
	for path, target := range map[string]string{"/a": "/c", "/home": "/c", "/dir/new": "/d/e/made"} {
		f.ok(write(path))
		if got := read(target); got != "by "+path {
			t.Errorf("%s has %q", target, got)
		}
	}
	for i := range mostFollowed {
		link(fmt.Sprint("/n", i+1), fmt.Sprint("n", i))
	}
	f.ok(write(fmt.Sprint("/n", mostFollowed)))
	if got := read("/n0"); got != fmt.Sprint("by /n", mostFollowed) {
		t.Errorf("at the end of %d links is %q", mostFollowed, got)
	}
	link("/long", fmt.Sprint("n", mostFollowed))
	link("/x", "y")
	link("/y", "x")
	link("/out", "../etc")
	link("/away", "/etc/passwd")
	link("/through", "away")
	for path, why := range map[string]string{"/long": syscall.ELOOP.Error(), "/x": syscall.ELOOP.Error(),
		"/out": ErrEscapes.Error(), "/away": ErrEscapes.Error(), "/through": ErrEscapes.Error()} {
		if err := write(path); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/a", "/b", "/home", "/d/up", "/d/e/new", "/n1", "/long", "/x", "/out", "/away", "/through"} {
		if info, err := files.Stat(path); err != nil || info.Kind != "symlink" {
			t.Errorf("%s is a %s now: %v", path, info.Kind, err)
		}
	}
	f.check()
}

// TestWriteCutOff: what a caller that went away had sent replaces nothing, wherever it was cut:
// HTTP says of it what [io.ReadFull] says of a short rest.
func TestWriteCutOff(t *testing.T) {
	f := newFixture(t, Options{})
	files := Files{Tree: f.t, Caller: f.c}
	f.put("kept", "old")
	for _, n := range []int{0, 13, chunk - 1, chunk, chunk + 1, 2 * chunk} {
		r := io.MultiReader(strings.NewReader(strings.Repeat("x", n)), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := files.Write(t.Context(), "/kept", holt.WriteSpec{}, r); holt.CodeOf(err) != holt.Unavailable {
			t.Errorf("cut after %d: %v", n, err)
		}
		if got := f.get("kept"); got != "old" || len(f.list("")) != 1 {
			t.Fatalf("cut after %d: %.20q is left of %q", n, got, f.list(""))
		}
		whole := strings.Repeat("y", n)
		_, err := files.Write(t.Context(), "/whole", holt.WriteSpec{}, iotest.HalfReader(strings.NewReader(whole)))
		f.ok(err)
		if f.get("whole") != whole {
			t.Errorf("%d bytes are not what was written", n)
		}
		f.ok(f.unlink("whole"))
	}
	f.check()
}
