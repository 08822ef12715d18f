package daemon_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holt"
	"holt/internal/daemon"
)

// cat and put use a file from another process: one that waits for its own mount
// cannot be trusted to answer.
func cat(path string) (string, error) {
	b, err := exec.Command("cat", path).Output()
	return string(b), err
}

func put(path, content string) error {
	cmd := exec.Command("tee", path)
	cmd.Stdin = strings.NewReader(content)
	return cmd.Run()
}

// TestHostMount: a workspace is used from the host and by a computer, and
// never written by both.
func TestHostMount(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	ctx, spaces := t.Context(), d.Workspaces()
	if _, err := spaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	at, other := t.TempDir(), t.TempDir()
	m, err := spaces.Mount(ctx, "notes", holt.MountSpec{Dir: at}, "")
	if err != nil || m.Dir != at || m.ReadOnly {
		t.Fatal(m, err)
	}
	if err := put(filepath.Join(at, "f"), "from the host"); err != nil {
		t.Fatal(err)
	}
	_, err = spaces.Mount(ctx, "notes", holt.MountSpec{Dir: other}, "")
	wantCode(t, err, holt.Conflict)
	_, err = spaces.Mount(ctx, "notes", holt.MountSpec{Dir: at}, "")
	wantCode(t, err, holt.AlreadyExists)
	_, err = d.Computers().Create(ctx, holt.ComputerSpec{Name: "curie", Workspace: "notes"}, "")
	wantCode(t, err, holt.Conflict)
	if !strings.Contains(holt.AsError(err).Hint, "holt workspace unmount "+at) {
		t.Error(holt.AsError(err).Hint)
	}
	wantCode(t, spaces.Delete(ctx, "notes", ""), holt.Conflict)
	if w, err := spaces.Get(ctx, "notes"); err != nil || len(w.Mounts) != 1 || w.Computer != "" || w.Files != 3 {
		t.Errorf("%+v %v", w, err)
	}
	if err := spaces.Unmount(ctx, at, ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, spaces.Unmount(ctx, at, ""), holt.NotFound)

	create(t, d, holt.ComputerSpec{Name: "curie", Workspace: "notes"})
	if out := succeeds(t, d, "curie", "cat f; echo more >> f; cat f"); out != "from the hostfrom the hostmore\n" {
		t.Errorf("%q", out)
	}
	_, err = spaces.Mount(ctx, "notes", holt.MountSpec{Dir: at}, "")
	wantCode(t, err, holt.Conflict)
	if _, err := spaces.Mount(ctx, "notes", holt.MountSpec{Dir: at, ReadOnly: true}, ""); err != nil {
		t.Fatal(err)
	}
	if b, err := cat(filepath.Join(at, "f")); err != nil || b != "from the hostmore\n" {
		t.Errorf("%q %v", b, err)
	}
	succeeds(t, d, "curie", "echo new > g")
	if b, err := cat(filepath.Join(at, "g")); err != nil || b != "new\n" {
		t.Errorf("%q %v", b, err)
	}
	if err := put(filepath.Join(at, "h"), ""); err == nil {
		t.Error("a read-only mount was written to")
	}
	// The workspace was there before the computer and stays.
	if err := spaces.Unmount(ctx, at, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Computers().Delete(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if w, err := spaces.Get(ctx, "notes"); err != nil || w.Computer != "" {
		t.Errorf("%+v %v", w, err)
	}
	if err := spaces.Delete(ctx, "notes", ""); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
}

func TestBadMounts(t *testing.T) {
	dir := home(t)
	d := up(t, config(t, dir))
	ctx, spaces := t.Context(), d.Workspaces()
	if _, err := spaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	file := filepath.Join(full, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"relative", "", full, file, full + "/nothing", dir, dir + "/images", "/"} {
		_, err := spaces.Mount(ctx, "notes", holt.MountSpec{Dir: bad}, "")
		wantCode(t, err, holt.InvalidArgument)
	}
	_, err := spaces.Mount(ctx, "nothing", holt.MountSpec{Dir: t.TempDir()}, "")
	wantCode(t, err, holt.NotFound)
	wantCode(t, spaces.Unmount(ctx, "relative", ""), holt.InvalidArgument)
	wantCode(t, spaces.Unmount(ctx, full, ""), holt.NotFound)
	at := t.TempDir()
	if _, err := spaces.Mount(ctx, "notes", holt.MountSpec{Dir: at}, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(at, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := spaces.Create(ctx, holt.WorkspaceSpec{Name: "nested"}, ""); err != nil {
		t.Fatal(err)
	}
	_, err = spaces.Mount(ctx, "nested", holt.MountSpec{Dir: filepath.Join(at, "sub")}, "")
	wantCode(t, err, holt.InvalidArgument)
	if err := spaces.Unmount(ctx, at, ""); err != nil {
		t.Error(err)
	}
}

// TestMountsComeBack: host mounts outlive the daemon, killed or ended, until
// they are unmounted. What a program asks meanwhile waits for the next daemon.
func TestMountsComeBack(t *testing.T) {
	dir := home(t)
	at := t.TempDir()
	ctx := t.Context()
	p := spawn(t, dir, "")
	if _, err := p.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Workspaces.Mount(ctx, "notes", holt.MountSpec{Dir: at}, ""); err != nil {
		t.Fatal(err)
	}
	if err := put(filepath.Join(at, "f"), "kept"); err != nil {
		t.Fatal(err)
	}
	p.kill()
	program := exec.Command("tee", filepath.Join(at, "g")) // begins while no daemon is there
	program.Stdin = strings.NewReader("waited")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if dirs, err := daemon.MountsOf(dir); err != nil || !slices.Equal(dirs, []string{at}) {
		t.Errorf("the next daemon mounts %q again: %v", dirs, err)
	}
	p = spawn(t, dir, "")
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
	if b, err := cat(filepath.Join(at, "g")); err != nil || b != "waited" {
		t.Errorf("what a program wrote while no daemon was there: %q %v", b, err)
	}
	if b, err := cat(filepath.Join(at, "f")); err != nil || b != "kept" {
		t.Errorf("after the restart: %q %v", b, err)
	}
	// Someone else unmounts: that is noticed, and for good.
	if err := syscall.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	// A machine of another package's test that began meanwhile has it mounted until it ends.
	within(t, "the unmount to be noticed", func() bool {
		w, err := p.Workspaces.Get(ctx, "notes")
		if err != nil {
			t.Fatal(err)
		}
		return len(w.Mounts) == 0
	})
	if _, err := p.Workspaces.Mount(ctx, "notes", holt.MountSpec{Dir: at, ReadOnly: true}, ""); err != nil {
		t.Fatal(err)
	}
	p.kill()
	p = spawn(t, dir, "")
	if w, err := p.Workspaces.Get(ctx, "notes"); err != nil || len(w.Mounts) != 1 || !w.Mounts[0].ReadOnly {
		t.Errorf("%+v %v", w, err)
	}
	// A keeper that hands nothing over: the mount is made again.
	p.kill()
	t.Cleanup(func() { syscall.Unmount(at, syscall.MNT_DETACH) })
	sockets, err := filepath.Glob(filepath.Join(dir, "mounts", "*"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets of keepers: %q, %v", sockets, err)
	}
	if err := os.Remove(sockets[0]); err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := mute.Accept(); err == nil {
			c.Close()
		}
	}()
	p = spawn(t, dir, "")
	mute.(*net.UnixListener).SetUnlinkOnClose(false)
	mute.Close()
	if w, err := p.Workspaces.Get(ctx, "notes"); err != nil || len(w.Mounts) != 1 {
		t.Fatalf("without its keeper: %+v %v", w, err)
	}
	if b, err := cat(filepath.Join(at, "f")); err != nil || b != "kept" {
		t.Errorf("without its keeper: %q %v", b, err)
	}
	report, err := p.Daemon.Down(ctx, holt.DownSpec{}, "")
	if err != nil || len(report.Unmounted) != 1 {
		t.Errorf("%+v %v", report, err)
	}
	if err := p.wait(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(at); err != nil || len(entries) != 0 {
		t.Errorf("after down: %v %v", entries, err)
	}
	p = spawn(t, dir, "")
	if w, err := p.Workspaces.Get(ctx, "notes"); err != nil || len(w.Mounts) != 0 {
		t.Errorf("down is for good: %+v %v", w, err)
	}
	endAll(t, p)
}
