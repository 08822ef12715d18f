package computer

import (
	"strings"
	"testing"

	"holt"
)

func TestShape(t *testing.T) {
	got, err := shape(holt.ComputerSpec{})
	want := holt.ComputerSpec{Template: "base", CPUs: 1, MemoryMB: 1024, DiskSizeMB: 10240, IdleTimeout: holt.DefaultIdleTimeout}
	if err != nil || got != want {
		t.Fatal(got, err)
	}
	for _, bad := range []holt.ComputerSpec{
		{Name: "Upper"}, {Name: "under_score"}, {Name: strings.Repeat("a", 300)}, {Name: "-dash"}, {Name: "a/b"},
		{Workspace: "no such"}, {CPUs: -1}, {CPUs: 65}, {CPUs: 100000}, {MemoryMB: -5}, {MemoryMB: 255}, {MemoryMB: 1 << 40},
		{DiskSizeMB: -1}, {DiskSizeMB: mostDiskSize + 1},
	} {
		_, err := shape(bad)
		if holt.CodeOf(err) != holt.InvalidArgument || holt.AsError(err).Hint == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestCheckRun(t *testing.T) {
	for _, good := range []holt.RunSpec{
		{Command: "true"}, {Argv: []string{"true", ""}}, {Command: "x", Cwd: "/", User: "root", Env: map[holt.OSString]holt.OSString{"A": ""}},
		{Command: "x", User: "1000", TimeoutMS: 1},
	} {
		if err := checkRun(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	long := strings.Repeat("x", mostRunText+1)
	for _, bad := range []holt.RunSpec{
		{}, {Command: "a", Argv: []string{"b"}}, {Argv: []string{""}}, {Command: "a\x00b"}, {Argv: []string{"a", "\x00"}},
		{Command: holt.OSString(long)}, {Argv: []string{"a", long}}, {Argv: make([]string, mostRunArgs+1)}, {Command: "x", Env: map[holt.OSString]holt.OSString{"": "v"}},
		{Command: "x", Env: map[holt.OSString]holt.OSString{"A=B": "v"}}, {Command: "x", Env: map[holt.OSString]holt.OSString{"A": "\x00"}},
		{Command: "x", Cwd: "relative"}, {Command: "x", Cwd: "/../.."}, {Command: "x", User: "Not A User"}, {Command: "x", User: "-x"},
		{Command: "x", TimeoutMS: -1}, {Command: "x", TimeoutMS: mostTimeout + 1},
	} {
		if err := checkRun(bad); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%.60v: %v", bad, err)
		}
	}
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a": "/a", "//a//b/": "/a/b", "/a/./b": "/a/b", "/a/../b": "/b", "/home/agent/..": "/home",
		"/" + strings.Repeat("n", 255): "/" + strings.Repeat("n", 255),
	} {
		if got, err := cleanPath(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, bad := range []string{
		"", "a", "./a", "~", "/..", "/../etc", "/a/../../b", "/a/../../a", "/a\x00b", "/" + strings.Repeat("n", 256),
		strings.Repeat("/a", mostPath),
	} {
		if got, err := cleanPath(bad); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%.60q: %q, %v", bad, got, err)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	f.Add("/a/../b")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := cleanPath(in)
		if err != nil {
			return
		}
		again, err := cleanPath(got)
		if err != nil || again != got || got[0] != '/' || strings.Contains(got+"/", "/../") {
			t.Fatalf("%q: %q, again %q, %v", in, got, again, err)
		}
	})
}

func TestRunTag(t *testing.T) {
	id := holt.NewRunID()
	if got, ok := runTag("run/" + string(id)); !ok || got != id {
		t.Error(got, ok)
	}
	for _, bad := range []string{"", "run/", "run/x", string(id), "run/" + string(id) + "x", "run/run_'; DROP TABLE--", "term/" + string(id)} {
		if got, ok := runTag(bad); ok {
			t.Errorf("%q names %q", bad, got)
		}
	}
}

func TestFreeName(t *testing.T) {
	names := strings.Fields(scientists)
	seen := map[string]bool{}
	for _, n := range names {
		if _, err := holt.ParseName(n); err != nil || seen[n] {
			t.Errorf("%s: %v, twice: %v", n, err, seen[n])
		}
		seen[n] = true
	}
	if len(names) < 150 {
		t.Errorf("%d names", len(names))
	}
	taken := map[string]bool{}
	for range 2 * len(names) {
		name := freeName(func(n string) bool { return taken[n] })
		if _, err := holt.ParseName(name); err != nil || taken[name] {
			t.Fatalf("%s: %v, taken: %v", name, err, taken[name])
		}
		taken[name] = true
	}
}
