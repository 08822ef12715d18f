package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// A file put over an existing one keeps its inode, owner, mode, attributes and
// links, and its bind mounts show the new content.
func TestPutKeepsFile(t *testing.T) {
	c := startGuest(t).client(t)
	ctx, dir := t.Context(), t.TempDir()
	path := dir + "/app.conf"
	sh(t, c, "echo an old line, and a long one > "+path+" && chown 0:7 "+path+" && chmod 6750 "+path+" && ln "+path+" "+dir+"/other && ln -s app.conf "+dir+"/link")
	sh(t, c, "touch "+dir+"/mounted && mount --bind "+path+" "+dir+"/mounted")
	tagged := unix.Setxattr(path, "user.tag", []byte("yes"), 0) == nil
	if err := unix.Setxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0); err != nil {
		t.Fatal(err)
	}
	look := func() string { return sh(t, c, "stat -c '%i %u:%g %a %h' "+path) }
	before := look()
	for i, spec := range []holt.WriteSpec{{}, {NewMode: 0o777}, {}} {
		content := strings.Repeat("x", []int{5, 100, 0}[i])
		if err := c.WriteFile(ctx, dir+[]string{"/app.conf", "/link", "/mounted"}[i], spec, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if after := look(); after != before {
			t.Errorf("%+v: it is %q, and was %q", spec, after, before)
		}
		if got := sh(t, c, "cd "+dir+" && cat app.conf && cat other && cat mounted"); got != content+content+content {
			t.Errorf("content %q", got)
		}
	}
	var value [32]byte
	if n, err := unix.Getxattr(path, "user.tag", value[:]); tagged && (err != nil || string(value[:n]) != "yes") {
		t.Errorf("tag %q, %v", value[:max(n, 0)], err)
	}
	if n, err := unix.Getxattr(path, "security.capability", value[:]); err != nil || n != 20 {
		t.Errorf("capabilities of %d bytes, %v", n, err)
	}
	if err := c.WriteFile(ctx, path, holt.WriteSpec{Mode: 0o4711, User: "agent"}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(look()); got[0] != strings.Fields(before)[0] || got[1] != "1000:1000" || got[2] != "4711" {
		t.Errorf("with a mode and an owner it is %v, and was %s", got, before)
	}
	if left := sh(t, c, "ls -A "+dir); left != "app.conf\nlink\nmounted\nother\n" {
		t.Errorf("left behind: %s", left)
	}
}

// A new file gets the owner of its directory and the mode of its source less
// the umask, unless they are given.
func TestPutOwnerOfNew(t *testing.T) {
	c := startGuest(t).client(t)
	ctx, dir := t.Context(), t.TempDir()
	sh(t, c, "cd "+dir+" && chmod 755 . && mkdir theirs shared all && chown 12:34 theirs && chown 12:34 shared && chmod 2775 shared && chmod 1777 all")
	for _, one := range []struct {
		name string
		spec holt.WriteSpec
		want string // owner and mode
		dir  string // of a directory, with User
	}{
		{"a", holt.WriteSpec{}, "0:0 644", "0:0 755"},
		{"b", holt.WriteSpec{NewMode: 0o777}, "0:0 755", "0:0 755"},
		{"c", holt.WriteSpec{NewMode: 0o600}, "0:0 600", "0:0 755"},
		{"d", holt.WriteSpec{Mode: 0o666, NewMode: 0o600, User: "agent"}, "1000:1000 666", "1000:1000 755"},
		{"theirs/a", holt.WriteSpec{}, "12:34 644", "12:34 755"},
		{"theirs/b", holt.WriteSpec{User: "root"}, "0:0 644", "0:0 755"},
		{"shared/a", holt.WriteSpec{User: "agent"}, "1000:34 644", "1000:34 2755"},
		{"all/a", holt.WriteSpec{}, "1000:1000 644", "1000:1000 755"},
	} {
		path := dir + "/" + one.name
		if err := c.WriteFile(ctx, path, one.spec, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, c, "stat -c '%u:%g %a' "+path); got != one.want+"\n" {
			t.Errorf("%s with %+v: %s, want %s", one.name, one.spec, got, one.want)
		}
		if err := c.Mkdir(ctx, path+".d/e", 0, one.spec.User, true); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, c, "stat -c '%u:%g %a' "+path+".d/e"); got != one.dir+"\n" {
			t.Errorf("%s.d: %s, want %s", one.name, got, one.dir)
		}
		if err := c.Symlink(ctx, path+".l", "x", one.spec.User); err != nil {
			t.Fatal(err)
		}
		if got, want := sh(t, c, "stat -c '%u:%g' "+path+".l"), strings.Fields(one.dir)[0]; got != want+"\n" {
			t.Errorf("%s.l: %s, want %s", one.name, got, want)
		}
	}
}

