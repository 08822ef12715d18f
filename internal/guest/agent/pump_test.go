package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/channel"
)

// until waits for a condition on the file system.
func (f *testFS) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		done := ok()
		f.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func workspaceGuest(t *testing.T) (*guest, *Client) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatalf("%v: modprobe fuse", err)
	}
	g := startGuest(t, "--files-socket", "files.sock")
	return g, g.client(t)
}

func TestWorkspace(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := serveFS(t, g.dial(t, "files.sock"), newTestFS())
	<-fs.begun
	id, began := holt.NewRunID(), fileTime()
	line := "head -c 5000000 /dev/zero | tr '\\0' x > big && echo hello > small && cat small && sha256sum < big"
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(line)}); err != nil {
		t.Fatal(err)
	}
	r := follow(t, c, id, 0)
	if !strings.HasPrefix(r.stdout, "hello\n") || r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
	if h, err := c.Hello(t.Context()); err != nil || h.Workspace != Served {
		t.Errorf("hello %+v, %v", h, err)
	}
	fs.until(t, "write of big", func() bool { return len(fs.files[fs.names["big"]].data) == 5000000 })
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.tags["big"] != "run/"+string(id) || fs.tags["small"] != "run/"+string(id) {
		t.Errorf("tags %v, want run/%s", fs.tags, id)
	}
	for number, n := range fs.seen {
		if n != 1 {
			t.Errorf("request %d came %d times", number, n)
		}
	}
	for number, at := range fs.times {
		if now := fileTime(); at[0] < began || at[0] > now {
			t.Errorf("request %d was made at %d on a clock that went from %d to %d", number, at[0], began, now)
		}
	}
	if h := fs.hellos[0]; !h.Fresh || h.Version != channel.FrameVersion {
		t.Errorf("hello %+v", h)
	}
}

// Every sync reaches the host, with any arguments; a failure of the system's sync is returned.
func TestSync(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := serveFS(t, g.dial(t, "files.sock"), newTestFS())
	<-fs.begun
	command := filepath.Join(t.TempDir(), syncCommand)
	if err := os.Symlink(program, command); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(command), 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, c, "echo x > /home/agent/file")
	const fsyncdir = 30
	for i, args := range []string{"", "-f /etc/passwd", "-f /home/agent/file", "/home/agent/file", "-d /etc/passwd"} {
		sh(t, c, fmt.Sprintf("for i in $(seq 10); do %s %s || exit; done", command, args))
		if n := fs.counts()[fsyncdir]; n != 10*(i+1) {
			t.Errorf("after 10 × sync %s the host has heard of %d", args, n)
		}
	}
	if r := runToEnd(t, c, holt.RunSpec{Argv: []string{command, "none"}, User: "root"}); r.ExitCode != 1 || !strings.Contains(r.stderr, "none") {
		t.Errorf("%+v", r)
	}
}

// A program in the workspace is read through the agent that starts it, which must not deadlock.
func TestProgramInWorkspace(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := serveFS(t, g.dial(t, "files.sock"), newTestFS())
	<-fs.begun
	sh(t, c, "cp /bin/echo /home/agent/prog; printf '#!/home/agent/prog script\n' > /home/agent/script")
	for range 20 {
		if r := runToEnd(t, c, holt.RunSpec{Argv: []string{"./prog", "hello"}}); r.stdout != "hello\n" {
			t.Fatalf("%+v", r)
		}
		if r := runToEnd(t, c, holt.RunSpec{Argv: []string{"./script"}}); !strings.HasPrefix(r.stdout, "script ") {
			t.Fatalf("%+v", r)
		}
	}
}

