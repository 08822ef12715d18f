package computer

import (
	"fmt"
	"testing"
	"time"

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

// TestDiffRootFiles: files of root disks are told apart by what is listed of them, and what
// was not looked at is not said to differ.
func TestDiffRootFiles(t *testing.T) {
	began := time.Unix(1e9, 5).UTC()
	dir := func(p string) holt.FileInfo {
		return holt.FileInfo{Path: holt.OSString(p), Kind: "dir", Mode: 0o755, ModTime: began}
	}
	file := func(p string, size int64) holt.FileInfo {
		return holt.FileInfo{Path: holt.OSString(p), Kind: "file", Mode: 0o644, Size: size, ModTime: began}
	}
	link := func(p, to string) holt.FileInfo {
		return holt.FileInfo{Path: holt.OSString(p), Kind: "symlink", Size: int64(len(to)), Target: holt.OSString(to)}
	}
	later, owned, moded, grown := file("/etc/later", 3), file("/etc/owned", 3), file("/etc/moded", 3), dir("/etc")
	a := holt.Inventory{RootFiles: []holt.FileInfo{
		dir("/"), grown, file("/etc/same", 3), later, owned, moded, file("/etc/longer", 3), link("/etc/link", "a"), link("/etc/kind", "b"),
		dir("/opt"), dir("/opt/gone"), file("/opt/gone/x", 3), dir("/srv"), dir("/srv/heap"), file("/srv/heap/a", 3), file("/srv/heap/both", 3),
	}}
	later.ModTime, owned.GID, moded.Mode, grown.ModTime, grown.Size = began.Add(1), 7, 0o755, began.Add(time.Hour), 1<<20
	b := holt.Inventory{RootFiles: []holt.FileInfo{
		file("/srv/heap/both", 4), file("/srv/heap/b", 3), dir("/srv/heap"), dir("/srv"), dir("/opt"), dir("/opt/new"), file("/opt/new/x\xff\n", 5), file("/etc/kind", 9),
		link("/etc/link", "c"), file("/etc/longer", 4), moded, owned, later, file("/etc/same", 3), grown, dir("/"),
	}, Unread: holt.OSStrings{"/srv/heap"}}
	var got holt.ComputerDiff
	diffRootFiles(&got, a, b)
	want := holt.RootFilesDiff{
		Counts: holt.Counts{Deleted: 3, Created: 4, Changed: 4, Metadata: 2, Bytes: 5 + 9 + 3 + 3 + 4 + 4},
		Changes: []holt.Change{
			{Kind: holt.ChangeDeleted, Path: "/opt/gone/x", Type: "file", SizeBefore: 3},
			{Kind: holt.ChangeDeleted, Path: "/opt/gone", Type: "dir"},
			{Kind: holt.ChangeDeleted, Path: "/etc/kind", Type: "symlink"},
			{Kind: holt.ChangeCreated, Path: "/etc/kind", Type: "file", SizeAfter: 9},
			{Kind: holt.ChangeCreated, Path: "/opt/new", Type: "dir"},
			{Kind: holt.ChangeCreated, Path: "/opt/new/x\xff\n", Type: "file", SizeAfter: 5},
			{Kind: holt.ChangeCreated, Path: "/srv/heap/b", Type: "file", SizeAfter: 3},
			{Kind: holt.ChangeContent, Path: "/etc/later", Type: "file", Content: true, Metadata: true, SizeBefore: 3, SizeAfter: 3},
			{Kind: holt.ChangeContent, Path: "/etc/link", Type: "symlink", Content: true},
			{Kind: holt.ChangeContent, Path: "/etc/longer", Type: "file", Content: true, SizeBefore: 3, SizeAfter: 4},
			{Kind: holt.ChangeContent, Path: "/srv/heap/both", Type: "file", Content: true, SizeBefore: 3, SizeAfter: 4},
			{Kind: holt.ChangeMetadata, Path: "/etc/moded", Type: "file", Metadata: true, SizeBefore: 3, SizeAfter: 3},
			{Kind: holt.ChangeMetadata, Path: "/etc/owned", Type: "file", Metadata: true, SizeBefore: 3, SizeAfter: 3},
		},
		Unread: holt.OSStrings{"/srv/heap"},
	}
	if d := cmp.Diff(want, got.RootFiles); d != "" {
		t.Error(d)
	}
	for i := range mostDifferent + 5 {
		b.RootFiles = append(b.RootFiles, file(fmt.Sprintf("/opt/new/%d", i), 0))
		b.Unread = append(b.Unread, fmt.Sprintf("/opt/new/%d", i))
	}
	got = holt.ComputerDiff{}
	diffRootFiles(&got, a, b)
	if f := got.RootFiles; len(f.Changes) != mostDifferent || f.Omitted != 5+len(want.Changes) || f.Counts.Created != 4+mostDifferent+5 || len(f.Unread) != mostDifferent {
		t.Errorf("%d listed, %d omitted, %+v, %d unread", len(f.Changes), f.Omitted, f.Counts, len(f.Unread))
	}
	got = holt.ComputerDiff{From: holt.DiffSide{Computer: "einstein"}, To: holt.DiffSide{Computer: "curie"}}
	diffRootFiles(&got, a, holt.Inventory{NoFiles: "why"})
	if f := got.RootFiles; f.Unlisted != "curie: why" || f.Changes == nil || f.Counts.Total() > 0 {
		t.Errorf("%+v", f)
	}
	if diffRootFiles(&got, holt.Inventory{}, a); got.RootFiles.Unlisted != "einstein: the guest did not list them" {
		t.Errorf("%+v", got.RootFiles)
	}
}
