package mount

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// checkpointed takes a named checkpoint.
func checkpointed(t testing.TB, ws *workspace.Workspace, name string) {
	t.Helper()
	if _, err := ws.Checkpoint(workspace.CheckpointOptions{Name: name}); err != nil {
		t.Fatal(err)
	}
}

// tryPast tests the checkpoints of a workspace through a mount.
func tryPast(t *testing.T, ws *workspace.Workspace, dir string) {
	t.Helper()
	sh(t, dir, `mkdir d; echo one > d/f; ln d/f hard; ln -s d/f soft; truncate -s 1M sparse; setfattr -n user.tag -v yes d/f
		mkfifo pipe; chmod 600 d/f; touch -d 2001-02-03 d/f`)
	want := sh(t, dir, `stat -c '%n %f %s %u %g %h %Y' d d/f hard soft sparse pipe`)
	checkpointed(t, ws, "first one")
	checkpointed(t, ws, "second")
	sh(t, dir, `echo two > d/f; rm soft pipe; mv d e`)
	const past = ".holt/checkpoints/first\\ one"
	for _, c := range [][2]string{
		{`cd ` + past + `; stat -c '%n %f %s %u %g %h %Y' d d/f hard soft sparse pipe`, want},
		{`ls -A`, "e\nhard\nsparse\n"},
		{`find . -name '*one*'`, ""},
		{`ls .holt; ls -A .holt/checkpoints`, "README.md\ncheckpoints\nfirst one\nsecond\n"},
		{`ls ` + past, "d\nhard\npipe\nsoft\nsparse\n"},
		{`cat ` + past + `/d/f ` + past + `/soft e/f`, "one\none\ntwo\n"},
		{`getfattr --only-values -n user.tag ` + past + `/d/f`, "yes"},
		{`test ` + past + `/d/f -ef ` + past + `/hard; ! test ` + past + `/hard -ef hard; ! test ` + past + `/hard -ef .holt/checkpoints/second/hard`, ""},
		{`cp -a ` + past + `/sparse copy; du copy; cp ` + past + `/d/f g; cat g; rm copy g`, "0\tcopy\none\n"},
		{`test ! -e ` + past + `/missing; test ! -e .holt/other; test ! -e .holt/checkpoints/other`, ""},
	} {
		if got := sh(t, dir, c[0]); got != c[1] {
			t.Errorf("%s: %q, want %q", c[0], got, c[1])
		}
	}
	for _, change := range []string{
		"echo x > P/d/f", "echo x > P/new", "rm P/d/f", "rmdir P/d", "mkdir P/new", "mv P/d/f P/g", "mv e .holt/checkpoints/", "chmod 777 P/d/f",
		"touch P/d/f", "ln -s x P/l", "setfattr -n user.x -v y P/d/f", "rmdir .holt", "mv .holt away", "mv -T e .holt", "truncate -s 0 P/d/f", "ln P/d/f here",
		"fallocate -l 10 P/d/f", "mkfifo P/p",
	} {
		script := strings.ReplaceAll(change, "P", past)
		if out := sh(t, dir, "("+script+") 2>&1 && echo DONE || true"); strings.Contains(out, "DONE") {
			t.Errorf("%s was done", change)
		}
	}
	if out := sh(t, dir, "mkdir .holt 2>&1 || true; echo x > "+past+"/d/f 2>&1 || true"); !strings.Contains(out, "File exists") || !strings.Contains(out, "Read-only file system") {
		t.Errorf("refused with %q", out)
	}
	const erofs, exists = "EROFS ", "EEXIST "
	refused := strings.Repeat(erofs, 7) + "\n" + strings.Repeat(erofs, 6) + "\n" + strings.Repeat(exists, 3) + "\n" +
		strings.Repeat(erofs, 8) + "\n" + strings.Repeat(exists, 8) + "\n"
	if out := sh(t, dir, "P="+past+"; python3 -c '"+renamesThere+"' \"$P\"; ls -A"); out != refused+"e\nhard\nsparse\n" {
		t.Errorf("renames and links: %s", out)
	}
	// It can be opened for writing, because OPEN is not sent; writes fail.
	if out := sh(t, dir, "P="+past+"; python3 -c '"+writesThere+"' \"$P/d/f\"; cat \"$P/d/f\""); out != strings.Repeat("EROFS ", 6)+"one\n" {
		t.Errorf("through a descriptor for writing: %q", out)
	}
	if out := sh(t, dir, "P="+past+"; python3 -c '"+mapsThere+"' \"$P/d/f\"; cat \"$P/d/f\""); out != "EROFS one one one\n" {
		t.Errorf("through a shared mapping: %q", out)
	}
}