// The host is killed while a process waits for it. The next host gets the
// request again, and the process continues.
func TestHostDiesDuringRequest(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := newTestFS()
	const write = 16
	fs.hold = func(op uint32) bool { return op == write }
	first := g.dial(t, "files.sock")
	serveFS(t, first, fs)
	<-fs.begun
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "echo kept > file; cat file"}); err != nil {
		t.Fatal(err)
	}
	fs.until(t, "write", func() bool { return fs.ops[write] == 1 })
	first.Close()
	// Without a host, requests wait in the kernel and in the agent.
	other := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), other, holt.RunSpec{Command: "ls /home/agent/none", Cwd: "/"}); err != nil {
		t.Fatal(err)
	}
	fs.mu.Lock()
	fs.hold = func(uint32) bool { return false }
	fs.mu.Unlock()
	serveFS(t, g.dial(t, "files.sock"), fs)
	if r := follow(t, c, id, 0); r.stdout != "kept\n" {
		t.Errorf("%+v", r)
	}
	if r := follow(t, c, other, 0); r.ExitCode == 0 {
		t.Errorf("%+v", r)
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.hellos) != 2 || fs.hellos[0].Mount != fs.hellos[1].Mount || fs.hellos[1].Fresh {
		t.Errorf("hellos %+v", fs.hellos)
	}
	if fs.ops[opcodeInit] != 1 {
		t.Errorf("INIT came %d times", fs.ops[opcodeInit])
	}
	again := 0
	for _, n := range fs.seen {
		again += n - 1
	}
	if again != 1 {
		t.Errorf("%d requests were repeated, want the one write", again)
	}
	for number, at := range fs.times {
		if at[0] != at[len(at)-1] {
			t.Errorf("request %d was repeated as of %d; it was made at %d", number, at[1], at[0])
		}
	}
}

// Many hosts, one after the other, while the guest works.
func TestManyHosts(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := newTestFS()
	conn := g.dial(t, "files.sock")
	serveFS(t, conn, fs)
	<-fs.begun
	id := holt.NewRunID()
	line := `for i in $(seq 300); do echo "$i" > "f$i"; [ "$(cat "f$i")" = "$i" ] || echo wrong; done; echo end`
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(line)}); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		fs.until(t, "progress", func() bool { return len(fs.names) > 30*i })
		conn.Close()
		conn = g.dial(t, "files.sock")
		serveFS(t, conn, fs)
	}
	if r := follow(t, c, id, 0); r.stdout != "end\n" || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	fs.until(t, "ack", func() bool { return fs.ack > 300 })
}

// A host that does not know the mount gets a new one.
func TestUnknownMount(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := newTestFS()
	fs.accept = func(h channel.Hello) [16]byte {
		if len(fs.hellos) == 1 {
			return [16]byte{1}
		}
		return h.Mount
	}
	serveFS(t, g.dial(t, "files.sock"), fs)
	<-fs.begun
	if r := runToEnd(t, c, holt.RunSpec{Command: "echo x > f; cat f"}); r.stdout != "x\n" {
		t.Errorf("%+v", r)
	}
	if len(fs.hellos) != 2 || fs.hellos[0].Mount == fs.hellos[1].Mount || !fs.hellos[1].Fresh {
		t.Errorf("hellos %+v", fs.hellos)
	}
}

// If the workspace is unmounted in the guest, it is mounted again.
func TestUnmountedInGuest(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := newTestFS()
	serveFS(t, g.dial(t, "files.sock"), fs)
	<-fs.begun
	sh(t, c, "umount /home/agent; until mountpoint -q /home/agent; do sleep 0.01; done; echo y > /home/agent/f; cat /home/agent/f")
	fs.until(t, "second hello", func() bool { return len(fs.hellos) == 2 })
}

// state opens the shared state of the guest's two processes.
func (g *guest) state(t *testing.T) shared {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if target, _ := os.Readlink(fd); strings.HasPrefix(target, "/memfd:holt-state") {
			f, err := os.OpenFile(fd, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return shared{f}
		}
	}
	t.Fatalf("no shared state among %v", all)
	return shared{}
}

