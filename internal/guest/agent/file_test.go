package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

func TestFiles(t *testing.T) {
	c := startGuest(t).client(t)
	ctx := t.Context()
	dir := t.TempDir() // the guest's root is ours
	path := filepath.Join(dir, "a", "b", "file")
	if err := c.Mkdir(ctx, filepath.Dir(path), 0o750, "agent", true); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 100000)
	if err := c.WriteFile(ctx, path, holt.WriteSpec{Mode: 0o4751, User: "agent"}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	info, err := c.Stat(ctx, path)
	want := holt.FileInfo{Path: holt.OSString(path), Name: "file", Kind: "file", Size: int64(len(data)), Mode: 0o4751, UID: 1000, GID: 1000, ModTime: info.ModTime}
	if err != nil || info != want || info.ModTime.IsZero() {
		t.Errorf("stat %+v, %v; want %+v", info, err, want)
	}
	for _, r := range [][2]int64{{0, -1}, {0, 0}, {5, 10}, {int64(len(data)) - 3, 100}, {int64(len(data)) + 3, 1}} {
		var got bytes.Buffer
		n, err := c.ReadFile(ctx, path, r[0], r[1], &got)
		wantData := data[min(r[0], int64(len(data))):]
		if r[1] >= 0 {
			wantData = wantData[:min(r[1], int64(len(wantData)))]
		}
		if err != nil || n != int64(got.Len()) || !bytes.Equal(got.Bytes(), wantData) {
			t.Errorf("read %v: %d bytes, %v; want %d", r, n, err, len(wantData))
		}
	}
	if err := os.Symlink("file", filepath.Join(filepath.Dir(path), "link")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(path), "link")
	if err := c.WriteFile(ctx, link, holt.WriteSpec{}, strings.NewReader("through the link")); err != nil {
		t.Fatal(err)
	}
	if info, err = c.Stat(ctx, link); err != nil || info.Kind != "symlink" || info.Target != "file" {
		t.Errorf("link %+v, %v", info, err)
	}
	var got bytes.Buffer
	if _, err := c.ReadFile(ctx, path, 0, -1, &got); err != nil || got.String() != "through the link" {
		t.Errorf("read %q, %v", got.String(), err)
	}
	if err := c.Rename(ctx, path, link); err != nil {
		t.Error(err)
	}
	var names []string
	err = c.List(ctx, filepath.Dir(path), 0, 100, func(f holt.FileInfo, _ int64) error { names = append(names, string(f.Name)); return nil })
	if err != nil || !slices.Equal(names, []string{"link"}) {
		t.Errorf("list %v, %v", names, err)
	}
	wantCode(t, "remove a full directory", c.Remove(ctx, filepath.Join(dir, "a"), false), holt.Conflict)
	if err := c.Remove(ctx, filepath.Join(dir, "a"), true); err != nil {
		t.Error(err)
	}
	_, err = c.Stat(ctx, filepath.Join(dir, "a"))
	wantCode(t, "stat what is removed", err, holt.NotFound)
}

