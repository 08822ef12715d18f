package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
)

// syncing writes a number to a file again and again, a larger one each time, and says so elsewhere
// once it is synced.
const syncing = `
import _socket, os, sys, time
path, n = sys.argv[2], 0
if os.path.exists(path): n = int(open(path).read())
far = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
far.connect(('10.0.2.2', int(sys.argv[1])))
names = os.open(os.path.dirname(path), os.O_RDONLY)
while True:
    n += 1
    with open(path + '.new', 'w') as f:
        f.write(str(n))
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + '.new', path)
    os.fsync(names)
    far.send(b'%s %d\n' % (path.encode(), n))
    time.sleep(0.02)
`

// syncs is what programs elsewhere have said that they have synced.
type syncs struct {
	port int

	mu   sync.Mutex
	last map[string]int // by file
}

func listenForSyncs(t *testing.T) *syncs {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &syncs{port: l.Addr().(*net.TCPAddr).Port, last: map[string]int{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.hear(c)
		}
	}()
	return s
}

func (s *syncs) hear(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		path, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.last[path] = max(s.last[path], n)
		s.mu.Unlock()
	}
}

func (s *syncs) now() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.last)
}

// TestWreckedInSnapshots ends the daemon at steps of snapshot, fork, pause and resume and then, while
// the guest goes on or stands, the machine: as when the host dies. The computer comes back with all that
// was synced, on its root disk and in its workspace, and nothing is left of what was cut off.
func TestWreckedInSnapshots(t *testing.T) {
	points := []string{"snapshot/ready", "pause/held"}
	if os.Getenv("HOLT_SOAK") != "" {
		points = strings.Fields("snapshot/row snapshot/memory snapshot/held snapshot/ready fork-snapshot/held fork-snapshot/ready fork/machine fork/agent " +
			"pause/memory pause/held pause/ready resume/disk resume/machine resume/run restore/workspace restore/swap restore/go")
	}
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	heard := v.curieThatSyncs()
	for i, point := range points {
		verb, _, _ := strings.Cut(point, "/")
		v.wreckedAt(point, verb, fmt.Sprint("wreck-", i), heard)
	}
	if _, err := v.Computers.Delete(t.Context(), "curie", ""); err != nil {
		t.Error(err)
	}
	v.nothingKept()
	endAll(t, v.process)
	t.Logf("counts: the host died at %d points", len(points))
}

// curieThatSyncs makes a computer that has the program syncing.
func (v *vm) curieThatSyncs() *syncs {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	heard := listenForSyncs(t)
	reach := &holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{fmt.Sprintf("host.holt.internal:%d", heard.port)}}
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 256, Network: reach}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Files.Write(ctx, "curie", "/root/syncing.py", holt.WriteSpec{}, strings.NewReader(syncing)); err != nil {
		t.Fatal(err)
	}
	return heard
}

// syncs begins to sync, on the root disk and in the workspace.
func (v *vm) syncs(heard *syncs) {
	t := v.t
	t.Helper()
	before := heard.now()
	for _, path := range []string{"/root/synced", "/home/agent/synced"} {
		spec := holt.RunSpec{Argv: holt.OSStrings{"python3", "/root/syncing.py", fmt.Sprint(heard.port), path}, User: "root"}
		if _, err := v.Runs.Start(t.Context(), "curie", spec, ""); err != nil {
			t.Fatal(err)
		}
		within(t, "a sync of "+path, func() bool { return heard.now()[path] > before[path] })
	}
}

// synced fails the test unless what was synced is there, and the workspace is as it should be.
func (v *vm) synced(when string, last map[string]int) {
	t := v.t
	t.Helper()
	for path, least := range last {
		if n, err := strconv.Atoi(v.says("curie", "cat "+path)); err != nil || n < least {
			t.Errorf("%s: %s holds %d, and %d was synced; %v", when, path, n, least, err)
		}
	}
	if report, err := v.Workspaces.Check(t.Context(), "curie"); err != nil || len(report.Problems) > 0 {
		t.Errorf("%s: check: %v %v", when, report.Problems, err)
	}
}

// wreckedAt does that at one step.
func (v *vm) wreckedAt(point, verb, key string, heard *syncs) {
	t, ctx := v.t, context.Background()
	t.Helper()
	v.syncs(heard)
	if verb == "restore" {
		if _, err := v.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{Name: "then"}, ""); err != nil {
			t.Fatal(point, err)
		}
	}
	if verb == "resume" {
		if _, err := v.Computers.Pause(ctx, "curie", ""); err != nil {
			t.Fatal(point, err)
		}
	}
	v.kill()
	v.again(point)
	done, caller := make(chan error, 1), connect(t, v.dir)
	go func() { done <- v.act(ctx, caller, verb, key) }()
	v.dies(point)
	time.Sleep(500 * time.Millisecond) // a guest that goes on syncs more
	v.wreck()
	last := heard.now()
	v.again("")
	t.Logf("%s: the repeated call: %v; synced %v", point, <-done, last)
	if verb == "restore" { // it may have gone back
		for path := range last {
			last[path] = 1
		}
	}
	v.synced(point, last)
	v.onlyCurie(point)
}

// onlyCurie deletes what a verb has made.
func (v *vm) onlyCurie(point string) {
	t, ctx := v.t, context.Background()
	t.Helper()
	all, err := v.Computers.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Name == "curie" {
			continue
		}
		v.says(c.Name, "cat /root/synced /home/agent/synced")
		if _, err := v.Computers.Delete(ctx, c.Name, ""); err != nil {
			t.Error(point, err)
		}
	}
	snapshots, err := v.Snapshots.List(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, m := range snapshots {
		if !m.Stopped { // it has memory
			kept++
		}
	}
	entries(t, v.dir, "snapshots", kept)
	for _, m := range snapshots {
		if m.Kind == holt.SnapshotManual {
			if _, err := v.Snapshots.Delete(ctx, string(m.ID), ""); err != nil {
				t.Error(point, err)
			}
		}
	}
}

// machines lists the machines that run, whoever began them.
func (v *vm) machines() []machine.Stray {
	v.t.Helper()
	return strays(v.t, v.dir)
}

// wreck ends all machines, as the end of the host does.
func (v *vm) wreck() {
	v.t.Helper()
	for _, s := range v.machines() {
		if err := s.Kill(); err != nil {
			v.t.Error(err)
		}
	}
}