// If a machine that shuts down unmounts the workspace, it stays unmounted.
func TestUnmountedAtShutdown(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := serveFS(t, g.dial(t, "files.sock"), newTestFS())
	<-fs.begun
	g.state(t).setEnding() // as the second process does for a machine with systemd
	sh(t, c, "cd /; umount /home/agent")
	for is := Served; is != Unmounted; {
		h, err := c.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		is = h.Workspace
	}
	if r := runToEnd(t, c, holt.RunSpec{Command: "mountpoint -q /home/agent", Cwd: "/"}); r.ExitCode != 32 && r.ExitCode != 1 {
		t.Errorf("a mount is there: %+v", r)
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.hellos) != 1 {
		t.Errorf("hellos %+v", fs.hellos)
	}
}

// A host that sends invalid frames loses its session only.
func TestHostileFileHost(t *testing.T) {
	g, c := workspaceGuest(t)
	for _, b := range [][]byte{
		{0, 0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 1}, {1, 0, 0, 0, 99}, {5, 0, 0, 0, 17, 1, 2, 3, 4}, {2, 0, 0, 0, 16, 0},
	} {
		conn := g.dial(t, "files.sock")
		conn.Write(b)
		conn.Close()
	}
	fs := newTestFS()
	fs.accept = func(h channel.Hello) [16]byte { return h.Mount }
	conn := g.dial(t, "files.sock")
	w := channel.NewFrameWriter(conn)
	w.Write(channel.FrameNotify, []byte("this is no notification"))
	w.Write(channel.FrameReply, errorReply(12345, 5)) // nobody asked
	serveFS(t, conn, fs)
	<-fs.begun
	if r := runToEnd(t, c, holt.RunSpec{Command: "echo x > f; cat f"}); r.stdout != "x\n" {
		t.Errorf("%+v", r)
	}
}

// When the agent ends on request, it unmounts the workspace.
func TestAgentEnds(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := serveFS(t, g.dial(t, "files.sock"), newTestFS())
	<-fs.begun
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.cmd.Wait()
	<-c.Done()
	if code := g.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("agent ended with %d", code)
	}
	left, _ := filepath.Glob(filepath.Join(g.dir, "*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTags(t *testing.T) {
	run := string(holt.NewRunID())
	files := map[string]string{
		"1/cgroup": "12:cpu:/user\n0::/holt/" + run + "\n", "2/cgroup": "0::/holt/" + run + "/docker/x\n",
		"3/cgroup": "0::/system.slice/cron.service\n", "4/cgroup": "0::/\n", "5/cgroup": "0::/holt/run_../../x\n",
		"6/cgroup": "1:cpu:/\n", "6/environ": "A=b\x00" + runEnv + "=" + run + "\x00",
		"7/cgroup":  "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n",
		"8/environ": runEnv + "=" + strings.Repeat("x", 1000) + "\x00",
		"10/cgroup": "0::/holt-agent\n", "10/comm": "holt:1f\n", "11/cgroup": "0::/\n", "11/comm": "holt:../x\n",
		"12/cgroup": "0::/system.slice/holt.service\n", "12/comm": "holt:1f\n", // an agent that is a process on a host
		"13/cgroup": "0::/holt/" + run + "\n", "13/comm": "holt:1f\n",
		"14/cgroup": "0::/holt/containers/" + strings.Repeat("1c", 32) + "/init\n",
		"15/cgroup": "0::/system.slice/docker-" + strings.Repeat("2d", 32) + ".scope\n",
		"16/cgroup": "0::/holt/" + run + "/" + strings.Repeat("3e", 32) + "\n", // a run's own
	}
	tags := newTagger("holt")
	tags.read = func(pid uint32, file string) ([]byte, error) {
		s, ok := files[fmt.Sprintf("%d/%s", pid, file)]
		if !ok {
			return nil, errors.New("gone")
		}
		return []byte(s), nil
	}
	for pid, want := range []string{"", "run/" + run, "run/" + run, "unit/cron.service", "", "", "run/" + run, "", "", "", "for/1f", "", "for/1f", "run/" + run, "container/1c1c1c1c1c1c", "container/2d2d2d2d2d2d", "run/" + run} {
		if got := tags.Of(uint32(pid)); got != want {
			t.Errorf("pid %d: tag %q, want %q", pid, got, want)
		}
		if _, group, ok := strings.Cut(files[fmt.Sprintf("%d/cgroup", pid)], "0::"); ok {
			if got := TagOf(files[fmt.Sprintf("%d/comm", pid)], strings.TrimSpace(group)); got != want {
				t.Errorf("TagOf thread %d: tag %q, want %q", pid, got, want)
			}
		}
	}
	files["10/comm"] = "holt:2\n"
	if got := tags.Of(10); got != "for/2" {
		t.Errorf("a thread that works for another operation: tag %q", got)
	}
	for pid := range uint32(5 * maxTags) {
		files[fmt.Sprintf("%d/cgroup", pid)] = "0::/system.slice/cron.service\n"
		tags.Of(pid)
	}
	if len(tags.cache) > maxTags {
		t.Errorf("cache of %d", len(tags.cache))
	}
}

// invalEntry returns a notification for which the kernel locks the root directory.
func invalEntry(name string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(fuseOutHeader+16+len(name)+1))
	b = binary.NativeEndian.AppendUint32(b, 3)
	b = binary.NativeEndian.AppendUint64(b, 0)
	b = binary.NativeEndian.AppendUint64(b, 1)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(append(b, name...), 0)
}

