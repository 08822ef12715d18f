package mount

import (
	"context"
	"testing"

	"holt/internal/workspace"
)

// trySeeds tests a new workspace through a mount.
func trySeeds(t *testing.T, ws *workspace.Workspace, dir string) {
	t.Helper()
	try := func(script, want string) {
		t.Helper()
		if got := sh(t, dir, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	checkpointed(t, ws, "new")
	try("ls -A; find . -mindepth 1; ls -A .holt/checkpoints/new; tar cf - . | tar t", "./\n")
	try("cat .profile .bashrc .holt/checkpoints/new/.bashrc; test -w .bashrc; head -n 1 .holt/README.md; ls .holt; wc -c < .holt/README.md > n; rm n",
		"profile\nbashrc\nbashrc\n# This file system\nREADME.md\ncheckpoints\n")
	try("(echo x > .holt/README.md; rm .holt/README.md; cp .holt/README.md .holt/x) 2>/dev/null || true; cp .holt/README.md x; cmp x .holt/README.md; rm -f x; ls -A", "")
	// The first change makes the file listed, in the directory that the kernel has cached.
	try("ls -A; echo more >> .bashrc; ls -A; cat .bashrc", ".bashrc\nbashrc\nmore\n")
	if _, err := ws.Restore(context.Background(), workspace.Caller{}, "new", workspace.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	try("ls -A; cat .bashrc", "bashrc\n")
	try("ls -A; touch .profile; ls -A; mv .bashrc other; ls -A; mv other .bashrc; ls -A", ".profile\n.profile\nother\n.bashrc\n.profile\n")
	try("rm .profile .bashrc; ls -A; test ! -e .bashrc; echo mine > .bashrc; ls -A; cat .bashrc", ".bashrc\nmine\n")
}

// seeded adds start-up files to a workspace, and announces changes to a mount.
func seeded(t *testing.T, ws *workspace.Workspace, n *Notifier) {
	t.Helper()
	err := ws.Seed(workspace.Caller{UID: 1000, GID: 1000}, map[string][]byte{".profile": []byte("profile\n"), ".bashrc": []byte("bashrc\n")})
	if err != nil {
		t.Fatal(err)
	}
	tell(t, ws, n)
}

func TestSeedsOnHost(t *testing.T) {
	ws, n := newWorkspace(t), &Notifier{}
	seeded(t, ws, n)
	trySeeds(t, ws, hostMount(t, ws, HostOptions{Notifier: n}))
}

func TestSeedsInGuest(t *testing.T) {
	ws, n := newWorkspace(t), &Notifier{}
	seeded(t, ws, n)
	k := newKernel(t)
	serveGuest(t, ws, k, GuestOptions{Notifier: n})
	trySeeds(t, ws, k.dir)
}
