package local_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/local"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
)

// startAgent starts a machine with the real guest agent and connects to it.
func startAgent(t *testing.T) (machine.Machine, *agent.Client) {
	t.Helper()
	e := local.New(local.Options{Guest: machinetest.Agent(t)})
	m, err := e.Start(t.Context(), machine.Spec{Dir: t.TempDir(), CPUs: 1, MemoryMB: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return m, control(t, m)
}

// TestAgent kills a machine during runs: none of their processes may stay.
func TestAgent(t *testing.T) {
	m, client := startAgent(t)
	h, err := client.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", h)

	marker := fmt.Sprint("31", time.Now().UnixNano()) // an argument that nobody else has
	id := holt.NewRunID()
	if _, err := client.StartRun(t.Context(), id, holt.RunSpec{
		Command: holt.OSString("(setsid sleep " + marker + " &) ; echo $$; sleep " + marker), User: "root", Cwd: "/",
	}); err != nil {
		t.Fatal(err)
	}
	until(t, "the run", func() bool { return living(t, marker) == 2 })
	t.Logf("cgroups: %v", cgroups(t, id))
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if n := living(t, marker); n != 0 {
		t.Errorf("%d processes of the run live on", n)
	}
	if left := cgroups(t, id); len(left) != 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

// Writes of a guest outside its workspace are invisible on the host and lost with the machine.
func TestRootWritesAreDiscarded(t *testing.T) {
	m, client := startAgent(t)
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(m *agent.Client, command string) string {
		t.Helper()
		id := holt.NewRunID()
		if _, err := m.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(command), User: "root", Cwd: "/"}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := m.FollowRun(t.Context(), id, 0, func(e holt.RunEvent) error { out.Write(e.Data); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	marks := []string{filepath.Join(dir, "mark"), "/root/" + filepath.Base(m.Console()) + fmt.Sprint(os.Getpid()), fmt.Sprintf("/run/holt-mark-%d", os.Getpid())}
	for _, mark := range marks {
		if got := run(client, fmt.Sprintf("echo guest >%s; cat %s", mark, mark)); got != "guest\n" {
			t.Fatalf("%s: %q", mark, got)
		}
		if _, err := os.Stat(mark); err == nil {
			os.Remove(mark)
			t.Errorf("the guest wrote %s on the host", mark)
		}
	}
	if got := run(client, fmt.Sprintf("cat %s; echo guest >%s; cat %s", kept, kept, kept)); got != "hostguest\n" {
		t.Errorf("%q", got)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "host" {
		t.Errorf("the host's file holds %q, %v", b, err)
	}
	if got := run(client, "ls -A /root | grep -v holt-mark | grep -v "+filepath.Base(m.Console())); got != "" {
		t.Errorf("root has the host's files, whose profile a login shell reads: %q", got)
	}
	if got := run(client, "grep -c /.host /proc/self/mounts; ls /dev/fuse"); got != "0\n/dev/fuse\n" {
		t.Errorf("mounts of the host are in the guest: %q", got)
	}
}

func control(t *testing.T, m machine.Machine) *agent.Client {
	t.Helper()
	conn, err := m.Dial(t.Context(), machine.PortControl)
	if err != nil {
		t.Fatal(err)
	}
	session, err := channel.Dial(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	client, err := agent.NewClient(session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !yes(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// living counts the sleep processes with the marker.
func living(t *testing.T, marker string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range lines {
		if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, []byte("sleep\x00"+marker+"\x00")) {
			n++
		}
	}
	return n
}

// cgroups returns the cgroups of a run.
func cgroups(t *testing.T, id holt.RunID) []string {
	t.Helper()
	var found []string
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dirs, err := filepath.Glob(filepath.Join(mount, "holt-local-*", string(id)))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}