// renamesThere renames files of the past and of the present over each other,
// with each flag of renameat2(2), creates links there, and prints the errors.
const renamesThere = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
def move(a, b, flags):
    done = libc.renameat2(-100, a.encode(), -100, b.encode(), flags)
    print("done" if done == 0 else errno.errorcode[ctypes.get_errno()], end=" ")
def tried(fn, *args):
    try:
        fn(*args)
        print("done", end=" ")
    except OSError as e:
        print(errno.errorcode[e.errno], end=" ")
past = sys.argv[1]
top = ".holt/checkpoints"
for a, b in ((".holt", "e"), ("e", ".holt"), (past + "/d", "e"), ("e/f", past + "/d/f"), (top, "e"), (past, top + "/second"), (past + "/d/f", past + "/sparse")):
    move(a, b, EXCHANGE)
print()
for a, b in ((".holt", "away"), (past + "/d", "away"), ("e", past + "/away"), ("e", ".holt/away"), ("e", top + "/away"), (past + "/d", past + "/away")):
    move(a, b, NOREPLACE)
print()
for a, b in (("e", ".holt"), ("e", past + "/d"), ("e", top)):
    move(a, b, NOREPLACE)
print()
for at in (past + "/l", past + "/d/l", top + "/l", ".holt/l"):
    tried(os.link, "e/f", at)
    tried(os.mkdir, at)
print()
for at in (".holt", top, past, past + "/d"):
    tried(os.link, "e/f", at)
    tried(os.mkdir, at)
print()
`

// mapsThere writes to a shared mapping of a file, which the kernel does not
// check: the result is EROFS, and the kernel soon shows the original again,
// also in the mapping.
const mapsThere = `
import errno, mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
m[0:3] = b"two"
try:
    m.flush()
    print("done", end=" ")
except OSError as e:
    print(errno.errorcode[e.errno], end=" ")
end = time.time() + 60
while (os.pread(fd, 3, 0) != b"one" or m[0:3] != b"one") and time.time() < end:
    time.sleep(0.01)
print(os.pread(fd, 3, 0).decode(), m[0:3].decode(), end=" ")
`

// writesThere tries every way to write to a file through a descriptor, and prints the errors.
const writesThere = `
import errno, os, sys
def tried(fn):
    try:
        fn()
        print("done", end=" ")
    except OSError as e:
        print(errno.errorcode[e.errno], end=" ")