// Writes follow up to 40 symbolic links, also to a missing file, and keep the links.
func TestWriteThroughLinks(t *testing.T) {
	c := startGuest(t).client(t)
	ctx, dir := t.Context(), t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string) error {
		return c.WriteFile(ctx, dir+"/"+name, holt.WriteSpec{}, strings.NewReader("by "+name))
	}
	must(os.MkdirAll(dir+"/far/deep", 0o755))
	must(os.WriteFile(dir+"/script", nil, 0o755))
	must(unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	links := map[string]string{
		"a": "b", "b": "script", "absolute": dir + "/made", "up": "dir/../made", "dir": "far/deep", "far/new": "../dir/new", // dir/.. is far
		"x": "y", "y": "x", "nowhere": "no/such", "to-dir": "far/", "masked": "null",
	}
	for i := range mostFollowed + 1 {
		links[fmt.Sprint("n", i+1)] = fmt.Sprint("n", i)
	}
	for link, target := range links {
		must(os.Symlink(target, dir+"/"+link))
	}
	for _, one := range [][2]string{{"a", "script"}, {"absolute", "made"}, {"up", "far/made"}, {"far/new", "far/deep/new"}, {fmt.Sprint("n", mostFollowed), "n0"}} {
		must(write(one[0]))
		if got, err := os.ReadFile(dir + "/" + one[1]); err != nil || string(got) != "by "+one[0] {
			t.Errorf("%s has %q, %v", one[1], got, err)
		}
	}
	for file, mode := range map[string]os.FileMode{"script": 0o755, "made": 0o644} {
		if info, err := os.Stat(dir + "/" + file); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
	for name, code := range map[string]holt.Code{fmt.Sprint("n", mostFollowed+1): holt.InvalidArgument, "x": holt.InvalidArgument, "to-dir": holt.InvalidArgument, "masked": holt.InvalidArgument, "nowhere": holt.NotFound} {
		err := write(name)
		wantCode(t, name, err, code)
		if code == holt.InvalidArgument && name != "to-dir" && name != "masked" && !strings.Contains(err.Error(), "too many levels of symbolic links") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(dir + "/null"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the device is %v now: %v", info, err)
	}
	for link, target := range links {
		if got, err := os.Readlink(dir + "/" + link); err != nil || got != target {
			t.Errorf("%s leads to %q now, not %q: %v", link, got, target, err)
		}
	}
	if left, err := filepath.Glob(dir + "/.holt-*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestFileErrors(t *testing.T) {
	c := startGuest(t).client(t)
	ctx := t.Context()
	dir := t.TempDir()
	write := func(path, user string) error {
		return c.WriteFile(ctx, path, holt.WriteSpec{User: user}, strings.NewReader("x"))
	}
	_, err := c.ReadFile(ctx, dir+"/none", 0, -1, io.Discard)
	wantCode(t, "read nothing", err, holt.NotFound)
	_, err = c.ReadFile(ctx, dir, 0, -1, io.Discard)
	wantCode(t, "read a directory", err, holt.InvalidArgument)
	wantCode(t, "write over a directory", write(dir, ""), holt.InvalidArgument)
	wantCode(t, "write nowhere", write(dir+"/no/such", ""), holt.NotFound)
	wantCode(t, "write for nobody", write(dir+"/x", "no-such-user"), holt.NotFound)
	wantCode(t, "write relative", write("x", ""), holt.InvalidArgument)
	wantCode(t, "long name", write(dir+"/"+strings.Repeat("x", 300), ""), holt.InvalidArgument)
	wantCode(t, "list a file", c.List(ctx, "/etc/passwd", 0, 100, nil), holt.InvalidArgument)
	wantCode(t, "mkdir again", c.Mkdir(ctx, dir, 0, "", false), holt.AlreadyExists)
	wantCode(t, "remove nothing", c.Remove(ctx, dir+"/none", false), holt.NotFound)
	wantCode(t, "remove everything", c.Remove(ctx, "/..", true), holt.InvalidArgument)
	wantCode(t, "rename nothing", c.Rename(ctx, dir+"/none", dir+"/x"), holt.NotFound)
	_, err = c.Ready(ctx, nil, 0)
	wantCode(t, "a host that is ready", err, holt.Unsupported)
	if _, err := c.Configure(ctx, Identity{Hostname: "einstein"}); err != nil {
		t.Error(err)
	}
	if h, _ := os.Hostname(); h == "einstein" || strings.TrimSpace(sh(t, c, "hostname")) != "einstein" {
		t.Error("host name is not the guest's own")
	}
	_, err = c.Configure(ctx, Identity{Hostname: "a b\nc"})
	wantCode(t, "host name", err, holt.InvalidArgument)
	_, err = c.Configure(ctx, Identity{MachineID: "../../etc/passwd"})
	wantCode(t, "machine id", err, holt.InvalidArgument)

	mine := errors.New("mine")
	_, err = c.ReadFile(ctx, "/etc/passwd", 0, -1, failing{mine})
	if err != mine {
		t.Errorf("read with a failing writer: %v", err)
	}
	if err := c.WriteFile(ctx, dir+"/x", holt.WriteSpec{}, failing{mine}); err != mine {
		t.Errorf("write with a failing reader: %v", err)
	}
	// A disk that becomes full while the host is sending.
	sh(t, c, "mkdir -p /home/small && mount -t tmpfs -o size=1m tmpfs /home/small")
	err = c.WriteFile(ctx, "/home/small/big", holt.WriteSpec{}, strings.NewReader(strings.Repeat("x", 8<<20)))
	wantCode(t, "write to a full disk", err, holt.OutOfSpace)
	if out := sh(t, c, "ls -A /home/small; ls -A "+dir); out != "" {
		t.Errorf("left behind: %s", out)
	}
}

func TestSymlink(t *testing.T) {
	c := startGuest(t).client(t).For("1f")
	ctx, dir := t.Context(), t.TempDir()
	link := dir + "/li\xffnk"
	for _, target := range []string{"elsewhere\xff", strings.Repeat("x", 4095), "/etc/passwd"} {
		if err := c.Symlink(ctx, link, target, "agent"); err != nil {
			t.Fatal(err)
		}
		if info, err := c.Stat(ctx, link); err != nil || info.Kind != "symlink" || string(info.Target) != target || info.UID != 1000 {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for what, err := range map[string]error{
		"empty":       c.Symlink(ctx, link, "", ""),
		"too long":    c.Symlink(ctx, link, strings.Repeat("x", 4096), ""),
		"zero byte":   c.Symlink(ctx, link, "a\x00b", ""),
		"relative":    c.Symlink(ctx, "link", "x", ""),
		"a directory": c.Symlink(ctx, dir, "x", ""),
		"no mark":     c.For("../x").Symlink(ctx, link, "x", ""),
	} {
		wantCode(t, what, err, holt.InvalidArgument)
	}
	wantCode(t, "nowhere", c.Symlink(ctx, dir+"/no/link", "x", ""), holt.NotFound)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWatch(t *testing.T) {
	c := startGuest(t).client(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	steps := []struct {
		do   func() error
		want FileEvent
	}{
		{func() error { return os.Mkdir(dir+"/d", 0o755) }, FileEvent{Kind: FileCreated, Path: dir + "/d", Dir: true}},
		{func() error { return os.WriteFile(dir+"/d/f", []byte("x"), 0o644) }, FileEvent{Kind: FileWritten, Path: dir + "/d/f"}},
		{func() error { return os.Chmod(dir+"/d/f", 0o600) }, FileEvent{Kind: FileChanged, Path: dir + "/d/f"}},
		{func() error { return os.Rename(dir+"/d/f", dir+"/g") }, FileEvent{Kind: FileRenamed, Path: dir + "/g", From: dir + "/d/f"}},
		{func() error { return os.Rename(dir+"/d", dir+"/e") }, FileEvent{Kind: FileRenamed, Path: dir + "/e", From: dir + "/d", Dir: true}},
		{func() error { return os.WriteFile(dir+"/e/h", nil, 0o644) }, FileEvent{Kind: FileWritten, Path: dir + "/e/h"}},
		{func() error { return os.Remove(dir + "/e/h") }, FileEvent{Kind: FileRemoved, Path: dir + "/e/h"}},
	}
	step := -1
	next := func() {
		if step++; step < len(steps) {
			if err := steps[step].do(); err != nil {
				t.Error(err)
			}
		}
	}
	done := errors.New("done")
	err := c.Watch(ctx, dir, true, next, func(e FileEvent) error {
		if e == steps[step].want {
			if next(); step == len(steps) {
				return done
			}
		}
		return nil
	})
	if err != done {
		t.Errorf("watch ended with %v at step %d: %v did not come", err, step, steps[min(step, len(steps)-1)].want)
	}
	err = c.Watch(ctx, dir, false, func() { os.RemoveAll(dir) }, func(FileEvent) error { return nil })
	wantCode(t, "watch of what is removed", err, holt.NotFound)
	wantCode(t, "watch of nothing", c.Watch(ctx, dir, false, nil, nil), holt.NotFound)
}

func TestDialPort(t *testing.T) {
	c := startGuest(t).client(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				all, _ := io.ReadAll(conn) // until the half-close
				conn.Write(all)
			}()
		}
	}()
	data := bytes.Repeat([]byte("0123456789abcdef"), 50000)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			conn, err := c.DialPort(t.Context(), "unix", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.Write(data)
			conn.(interface{ CloseWrite() error }).CloseWrite()
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
				t.Errorf("echo of %d bytes, %v", len(got), err)
			}
		})
	}
	wg.Wait()

	// When the host closes the stream, the connection in the guest ends, even while it is sending.
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	ended := make(chan error)
	go func() {
		conn, err := tcp.Accept()
		if err == nil {
			_, err = io.Copy(conn, zeros{})
		}
		ended <- err
	}()
	conn, err := c.DialPort(t.Context(), "tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.ReadFull(conn, make([]byte, 100000))
	conn.Close() // at once, since nothing that was written has to arrive: see TestPortLingers
	if err := <-ended; err == nil {
		t.Error("the guest's end goes on")
	}
	_, err = c.DialPort(t.Context(), "tcp", "127.0.0.1:1") // the port of a moment ago may be another's now
	wantCode(t, "dial where nobody listens", err, holt.NotFound)
	_, err = c.DialPort(t.Context(), "udp", "127.0.0.1:1")
	wantCode(t, "dial udp", err, holt.InvalidArgument)
}

func TestMeasure(t *testing.T) {
	c := startGuest(t).client(t)
	r, err := c.Measure(t.Context(), 32<<20, 32<<20)
	if err != nil || r.IntoGuest <= 0 || r.OutOfGuest <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	t.Logf("over a unix socket: %+v", r)
}

func TestHostsFile(t *testing.T) {
	id := Identity{Hostname: "curie", Hosts: []HostEntry{{"10.0.2.2", []string{"holt.internal"}}}}
	first := hostsFile("127.0.0.1 localhost\n", id)
	want := "127.0.0.1 localhost\n# begin holt\n127.0.1.1 curie\n10.0.2.2 holt.internal\n# end holt\n"
	if first != want {
		t.Errorf("got %q, want %q", first, want)
	}
	given := Identity{Hostname: "curie", Hosts: []HostEntry{{"127.0.1.1", []string{"curie.local", "curie"}}}}
	if got := hostsFile("", given); got != "# begin holt\n127.0.1.1 curie.local curie\n# end holt\n" {
		t.Errorf("given %q", got)
	}
	if again := hostsFile(first+"1.2.3.4 x\n", Identity{Hosts: id.Hosts}); again != "127.0.0.1 localhost\n1.2.3.4 x\n# begin holt\n127.0.1.1 curie\n10.0.2.2 holt.internal\n# end holt\n" {
		t.Errorf("again %q", again)
	}
}

func TestNetArgument(t *testing.T) {
	n, err := parseNet("10.0.2.15/24,10.0.2.2,10.0.2.3")
	if err != nil || n.address.String() != "10.0.2.15/24" || n.gateway.String() != "10.0.2.2" || n.nameserver.String() != "10.0.2.3" {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{"", "10.0.2.15/24", "10.0.2.15,10.0.2.2,10.0.2.3", "10.0.2.15/24,x,10.0.2.3", "10.0.2.15/24,10.0.2.2,"} {
		if _, err := parseNet(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A clock is not set back by less than the delay of the host's message, because
// new files would then be in the future.
func TestClockIsNotSetBack(t *testing.T) {
	told := time.Now()
	for ahead, want := range map[time.Duration]bool{-time.Hour: false, -time.Millisecond: false, 0: true, 30 * time.Millisecond: true,
		499 * time.Millisecond: true, 500 * time.Millisecond: false, 24 * time.Hour: false} {
		if clockStands(told.Add(ahead), told) != want {
			t.Errorf("%v ahead: stands %v, want %v", ahead, !want, want)
		}
	}
}
