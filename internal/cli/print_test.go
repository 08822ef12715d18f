package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"holt"
)

// Columns stand where a terminal shows them, whatever a name is made of.
func TestTable(t *testing.T) {
	var out strings.Builder
	err := printTable(&out, []string{"NAME", "KIND"}, [][]string{{"plain", "file"}, {"🦦🦦.txt", "file"}, {"日本", "dir"}, {"e\u0301te\u0301", "x"}, {"a\tb\x1b", ""}})
	want := strings.Join([]string{
		"NAME      KIND", "plain     file", "🦦🦦.txt  file", "日本      dir", "e\u0301te\u0301       x", "a␉b␛", ""}, "\n")
	if err != nil || out.String() != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, out.String(), want)
	}
}

// A list that comes in pages is printed as one that is there at once.
func TestJSONPages(t *testing.T) {
	type item struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	a, b, c := item{"<a>", []string{"x", "y"}}, item{Name: "b"}, item{"c", []string{}}
	broke := errors.New("broke")
	for _, pages := range [][][]item{{}, {{}}, {{a}}, {{a, b}, {c}}, {{a}, {}, {b, c}, {}}} {
		var want, got strings.Builder
		if err := printJSON(&want, append([]item{}, slices.Concat(pages...)...)); err != nil {
			t.Fatal(err)
		}
		if err := printJSONPages(&got, func(yield func([]item, error) bool) {
			for _, p := range pages {
				yield(p, nil)
			}
		}); err != nil || got.String() != want.String() {
			t.Errorf("%v\ngot  %q\nwant %q", err, got.String(), want.String())
		}
	}
	var cut strings.Builder
	err := printJSONPages(&cut, func(yield func([]item, error) bool) { _ = yield([]item{a}, nil) && yield(nil, broke) })
	if err != broke || json.Valid([]byte(cut.String())) {
		t.Errorf("%v, and half of a list reads as %s", err, cut.String())
	}
}

// Bytes that are not UTF-8 are quoted as Git quotes names.
func TestCell(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, ""}, {"café", "café"}, {`"quoted\351"`, `"quoted\351"`}, {json.Number("12"), "12"},
		{map[string]any{"base64": "Y2Fm6S50eHQ="}, `"caf\351.txt"`},
		{map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte("\u00e9\n\"\\\xff\u202e\u0085"))}, `"é\012\"\\\377\342\200\256\302\205"`},
		{map[string]any{"base64": base64.StdEncoding.EncodeToString([]byte("\ufffd\xfe"))}, "\"\ufffd\\376\""},
		{map[string]any{"base64": "!"}, `{"base64":"!"}`},
	} {
		if got := cell(c.v); got != c.want {
			t.Errorf("%v: %s, want %s", c.v, got, c.want)
		}
	}
}

// What a daemon's log ends with is told without what stands before it.
func TestLastWords(t *testing.T) {
	for _, c := range []struct{ tail, want string }{
		{"{\"msg\":\"holt: x\"}\nholt: no room\nhint: make some", "no room\nhint: make some"},
		{"holt: no room", "no room"},
		{"panic: oh", "\npanic: oh"},
	} {
		if got := lastWords(c.tail); got != c.want {
			t.Errorf("%q: %q, want %q", c.tail, got, c.want)
		}
	}
}

// A computer that was paused at the snapshot it was to go back to has only gone on: there is
// nothing to undo.
func TestRestoredToWhereItIs(t *testing.T) {
	at := holt.Snapshot{ID: "snap_a", Name: "dawn"}
	for _, one := range []struct {
		last holt.SnapshotID
		undo bool
	}{{"snap_a", false}, {"snap_b", true}} {
		var out, said strings.Builder
		a := &app{Streams: Streams{Out: &out, Err: &said}}
		back := holt.RestoredComputer{Computer: holt.Computer{Name: "einstein", State: holt.ComputerRunning, LastSnapshot: one.last}, Present: at}
		a.sayRestored("dawn", back)
		if strings.Contains(said.String(), "revert with") != one.undo || strings.Contains(out.String(), "continued from there") == one.undo {
			t.Errorf("after %s: %q, %q", one.last, out.String(), said.String())
		}
	}
}

// What differs on the root disks, what was not looked at, and why nothing was compared.
func TestSayRootFiles(t *testing.T) {
	change := holt.Change{Kind: holt.ChangeContent, Path: "/etc/a\x1b\n", Type: "file", SizeAfter: 2048}
	one := holt.Counts{Changed: 1, Bytes: 2048}
	for _, c := range []struct {
		files holt.RootFilesDiff
		want  string
	}{
		{holt.RootFilesDiff{}, "root disk  the same\n"},
		{holt.RootFilesDiff{Counts: one, Changes: []holt.Change{change}, Unread: holt.OSStrings{"/opt/\xff", "/srv"}},
			"root disk  1 changed; 2.0 KiB in what was created or changed\n  changed   /etc/a␛␊  2.0 KiB\n  not compared completely, too many files: \"/opt/\\377\" and 1 more; --json lists them\n"},
		{holt.RootFilesDiff{Unlisted: "einstein: why\x1b"}, "root disk  not compared: einstein: why␛\n"},
	} {
		var out strings.Builder
		a := &app{Streams: Streams{Out: &out}}
		if a.sayRootFiles(holt.ComputerDiff{RootFiles: c.files}); out.String() != c.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
		}
	}
}

// Why a side was not listed is said with its name once.
func TestSayUnlisted(t *testing.T) {
	for unlisted, want := range map[string]string{"old is stopped": "compared: old is stopped\n", "nothing runs here": "compared: old: nothing runs here\n"} {
		var out, said strings.Builder
		a := &app{Streams: Streams{Out: &out, Err: &said}}
		a.sayDiff(holt.ComputerDiff{Unlisted: true, From: holt.DiffSide{Computer: "old", Unlisted: unlisted}})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", unlisted, out.String())
		}
	}
}

// What cobra and pflag say of mistakes is said in words.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"computer get":                     "get needs 1 argument, got 0\n",
		"run list -n x":                    "--limit: invalid value \"x\"\nhint: use a whole number\n",
		"computer run e true --timeout 2":  "--timeout: invalid value \"2\"\nhint: use a duration with a unit, such as 90s or 1h30m\n",
		"computer fork einstein --count y": "--count: invalid value \"y\"\nhint: use a whole number\n",
	} {
		var out, said strings.Builder
		if status := Main(t.Context(), strings.Fields(args), Streams{Out: &out, Err: &said}, Local{}); status != exitUsage || !strings.Contains(said.String(), want) {
			t.Errorf("holt %s: status %d: %s", args, status, said.String())
		}
	}
}