// While a process creates a file, the kernel accepts no notification about its
// directory until the host has answered. So the answer must get through behind
// the maximum number of notifications in flight. A host that sends more loses
// its session, and the next one is served.
func TestNotificationsDoNotBlockReplies(t *testing.T) {
	g, c := workspaceGuest(t)
	fs := newTestFS()
	const create = 35
	var held atomic.Bool
	held.Store(true)
	fs.hold = func(op uint32) bool { return op == create && held.Load() }
	first := g.dial(t, "files.sock")
	serveFS(t, first, fs)
	<-fs.begun
	id := holt.NewRunID()
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: "echo made > file; cat file"}); err != nil {
		t.Fatal(err)
	}
	fs.until(t, "create", func() bool { return fs.ops[create] == 1 })
	w := channel.NewFrameWriter(first)
	first.SetWriteDeadline(time.Now().Add(patience))
	for i := range 64 * channel.MaxNotices {
		if err := w.Write(channel.FrameNotify, invalEntry(fmt.Sprint("n", i))); err != nil {
			t.Fatalf("nobody reads the session after %d notifications: %v", i, err)
		}
	}
	first.Close()
	held.Store(false)
	fs.mu.Lock()
	before := fs.taken
	fs.mu.Unlock()
	second := g.dial(t, "files.sock")
	w = channel.NewFrameWriter(second)
	for i := range channel.MaxNotices {
		if err := w.Write(channel.FrameNotify, invalEntry(fmt.Sprint("m", i))); err != nil {
			t.Fatal(err)
		}
	}
	serveFS(t, second, fs)
	if r := follow(t, c, id, 0); r.stdout != "made\n" {
		t.Errorf("%+v", r)
	}
	fs.until(t, "taking", func() bool { return fs.taken >= before+channel.MaxNotices })
}

// Devices and set-id programs work in a workspace, unless the agent's machine is the host itself.
func TestMountPrivileges(t *testing.T) {
	needRoot(t)
	for machine, want := range map[bool]string{true: "rw,noatime", false: "rw,nosuid,nodev,noatime"} {
		dir := filepath.Join(t.TempDir(), "at")
		dev, err := mountFuse(dir, machine)
		if err != nil {
			t.Fatal(err)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		unmountFuse(dir)
		dev.Close()
		if err != nil || !strings.Contains(string(mounts), dir+" fuse.holt "+want+",") {
			t.Errorf("machine %v: not mounted %s: %v", machine, want, err)
		}
	}
}
