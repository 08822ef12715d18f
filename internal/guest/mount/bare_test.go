package mount

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBareServesGit(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	m, err := Bare(t.Context(), dir, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	repo := filepath.Join(dir, "repo")
	sh(t, dir, `git init -q repo && cd repo && git config user.email a@b && git config user.name n &&
		for i in $(seq 50); do echo $i > f$i; done && git add . && git commit -qm first && git fsck --strict`)
	if _, err := os.Stat(filepath.Join(repo, ".git", "HEAD")); err != nil {
		t.Error(err)
	}
}
