package cli

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holt"
)

// commands are all that do something, shown in help or not.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	nobody := filepath.Join(t.TempDir(), "holt.sock") // a daemon of this machine is not asked for names
	a := &app{Streams: Streams{Out: io.Discard, Err: io.Discard}, getenv: func(name string) string {
		if name == holt.EnvSocket {
			return nobody
		}
		return ""
	}}
	var all []*cobra.Command
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if len(cmd.Commands()) == 0 {
			all = append(all, cmd)
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(a.root())
	return all
}

// bytesOnly are commands whose output is a file, a stream or a script, and no answer.
var bytesOnly = map[string]bool{
	"computer connect": true, "computer ssh": true, "computer ssh-proxy": true, "ssh-config": true, "computer logs": true, "service logs": true, "terminal attach": true, "workspace cat": true,
	"serve": true, "completion": true, "man": true, "netstack": true, "mountkeeper": true,
}

// TestEveryCommandIsWhole: each that prints an answer has --json, each has an example, and the help of each lists the
// exit statuses.
func TestEveryCommandIsWhole(t *testing.T) {
	for _, cmd := range commands(t) {
		path := strings.TrimPrefix(cmd.CommandPath(), "holt ")
		if has := cmd.Flags().Lookup("json") != nil; has == bytesOnly[path] {
			t.Errorf("%s: has --json: %v", path, has)
		}
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(help.String(), exitHelp) {
			t.Errorf("%s: its help does not list the exit statuses", path)
		}
		if cmd.Hidden {
			continue
		}
		if !strings.Contains(cmd.Example, "holt "+path) && !strings.Contains(cmd.Example, "holt "+strings.Fields(path)[0]) {
			t.Errorf("%s: its help has no example of it: %q", path, cmd.Example)
		}
	}
}

// pinnedElsewhere are commands that need more than the daemon in memory: a process of its own, a host's mounts, runs that change files. Scripts here and in e2e run them.
var pinnedElsewhere = map[string]bool{"up": true, "down": true, "job outputs": true, "computer undo": true, "workspace undo": true, "computer forward": true, "workspace mount": true, "workspace unmount": true}

// TestEveryAnswerIsPinned: the shape of what each command answers is in testdata/json.golden.
func TestEveryAnswerIsPinned(t *testing.T) {
	golden, err := os.ReadFile("testdata/json.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range commands(t) {
		path := strings.TrimPrefix(cmd.CommandPath(), "holt ")
		pinned := regexp.MustCompile(`(?m)^=== holt ` + regexp.QuoteMeta(path) + `( |$)`).Match(golden)
		if cmd.Flags().Lookup("json") != nil && pinned == pinnedElsewhere[path] {
			t.Errorf("%s: its answer is in json.golden: %v", path, pinned)
		}
	}
}

// newNames are arguments for which a name is made up.
var newNames = map[string]bool{
	"computer create NAME": true, "workspace create NAME": true, "token create NAME": true, "context add NAME": true,
	"service add SERVICE": true, "schedule add NAME": true, "computer domain add DOMAIN": true, "computer secret set SECRET": true,
}

// TestNounsAreNoFiles: where a command takes a thing of holt's, no shell offers files.
func TestNounsAreNoFiles(t *testing.T) {
	nouns := strings.Fields("NAME COMPUTER FROM INTO TO A B WORK RUN JOB HOLD KEY DOMAIN SECRET SERVICE SCHEDULE TERMINAL CHECKPOINT SNAPSHOT TEMPLATE TOKEN")
	seen := map[string]bool{}
	for _, cmd := range commands(t) {
		if cmd.Hidden {
			continue
		}
		path, at := strings.TrimPrefix(cmd.CommandPath(), "holt "), 0
		for words := strings.Fields(cmd.Use)[1:]; len(words) > 0; words = words[1:] {
			word := strings.Trim(words[0], "[].…")
			if word == "--" || word == "|" {
				break
			} else if strings.HasPrefix(word, "--") {
				words = words[1:] // its value
				continue
			}
			noun := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("[:|", r) })[0]
			last := at
			if strings.Contains(words[0], "..") || strings.Contains(words[0], "…") {
				last++
			}
			for ; at <= last; at++ {
				if !slices.Contains(nouns, noun) || newNames[path+" "+noun] {
					continue
				}
				seen[noun] = true
				if cmd.ValidArgsFunction == nil {
					t.Errorf("%s: nothing completes %s", path, noun)
				} else if _, is := cmd.ValidArgsFunction(cmd, []string{"x", "y", "z"}[:at], ""); is == cobra.ShellCompDirectiveDefault {
					t.Errorf("%s: files are offered for %s, argument %d", path, noun, at+1)
				}
			}
		}
	}
	for _, noun := range nouns {
		if !seen[noun] {
			t.Errorf("no command takes a %s", noun)
		}
	}
}

// TestManual: each command has a page with all its parts, that no text breaks.
func TestManual(t *testing.T) {
	for _, cmd := range commands(t) {
		if cmd.Hidden {
			continue
		}
		page := string(manPage(cmd, "1.2.3", "2026-01-02"))
		for _, part := range []string{`.TH "`, ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n", ".SH EXAMPLES\n", `.SH "EXIT STATUS"`, `.SH "ENVIRONMENT"`} {
			if strings.Count(page, part) != 1 {
				t.Errorf("%s: %d of %q", cmd.CommandPath(), strings.Count(page, part), part)
			}
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "'") || regexp.MustCompile(`^\.[a-z]`).MatchString(line) && !strings.HasPrefix(line, ".nf") && !strings.HasPrefix(line, ".fi") && !strings.HasPrefix(line, ".br") {
				t.Errorf("%s: a request that nobody wrote: %q", cmd.CommandPath(), line)
			}
		}
	}
	for _, one := range manStatuses {
		if !strings.Contains(exitHelp, one[0]) {
			t.Errorf("no help knows the exit status %s", one[0])
		}
	}
	for in, want := range map[string]string{".so /etc/passwd": `\&.so /etc/passwd`, `a\fB-b`: `a\efB\-b`, "'quote": `\(aqquote`} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) is %q", in, got)
		}
	}
}

// hintElsewhere are errors of the command itself whose hint is set by another line, by file and the beginning of their text.
var hintElsewhere = map[string]string{
	"copy.go":    `"%s has no directory %s"`,          // noDirectory says how it is made
	"copyget.go": `"%s: %w"`,                          // an error of the system, which names its file
	"fork.go":    `"%d of %d forks were not created"`, // the hint is the first fork's
}

// TestEveryErrorHasAHint: of all errors that the command makes itself, as its source has them.
func TestEveryErrorHasAHint(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		hinted := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "WithHint" {
				hinted[s.X] = true
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Errorf" {
				return true
			}
			if of, ok := s.X.(*ast.Ident); !ok || of.Name != "holt" {
				return true
			}
			made++
			text, _ := call.Args[1].(*ast.BasicLit)
			if !hinted[call] && (text == nil || text.Value != hintElsewhere[e.Name()]) {
				t.Errorf("%s: an error without a hint", set.Position(call.Pos()))
			}
			return true
		})
	}
	if made < 100 {
		t.Errorf("only %d errors are found", made)
	}
}
