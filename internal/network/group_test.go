package network

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/cgroup"
	"holt/internal/engine/machine"
)

// TestGroup: a network is in the control group of its machine, and the group is removed after both have ended.
func TestGroup(t *testing.T) {
	groups, err := cgroup.Open()
	if err != nil {
		t.Fatalf("this test needs root and control groups: %v", err)
	}
	f, n := newFake(t), networks(t)
	n.opt.Groups = groups
	if err := groups.Put(f.dir, f.process.Pid, cgroup.Limits{CPUs: 1, MemoryBytes: 256 << 20, Processes: 100}); err != nil {
		t.Fatal(err)
	}
	of := groups.Groups(f.dir, f.process.Pid)
	if err := n.Write(t.Context(), f.dir, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
		t.Fatal(err)
	}
	l := n.Join(f.dir, false, func(context.Context) {})
	f.joined()
	ready(t, l)
	if got := groups.Groups(f.dir, f.pid()); len(got) == 0 || len(got) != len(of) {
		t.Errorf("the network is in %v, its machine in %v", got, of)
	}
	f.process.Kill()
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
	for _, dir := range of {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

const (
	lying      = "lie-about-network" // as whom this program is then one that a guest has taken over
	victimFile = "victim.json"       // whom it says that it is
)

// lie takes the lock and the control socket of a network, and reports the id of another process.
func lie(dir string) error {
	d, err := machine.OpenDir(dir)
	if err != nil {
		return err
	}
	var is status
	record, err := d.ReadRecord()
	if err == nil {
		is.Machine, err = record.Process, readJSON(d, victimFile, &is.Process)
	}
	if err != nil {
		return err
	}
	control, err := net.FileListener(os.NewFile(fdControl, controlSocket))
	if err != nil {
		return err
	}
	return http.Serve(control, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(is) }))
}

// TestLies: a network that reports the id of another process is replaced, and that process is not moved into the
// machine's control group.
func TestLies(t *testing.T) {
	groups, err := cgroup.Open()
	if err != nil {
		t.Fatalf("this test needs root and control groups: %v", err)
	}
	f, n, taken := newFake(t), networks(t), networks(t)
	n.opt.Groups, taken.opt.Apart = groups, false
	taken.opt.Command = []string{"/proc/self/exe", lying}
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { victim.Process.Kill(); victim.Wait() })
	p, err := machine.Identify(victim.Process.Pid)
	if err == nil {
		err = replace(f.dir, victimFile, p)
	}
	if err == nil {
		err = groups.Put(f.dir, f.process.Pid, cgroup.Limits{CPUs: 1, MemoryBytes: 256 << 20, Processes: 100})
	}
	if err == nil {
		err = n.Write(t.Context(), f.dir, holt.NetworkPolicy{Egress: holt.EgressOpen})
	}
	if err != nil {
		t.Fatal(err)
	}
	l := taken.Join(f.dir, false, func(context.Context) {})
	ready(t, l)
	l.Release()
	impostor := f.pid()
	l = n.Join(f.dir, true, func(context.Context) {})
	f.joined()
	ready(t, l)
	if now := f.pid(); now == impostor {
		t.Error("the lying network still runs")
	}
	if in := groups.Groups(f.dir, victim.Process.Pid); len(in) > 0 {
		t.Errorf("the named process is in %v", in)
	}
	if err := victim.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the named process: %v", err)
	}
	f.process.Kill()
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
}
