package cli_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt/internal/cli"
	"holt/internal/door/httpapi/servertest"
)

// shells are the real ones, each with a program that prints what it would complete a line with: $1 is holt's script, $2 the line.
var shells = map[string][]string{
	"bash": {"bash", "--norc", "-c", `source /usr/share/bash-completion/bash_completion; compopt() { :; }; source "$1"
COMP_LINE="$2"; COMP_POINT=${#2}; read -ra COMP_WORDS <<<"$2"; [[ $2 == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
__start_holt; printf '%s\n' "${COMPREPLY[@]}"`, "bash"},
	"fish": {"fish", "--no-config", "-c", `source $argv[1]; complete -C $argv[2]`},
	"zsh": {"zsh", "-f", "-c", `compdef() { :; }; source "$1"; _describe() { print -rl -- $completions; }; _arguments() { :; }
words=(${(z)2}); [[ $2 == *' ' ]] && words+=(''); CURRENT=${#words}; _holt; true`, "zsh"},
}

// completions installs a shell's script, and holt itself, and returns what the shell completes a line with.
func completions(t *testing.T, shell, line string) string {
	t.Helper()
	dir := t.TempDir()
	var script bytes.Buffer
	if status := cli.Main(context.Background(), []string{"completion", shell}, cli.Streams{Out: &script, Err: os.Stderr}, local()); status != 0 {
		t.Fatalf("holt completion %s: exit status %d", shell, status)
	}
	file := filepath.Join(dir, "holt."+shell)
	if err := os.WriteFile(file, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(dir, "holt")); err != nil { // see TestMain
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, shells[shell][0], append(shells[shell][1:len(shells[shell]):len(shells[shell])], file, line)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", shell, err, out)
	}
	return string(out)
}

// TestShellsCompleteNames: the real shells complete commands, flags and what the daemon has now.
func TestShellsCompleteNames(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.NewSandboxed(t).Nouns()), "")
	t.Setenv("HOLT_SOCKET", d.Socket)
	for _, args := range [][]string{
		{"computer", "create", "--name", "einstein"}, {"computer", "create", "--name", "curie"}, {"terminal", "open", "einstein", "build"}, {"workspace", "create", "spare"},
		{"schedule", "add", "einstein", "nightly", "--cron", "@daily", "true"}, {"workspace", "checkpoint", "einstein", "before"}, {"computer", "snapshot", "einstein", "--name", "first"},
		{"computer", "run", "einstein", "echo hello"}, {"workspace", "mkdir", "einstein:src"},
		{"computer", "hold", "einstein", "--reason", "thinking"}, {"computer", "domain", "add", "einstein", "app.example.com", "3000"},
	} {
		var out bytes.Buffer
		if status := cli.Main(context.Background(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}, local()); status != 0 {
			t.Fatalf("holt %v: %d %s", args, status, out.String())
		}
	}
	for shell := range shells {
		t.Run(shell, func(t *testing.T) {
			for line, want := range map[string][]string{
				"holt comp":                             {"computer"},
				"holt computer create --mem":            {"--memory-mb"},
				"holt computer get ":                    {"einstein", "curie"},
				"holt computer stop einstein ":          {"curie"},
				"holt workspace get sp":                 {"spare"},
				"holt terminal attach einstein ":        {"build"},
				"holt schedule show ":                   {"nightly"},
				"holt snapshot show ":                   {"first"},
				"holt run show ":                        {"run_"},
				"holt workspace ls einstein:s":          {"src"},
				"holt context use ":                     {"local"},
				"holt workspace merge einstein ":        {"spare"},
				"holt computer release einstein ":       {"hld_"},
				"holt computer domain delete einstein ": {"app.example.com"},
				"holt completion ":                      {"bash", "zsh", "fish"},
			} {
				got := completions(t, shell, line)
				for _, one := range want {
					if !strings.Contains(got, one) {
						t.Errorf("%q is completed with %q, without %s", line, got, one)
					}
				}
			}
			if got := completions(t, shell, "holt computer stop einstein "); strings.Contains(got, "einstein\n") {
				t.Errorf("what is there already is offered again: %q", got)
			}
		})
	}
}

// TestCompletionDoesNotHang: a daemon that takes connections and never answers costs a second.
func TestCompletionDoesNotHang(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "mute.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("HOLT_SOCKET", socket)
	var out bytes.Buffer
	began := time.Now()
	cli.Main(context.Background(), []string{"__complete", "computer", "get", ""}, cli.Streams{Out: &out, Err: &out}, local())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if strings.Contains(out.String(), "\n\n") || !strings.Contains(out.String(), ":4") {
		t.Errorf("it completes %q", out.String())
	}
}
