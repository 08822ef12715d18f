package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestReaddirWhileRenaming reads a directory and renames or replaces each entry: the reading ends.
func TestReaddirWhileRenaming(t *testing.T) { onBoth(t, readdirWhileRenaming) }

func readdirWhileRenaming(t *testing.T, _ *workspace.Workspace, dir string) {
	const count = 700
	for name, c := range map[string]struct {
		change func(path string) error
		most   int // times that an entry may be seen
	}{
		"away and back": {func(path string) error {
			return errors.Join(os.Rename(path, dir+"/temporary"), os.Rename(dir+"/temporary", path))
		}, 1},
		"to another name": {func(path string) error { return os.Rename(path, path+"x") }, 1},
		"replaced": {func(path string) error {
			return errors.Join(unix.Mknod(dir+"/temporary", unix.S_IFREG|0o644, 0), os.Rename(dir+"/temporary", path))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			sub := filepath.Join(dir, "0")
			sh(t, dir, fmt.Sprintf("rm -rf 0; mkdir 0; cd 0; seq 0 %d | xargs touch", count-1))
			seen := map[string]int{}
			readNames(t, sub, func(name string) {
				if seen[name]++; seen[name] > c.most {
					t.Fatalf("%s is seen %d times", name, seen[name])
				}
				if err := c.change(filepath.Join(sub, name)); err != nil {
					t.Fatal(err)
				}
			})
			for i := range count {
				if n := fmt.Sprint(i); seen[n] == 0 {
					t.Errorf("%s is not seen", n)
				}
			}
		})
	}
}

// TestReaddirSeesReplaced: a name that is replaced before the reader reaches it is seen.
func TestReaddirSeesReplaced(t *testing.T) { onBoth(t, readdirSeesReplaced) }

func readdirSeesReplaced(t *testing.T, _ *workspace.Workspace, dir string) {
	const count = 700
	sh(t, dir, fmt.Sprintf("mkdir sub; cd sub; seq 0 %d | xargs touch; touch ../new", count-1))
	seen := map[string]int{}
	readNames(t, filepath.Join(dir, "sub"), func(name string) {
		if len(seen) == 0 {
			if err := os.Rename(dir+"/new", fmt.Sprintf("%s/sub/%d", dir, count-1)); err != nil {
				t.Fatal(err)
			}
		}
		seen[name]++
	})
	if len(seen) != count {
		t.Errorf("%d of %d names are seen", len(seen), count)
	}
}

// readNames calls fn for the names of a directory as they are read.
func readNames(t *testing.T, dir string, fn func(name string)) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		fn(names[0])
	}
}
