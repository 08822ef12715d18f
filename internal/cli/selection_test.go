package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt/internal/store/parcel"
)

// What patterns leave out is what git leaves out by them.
func TestSelection(t *testing.T) {
	root := t.TempDir()
	all := []string{"a.log", "b/a.log", "b/c/d", "b/keep/d", "build/x", "b/build/x", "foo/bar", "b/foo/bar", "x/y/z/w", "sp ", "{a}", "#h", "!n", "q1", ".hid", "deep/f.tmp", "deep/sub/g.tmp", "list/one"}
	for _, name := range all {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		top, deep string // files .holtignore in the top and in deep
		flags     []string
		out       []string
	}{
		{"*.log\n", "", nil, []string{"a.log", "b/a.log"}},
		{"/*.log", "", nil, []string{"a.log"}},
		{"build/\r\n\n# a comment", "", nil, []string{"b/build/x", "build/x"}},
		{"/build", "", nil, []string{"build/x"}},
		{"foo/bar", "", nil, []string{"foo/bar"}}, // a slash inside ties it to the top
		{"**/foo/bar", "", nil, []string{"b/foo/bar", "foo/bar"}},
		{"x/**/w", "", nil, []string{"x/y/z/w"}},
		{"b/**\n!b/keep/**\n", "", nil, []string{"b/a.log", "b/build/x", "b/c/d", "b/foo/bar", "b/keep/d"}}, // b/keep is left out itself
		{"b\n!b/keep\n", "", nil, []string{"b/a.log", "b/build/x", "b/c/d", "b/foo/bar", "b/keep/d"}},       // nothing comes back into what is left out
		{"sp\\ \n{a}\n\\#h\n\\!n\nq[!2-9]\n", "", nil, []string{"!n", "#h", "q1", "sp ", "{a}"}},
		{".h?d\na.log/\n", "", nil, []string{".hid"}},
		{"*.tmp\n", "!f.tmp\n", nil, []string{"deep/sub/g.tmp"}},
		{"", "/f.tmp\n", nil, []string{"deep/f.tmp"}},
		{"*.log\n", "", []string{"!/a.log", "list"}, []string{"b/a.log", "list/one"}},
	} {
		for dir, text := range map[string]string{root: one.top, filepath.Join(root, "deep"): one.deep} {
			if err := os.WriteFile(filepath.Join(dir, ignoreFile), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := selectFrom(root, one.flags)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(one.out)
		if got := left(t, s, root); !slices.Equal(got, one.out) {
			t.Errorf("%q %q %q leave out %q, want %q", one.top, one.deep, one.flags, got, one.out)
		}
	}
	if _, err := selectFrom(root, []string{"[a"}); err == nil {
		t.Error("a pattern without its end was taken")
	}
	if err := os.WriteFile(filepath.Join(root, ignoreFile), []byte("ok\n[a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := selectFrom(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.skip(filepath.Join(root, "q1"), parcel.File); err == nil || !strings.Contains(err.Error(), ignoreFile+":2") {
		t.Errorf("a pattern without its end in a file: %v", err)
	}
}

// left returns the files below a directory that are not sent.
func left(t *testing.T, s *selection, root string) (files []string) {
	t.Helper()
	var walk func(dir string, out bool)
	walk = func(dir string, out bool) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			at := filepath.Join(dir, e.Name())
			skip := out
			if !out {
				if skip, err = s.skip(at, parcel.KindOfFile(e.Type())); err != nil {
					t.Fatal(err)
				}
			}
			if e.IsDir() {
				walk(at, skip)
			} else if rel, _ := filepath.Rel(root, at); skip {
				files = append(files, rel)
			}
		}
	}
	walk(root, false)
	slices.Sort(files)
	return files
}