fd = os.open(sys.argv[1], os.O_RDWR)
tried(lambda: os.write(fd, b"two"))
tried(lambda: os.pwrite(fd, b"two", 1))
tried(lambda: os.pwritev(fd, [b"two"], 4096))
tried(lambda: os.ftruncate(fd, 1))
tried(lambda: os.posix_fallocate(fd, 0, 8192))
tried(lambda: os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC))
`

// deletePast deletes a checkpoint that a mount has shown.
func deletePast(t *testing.T, ws *workspace.Workspace, dir string) {
	t.Helper()
	inside := filepath.Join(dir, ".holt/checkpoints/first one/d")
	fd, err := unix.Open(inside, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := ws.DeleteCheckpoint(t.Context(), "first one", false); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(inside, &st); err != unix.ENOENT {
		t.Errorf("what is in a deleted checkpoint: %v", err)
	}
	if err := unix.Fstatat(fd, "never looked at", &st, 0); err != unix.ESTALE {
		t.Errorf("in a directory of a deleted checkpoint: %v", err)
	}
	if got := sh(t, dir, "ls .holt/checkpoints"); got != "second\n" {
		t.Errorf("after one was deleted: %q", got)
	}
	checkpointed(t, ws, "third")
	if got := sh(t, dir, "ls .holt/checkpoints; cat .holt/checkpoints/third/e/f"); got != "second\nthird\ntwo\n" {
		t.Errorf("after one was taken: %q", got)
	}
}

func TestPastOnHost(t *testing.T) {
	ws := newWorkspace(t)
	dir := hostMount(t, ws, HostOptions{})
	tryPast(t, ws, dir)
	readOnly := hostMount(t, ws, HostOptions{ReadOnly: true})
	if got := sh(t, readOnly, "cat '.holt/checkpoints/first one/d/f'; ls -A .holt/checkpoints; ls -A"); got != "one\nfirst one\nsecond\ne\nhard\nsparse\n" {
		t.Errorf("read-only: %q", got)
	}
	deletePast(t, ws, dir)
}

func TestPastInGuest(t *testing.T) {
	ws, k := guestWorkspace(t)
	tryPast(t, ws, k.dir)
	deletePast(t, ws, k.dir)
}

// TestExistingHoltName: an existing file named .holt is accessible.
func TestExistingHoltName(t *testing.T) {
	ws := newWorkspace(t)
	checkpointed(t, ws, "first")
	if _, err := ws.Tree().Mkdir(workspace.Caller{}, workspace.Root, ".holt", 0o755); err != nil {
		t.Fatal(err)
	}
	dir := hostMount(t, ws, HostOptions{})
	if got := sh(t, dir, "ls -A; echo x > .holt/file; cat .holt/file; rm -r .holt; ls .holt/checkpoints"); got != ".holt\nx\nfirst\n" {
		t.Errorf("%q", got)
	}
}

// TestPastSurvivesSession: another daemon continues with files that a guest has open.
func TestPastSurvivesSession(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	end := guestSession(t, ws, k, nil)
	pollOnce(t, k.dir)
	sh(t, k.dir, "mkdir d; echo one > d/f; echo other > d/g")
	checkpointed(t, ws, "first")
	sh(t, k.dir, "echo two > d/f")
	d, err := unix.Open(filepath.Join(k.dir, ".holt/checkpoints/first/d"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	end()
	end = guestSession(t, ws, k, nil)
	defer end()
	defer k.unmount()
	defer unix.Close(d)
	f, err := unix.Openat(d, "f", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f)
	buf := make([]byte, 10)
	if n, err := unix.Read(f, buf); err != nil || string(buf[:n]) != "one\n" {
		t.Errorf("%q %v", buf[:max(n, 0)], err)
	}
	if got := readFile(t, filepath.Join(k.dir, "d/f")); got != "two\n" {
		t.Errorf("the present: %q", got)
	}
}

func TestPastNodes(t *testing.T) {
	for _, c := range []struct {
		checkpoint workspace.CheckpointID
		ino        workspace.Ino
	}{{1, 1}, {mostNumber, mostPast}, {7, 1 << 30}} {
		node, err := pastNode(c.checkpoint, c.ino)
		if err != nil || !isPast(node) || node > maxNode {
			t.Errorf("%+v: node %x, %v", c, node, err)
		}
		if checkpoint, ino := cutPast(node); checkpoint != c.checkpoint || ino != c.ino {
			t.Errorf("%+v became %d, %d", c, checkpoint, ino)
		}
	}
	if _, err := pastNode(mostNumber+1, 1); err != syscall.EOVERFLOW {
		t.Error(err)
	}
	if _, err := pastNode(1, mostPast+1); err != syscall.EOVERFLOW {
		t.Error(err)
	}
	if isPast(pollNode) || isPast(mostPast) {
		t.Error("a node of the present is taken for one of the past")
	}
}
