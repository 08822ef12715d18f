package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"holt"
	"holt/internal/door/httpapi"
)

// codes reads the codes and what they mean from where they are defined.
func codes(t *testing.T) (codes []holt.Code, meanings []string) {
	t.Helper()
	source, err := os.ReadFile("../../error.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)" +// (.+)$`).FindAllSubmatch(source, -1) {
		codes = append(codes, holt.Code(m[1]))
		meanings = append(meanings, string(m[2]))
	}
	if len(codes) < 13 {
		t.Fatalf("found %d codes in error.go", len(codes))
	}
	return codes, meanings
}

// TestErrorTable keeps docs/words.md in step with the two tables of the doors.
func TestErrorTable(t *testing.T) {
	const path = "../../docs/words.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	list, meanings := codes(t)
	for i, code := range list {
		fmt.Fprintf(&want, "| `%s` | %s | %d | %d |\n", code, meanings[i], httpapi.Status(code), exitOf(code))
	}
	head, rest, found := strings.Cut(string(text), "| code | means | HTTP | exit |\n|---|---|---|---|\n")
	if !found {
		t.Fatalf("%s has no table of errors", path)
	}
	got := rest
	for i := 0; ; {
		line, _, more := strings.Cut(rest[i:], "\n")
		if !more || !strings.HasPrefix(line, "|") {
			got, rest = rest[:i], rest[i:]
			break
		}
		i += len(line) + 1
	}
	if *rewrite {
		all := head + "| code | means | HTTP | exit |\n|---|---|---|---|\n" + want.String() + rest
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want.String(), got); d != "" {
		t.Errorf("%s is not in step (go test -update):\n%s", path, d)
	}
}

// TestHelp pins what every command says of itself.
func TestHelp(t *testing.T) {
	var all bytes.Buffer
	a := &app{Streams: Streams{Out: &all, Err: &all}, getenv: func(string) string { return "" }}
	root := a.root()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		fmt.Fprintf(&all, "=== %s\n", cmd.CommandPath())
		cmd.SetOut(&all)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		if cmd.Short == "" {
			t.Errorf("%s does not say what it does", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(root)
	helps := strings.Split(all.String(), "=== ")[1:]
	if len(helps) < 25 {
		t.Errorf("%d commands", len(helps))
	}
	for i, help := range helps {
		if strings.Count(help, exitHelp) != 1 {
			t.Errorf("the help does not list the exit statuses once:\n%s", help)
		}
		helps[i] = strings.Replace(help, exitHelp, "(exit status)\n", 1)
	}
	got := strings.Join(helps, "=== ")
	const path = "testdata/help.golden"
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not in step (go test -update):\n%s", path, d)
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 漢\n\t":       "plain ü 漢\n\t",
		"\x1b]0;title\x07":    "␛]0;title␇",
		"a\rb\x00c\x7f":       "a␍b␀c␡",
		"\u009b31m\u202egpj.": "�31m�gpj.",
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 50: "1.0 PiB", 1 << 62: "4.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestEnds(t *testing.T) {
	for in, want := range map[string]end{
		"a":            {"", "a", false},
		"./a:b":        {"", "./a:b", false},
		"curie:":       {"curie", "/home/agent", false},
		"curie:x/y":    {"curie", "/home/agent/x/y", false},
		"curie:/etc/x": {"curie", "/etc/x", false},
		"curie:x/":     {"curie", "/home/agent/x", true},
		":x":           {"", ":x", false},
	} {
		if got := inComputers.parseEnd(in); got != want {
			t.Errorf("%q is %+v, want %+v", in, got, want)
		}
	}
}

func TestFailuresOfRunAre125(t *testing.T) {
	a := &app{Streams: Streams{Err: new(bytes.Buffer)}, getenv: os.Getenv, began: true}
	if got := a.finish(t.Context(), runFailure{holt.Errorf(holt.NotFound, "x")}); got != exitRun {
		t.Errorf("status %d", got)
	}
	if got := a.finish(t.Context(), fmt.Errorf("get: %w", context.Canceled)); got != exitFailure {
		t.Errorf("status %d", got)
	}
}
