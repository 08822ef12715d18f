package computer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

func TestDiffInventories(t *testing.T) {
	a := holt.Inventory{
		Packages:  []holt.Package{{Name: "jq", Version: "1"}, {Name: "less", Version: "1"}, {Name: "same", Version: "1"}},
		Processes: []holt.Process{{PID: 1, Start: 1, Command: "init"}, {PID: 7, Start: 70, Command: "old"}, {PID: 8, Start: 80, Command: "before"}},
		Ports:     []holt.Port{{Protocol: "tcp", Address: "::", Port: 22}, {Protocol: "tcp", Address: "::", Port: 80, Process: "a"}},
		Omitted:   1,
	}
	b := holt.Inventory{
		Packages:  []holt.Package{{Name: "same", Version: "1"}, {Name: "jq", Version: "2"}, {Name: "new", Version: "3"}},
		Processes: []holt.Process{{PID: 1, Start: 1, Command: "init"}, {PID: 7, Start: 71, Command: "old"}, {PID: 8, Start: 80, Command: "after"}},
		Ports:     []holt.Port{{Protocol: "udp", Address: "::", Port: 22}, {Protocol: "tcp", Address: "::", Port: 80, Process: "b"}},
		Omitted:   2,
	}
	var got holt.ComputerDiff
	diffInventories(&got, a, b)
	want := holt.ComputerDiff{
		Packages:  holt.PackageDiff{Changes: []holt.PackageChange{{Name: "jq", Before: "1", After: "2"}, {Name: "less", Before: "1"}, {Name: "new", After: "3"}}},
		Processes: holt.ProcessesDiff{Gone: a.Processes[1:], Came: b.Processes[1:], Same: 1},
		Ports:     holt.PortsDiff{Gone: a.Ports[:1], Came: b.Ports[:1], Same: 1},
		Omitted:   3,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var many holt.Inventory
	for i := range mostDifferent + 5 {
		many.Ports = append(many.Ports, holt.Port{Port: i})
	}
	got = holt.ComputerDiff{}
	diffInventories(&got, holt.Inventory{}, many)
	if len(got.Ports.Came) != mostDifferent || got.Ports.Omitted != 5 || got.Processes.Gone == nil {
		t.Errorf("%d listed, %d omitted", len(got.Ports.Came), got.Ports.Omitted)
	}
}
