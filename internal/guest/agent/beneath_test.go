package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// beneathWorld returns a directory to be confined to, with links of all kinds, and one outside.
func beneathWorld(t *testing.T) (c *Client, in context.Context, top, outside string) {
	t.Helper()
	c = startGuest(t).client(t)
	dir := t.TempDir()
	top, outside = filepath.Join(dir, "home"), filepath.Join(dir, "outside")
	for _, d := range []string{filepath.Join(top, "dir", "deep"), filepath.Join(outside, "dir")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(outside, "file"), filepath.Join(outside, "dir", "file"), filepath.Join(top, "file")} {
		if err := os.WriteFile(f, []byte("as it was"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"out": outside, "up": "../outside", "dots": "dir/../../outside", "far": "up", "like": top + "-not", "tofile": "../outside/file", "loop": "loop",
		"in": "dir", "whole": top + "/dir", "round": "dir/deep/../../dir", "self": top, "inner": "file",
	} {
		if err := os.Symlink(target, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c, holt.Beneath(t.Context(), top), top, outside
}

// TestBeneath: for a confined caller no symbolic link leads out of the
// directory, and links within it work.
func TestBeneath(t *testing.T) {
	c, in, top, outside := beneathWorld(t)
	type op struct {
		name string
		do   func(path string) error
	}
	ops := []op{
		{"write", func(p string) error { return c.WriteFile(in, p+"/new", holt.WriteSpec{}, strings.NewReader("x")) }},
		{"mkdir", func(p string) error { return c.Mkdir(in, p+"/newdir", 0, "", false) }},
		{"mkdir with parents", func(p string) error { return c.Mkdir(in, p+"/a/b/c", 0, "", true) }},
		{"symlink", func(p string) error { return c.Symlink(in, p+"/newlink", "x", "") }},
		{"stat", func(p string) error { _, err := c.Stat(in, p+"/new"); return err }},
		{"rename from", func(p string) error { return c.Rename(in, p+"/new", top+"/moved") }},
		{"rename to", func(p string) error { return c.Rename(in, top+"/moved", p+"/new") }},
		{"remove", func(p string) error { return c.Remove(in, p+"/new", false) }},
		{"remove all", func(p string) error { return c.Remove(in, p+"/a", true) }},
	}
	for _, name := range []string{"dir", "in", "whole", "round", "self"} {
		for _, o := range ops {
			if err := o.do(top + "/" + name); err != nil {
				t.Errorf("%s by %s: %v", o.name, name, err)
			}
		}
		if _, err := os.Lstat(top + "/" + name + "/newlink"); err != nil {
			t.Error(err)
		}
		for _, left := range []string{"newlink", "newdir"} {
			if err := c.Remove(in, top+"/"+name+"/"+left, false); err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range []string{"out", "up", "dots", "far", "like", "out/dir", "..", "../outside", "dir/../../outside", "loop"} {
		for _, o := range ops {
			if o.name == "rename to" {
				if err := os.WriteFile(top+"/moved", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.do(top + "/" + name); holt.CodeOf(err) != holt.InvalidArgument {
				t.Errorf("%s by %s: %v", o.name, name, err)
			}
		}
	}
	for _, path := range []string{"/etc/holt-test", outside + "/file", "relative", top, top + "-not/x"} {
		if err := c.WriteFile(in, path, holt.WriteSpec{}, strings.NewReader("x")); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := c.WriteFile(in, top+"/tofile", holt.WriteSpec{}, strings.NewReader("x")); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), errEscapes.Error()) {
		t.Errorf("by a link to a file: %v", err)
	}
	if err := c.WriteFile(in, top+"/inner", holt.WriteSpec{}, strings.NewReader("through it")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(top + "/file"); err != nil || string(got) != "through it" {
		t.Errorf("%q %v", got, err)
	}
	if err := c.Mkdir(in, top, 0, "", true); err != nil {
		t.Errorf("the directory itself, which is there: %v", err)
	}
	if err := c.Remove(in, top, true); err == nil {
		t.Error("the directory itself was removed")
	}
	asItWas(t, outside)
}

// asItWas returns an error if anything outside has changed.
func asItWas(t *testing.T, outside string) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(outside, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var b []byte
			b, err = os.ReadFile(p)
			found = append(found, strings.TrimPrefix(p, outside)+" "+string(b))
		} else {
			found = append(found, strings.TrimPrefix(p, outside))
		}
		return err
	})
	if want := " /dir /dir/file as it was /file as it was"; err != nil || strings.Join(found, " ") != want {
		t.Errorf("outside is now %q: %v", found, err)
	}
}

// TestBeneathWhileLinksChange: the same holds if a directory is replaced by a
// link at the same time.
func TestBeneathWhileLinksChange(t *testing.T) {
	c, in, top, outside := beneathWorld(t)
	if err := os.Symlink(outside, top+"/trap"); err != nil {
		t.Fatal(err)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, top+"/dir", unix.AT_FDCWD, top+"/trap", unix.RENAME_EXCHANGE)
			}
		}
	}()
	worked := 0
	for i := range 300 {
		name := fmt.Sprint(top, "/dir/n", i)
		for _, err := range []error{
			c.WriteFile(in, name, holt.WriteSpec{}, strings.NewReader("x")), c.Mkdir(in, name+"d/e", 0, "", true), c.Symlink(in, name+"l", "x", ""), c.Rename(in, name, name+"r"), c.Remove(in, name+"d", true),
		} {
			if err == nil {
				worked++
			}
		}
	}
	close(done)
	<-ended
	if worked == 0 {
		t.Error("nothing worked")
	}
	asItWas(t, outside)
}