// If the inode cannot be kept, owner, mode and attributes are; a target that is
// not a regular file is refused.
func TestPutSupplants(t *testing.T) {
	c := startGuest(t).client(t)
	ctx, dir := t.Context(), t.TempDir()
	sh(t, c, "mkfifo "+dir+"/pipe && cp $(command -v sleep) "+dir+"/tool && chown 12:34 "+dir+"/tool && chmod 750 "+dir+"/tool")
	running := exec.Command(dir+"/tool", "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { running.Process.Kill(); running.Wait() }()
	if err := c.WriteFile(ctx, dir+"/tool", holt.WriteSpec{}, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, c, "cd "+dir+" && cat tool && stat -c ' %u:%g %a' tool"); got != "new 12:34 750\n" {
		t.Errorf("a program that runs: %q", got)
	}
	// A disk with room for only one copy of the content.
	sh(t, c, "mkdir -p /home/small && mount -t tmpfs -o size=1m,mode=755 tmpfs /home/small && echo old > /home/small/f && chown 12:34 /home/small/f && chmod 600 /home/small/f")
	if err := c.WriteFile(ctx, "/home/small/f", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 700<<10))); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, c, "stat -c '%u:%g %a %s' /home/small/f; ls -A /home/small"); got != "12:34 600 716800\nf\n" {
		t.Errorf("on a disk that is nearly full: %q", got)
	}
	err := c.WriteFile(ctx, "/home/small/f", holt.WriteSpec{}, strings.NewReader(strings.Repeat("y", 700<<10)))
	wantCode(t, "write to a full disk", err, holt.OutOfSpace)
	if got := sh(t, c, "tr -d x < /home/small/f; ls -A /home/small"); got != "f\n" {
		t.Errorf("after a full disk: %q", got)
	}
	err = c.WriteFile(ctx, dir+"/pipe", holt.WriteSpec{}, strings.NewReader("x"))
	wantCode(t, "write to a pipe", err, holt.InvalidArgument)
}

// Holes stay holes, in a new file and in one that had data there.
func TestPutHoles(t *testing.T) {
	c := startGuest(t).client(t)
	ctx, path := t.Context(), t.TempDir()+"/sparse"
	const size = 64<<20 + 5
	for _, old := range []string{"", "head -c 70000000 /dev/urandom > "} {
		if old != "" {
			sh(t, c, old+path)
		}
		r := io.MultiReader(strings.NewReader("begin"), io.LimitReader(zeros{}, 32<<20), strings.NewReader("middle"), io.LimitReader(zeros{}, size-11-32<<20))
		if err := c.WriteFile(ctx, path, holt.WriteSpec{}, r); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Size != size || st.Blocks*512 > 128<<10 {
			t.Errorf("%d bytes take %d, %v", st.Size, st.Blocks*512, err)
		}
		want := make([]byte, size)
		copy(want, "begin")
		copy(want[5+32<<20:], "middle")
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the content is %d other bytes, %v", len(got), err)
		}
	}
}

// Concurrent puts of a file leave the content of one.
func TestConcurrentPut(t *testing.T) {
	c := startGuest(t).client(t)
	path := t.TempDir() + "/f"
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for i := range 4 {
		go func() {
			done <- c.WriteFile(t.Context(), path, holt.WriteSpec{}, strings.NewReader(strings.Repeat(fmt.Sprint(i), (i+1)<<20)))
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || len(got) == 0 || len(got) != int(got[0]-'0'+1)<<20 || len(bytes.Trim(got, string(got[0]))) != 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
