package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"holt"
)

const status = `Package: jq
Status: install ok installed
Architecture: amd64
Version: 1.6-2.1
Description: x
 Package: not this
 .

Package: gone
Status: deinstall ok config-files
Version: 1

Package: last
Status: install ok installed
Version: 2:3-4`

func TestInstalled(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	got, err := parseStatus(strings.NewReader(strings.Replace(status, "Description: x", "Description: "+long+"\nConffiles:\n "+long, 1)))
	want := []holt.Package{{Name: "jq", Arch: "amd64", Version: "1.6-2.1"}, {Name: "last", Version: "2:3-4"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if none, err := installed("/no/such/file"); err != nil || none != nil {
		t.Error(none, err)
	}
}

func FuzzInstalled(f *testing.F) {
	f.Add(status)
	f.Add("Package: a\nStatus: x installed")
	f.Fuzz(func(t *testing.T, s string) {
		all, err := parseStatus(strings.NewReader(s))
		if err != nil || len(all) > len(s) {
			t.Error(len(all), err)
		}
	})
}

func TestSocketAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:0016": "[::1]:22",
		"0000000000000000FFFF00000100007F:0050": "[::ffff:127.0.0.1]:80",
	} {
		if got, ok := socketAddress(in); !ok || got.String() != want {
			t.Errorf("%s: %v %v, want %s", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "0100007F", "01:1", "zz00007F:1F90", "0100007F:1F90F", "0100007F0100007F:1"} {
		if got, ok := socketAddress(in); ok {
			t.Errorf("%q is %v", in, got)
		}
	}
}

// TestInventory: a guest's processes and listening ports.
func TestInventory(t *testing.T) {
	c := startGuest(t).client(t)
	id := holt.NewRunID()
	listen := `python3 -u -c 'import socket, time; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1]); time.sleep(1000)'`
	if _, err := c.StartRun(t.Context(), id, holt.RunSpec{Command: holt.OSString(listen)}); err != nil {
		t.Fatal(err)
	}
	port := 0
	err := c.FollowRun(t.Context(), id, 0, func(e holt.RunEvent) error {
		if err := json.Unmarshal(e.Data, &port); err != nil {
			return err
		}
		return os.ErrClosed
	})
	if port == 0 {
		t.Fatal(err)
	}
	inv, err := c.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, p := range inv.Ports {
		if p.Port == port && p.Protocol == "tcp" && p.Address == "127.0.0.1" {
			pid = p.PID
		}
	}
	found := false
	for _, p := range inv.Processes {
		found = found || p.PID == pid && p.User != "" && strings.HasPrefix(string(p.Command), "python3 -u -c import socket") && p.Start > 0 && p.PPID > 0
	}
	if inv.RootFiles != nil || inv.NoFiles == "" {
		t.Errorf("its host's files are listed: %+v", inv.RootFiles)
	}
	if !found || inv.Omitted != 0 {
		t.Errorf("who listens at %d (pid %d) is not among %+v", port, pid, inv.Processes)
	}
	if err := c.SignalRun(t.Context(), id, "KILL"); err != nil {
		t.Fatal(err)
	}
}

// TestHostileInventory: a guest's inventory is bounded, counted and sanitised.
func TestHostileInventory(t *testing.T) {
	var inv told
	for range holt.MostListed + 7 {
		inv.add(item{Package: &holt.Package{Name: "x"}})
	}
	inv.add(item{})
	inv.add(item{Port: &holt.Port{Protocol: "t\x1b[2Jcp", Port: 1 << 40, PID: -4}})
	inv.add(item{Process: &holt.Process{PID: -1, User: strings.Repeat("u", 9000), Command: holt.OSString(strings.Repeat("c", 9000))}})
	for _, f := range []rootFile{{Path: "etc"}, {Path: "/etc/../x"}, {Path: "/etc/"}, {Path: "/a\x00"}, {Path: holt.OSString("/" + strings.Repeat("p", 5000))}, {}, {Path: "/", Size: -1}} {
		inv.add(item{File: &f})
	}
	for range holt.MostListed + 1 {
		inv.add(item{File: &rootFile{Path: "/opt/x", Mode: 1<<31 | unix.S_IFDIR, MTime: -1 << 63, Unread: true}})
	}
	for _, f := range []rootFile{{Path: "/opt/x", Unread: true}, {Path: holt.OSString("/" + strings.Repeat("p", maxName+1))}} {
		if _, ok := f.vet(); ok {
			t.Errorf("%.20s is one", f.Path)
		}
	}
	var long told
	for range 3 << 10 {
		long.add(item{File: &rootFile{Path: holt.OSString("/" + strings.Repeat("p/", 500) + "p")}})
	}
	if n := len(long.RootFiles); n == 0 || n > mostNames/1000 || long.Omitted != 3<<10-n {
		t.Errorf("%d long names, %d omitted", n, long.Omitted)
	}
	inv.add(item{NoFiles: "\x1b" + strings.Repeat("y", 9000)})
	if len(inv.Packages) != holt.MostListed || len(inv.RootFiles) != holt.MostListed || len(inv.Unread) != holt.MostListed || inv.Omitted != 7+7+1 {
		t.Errorf("%d packages, %d files and %d omitted", len(inv.Packages), len(inv.RootFiles), inv.Omitted)
	}
	if strings.Contains(inv.NoFiles, "\x1b") || len(inv.NoFiles) > maxSentence+2 {
		t.Errorf("%d %.9q", len(inv.NoFiles), inv.NoFiles)
	}
	if _, err := json.Marshal(inv.Inventory); err != nil {
		t.Error(err)
	}
	if p := inv.Ports[0]; strings.Contains(p.Protocol, "\x1b") || p.Port > 65535 || p.PID != 0 {
		t.Errorf("%+v", p)
	}
	if p := inv.Processes[0]; p.PID != 0 || len(p.User) > maxWord || len(p.Command) != maxCommand {
		t.Errorf("%d %d %d", p.PID, len(p.User), len(p.Command))
	}
}

// FuzzInventory: any inventory of a guest can be stored, read and compared.
func FuzzInventory(f *testing.F) {
	f.Add([]byte(`[{"package":{"name":"jq","version":"1"}},{"process":{"pid":1}},{"port":{"port":22}}]`))
	f.Add([]byte(`[{"file":{"path":"/etc/x\n","mode":33188,"size":3,"mtime":1764000000000000001}},{"file":{"path":"\"/caf\\351\"","mode":16877,"unread":true}},{"no_files":"none"}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame bytes.Buffer
		if writeAnswer(&frame, json.RawMessage(b), nil) != nil {
			return
		}
		var inv told
		readList(&frame, mostInventory, inv.add)
		kept, err := json.Marshal(inv.Inventory)
		if err != nil {
			t.Fatal(err)
		}
		var again holt.Inventory
		if err := json.Unmarshal(kept, &again); err != nil || cmp.Diff(inv.RootFiles, again.RootFiles) != "" || len(again.Unread) > len(again.RootFiles) {
			t.Fatalf("%v %s", err, kept)
		}
		for _, file := range inv.RootFiles {
			if p := string(file.Path); p[0] != '/' || len(p) > maxRootPath || path.Clean(p) != p {
				t.Fatalf("%q", p)
			}
		}
	})
}
