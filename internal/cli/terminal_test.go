package cli_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"holt/internal/door/httpapi/servertest"
)

// onTerminal runs the command on a terminal whose person types the given text
// when asked for it, and returns what the terminal showed.
func onTerminal(t *testing.T, d *servertest.Door, typed string, args ...string) (screen string, status int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args = append([]string{"holt"}, args...) // see TestMain
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket, "TERM=xterm", "NO_COLOR=")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if _, err := io.WriteString(tty, typed); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	_, _ = io.Copy(&out, tty) // it ends with EIO when the program does
	_ = cmd.Wait()            // the status says it
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// step is a command on a terminal, and what that shows.
type step struct {
	args   string
	typed  string
	status int
	want   []string
	never  []string
}

func (step step) take(t *testing.T, d *servertest.Door) {
	t.Helper()
	screen, status := onTerminal(t, d, step.typed, strings.Fields(step.args)...)
	if status != step.status {
		t.Errorf("%s: status %d, want %d:\n%s", step.args, status, step.status, screen)
	}
	for _, want := range step.want {
		if !strings.Contains(screen, want) {
			t.Errorf("%s: the terminal lacks %q:\n%s", step.args, want, screen)
		}
	}
	for _, never := range step.never {
		if strings.Contains(screen, never) {
			t.Errorf("%s: the terminal shows %q:\n%s", step.args, never, screen)
		}
	}
}

func TestTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, withImages(servertest.New(t).Nouns())), "")
	for _, step := range []step{
		{"computer list", "", 0, []string{"no computers yet"}, nil},
		{"computer create --name einstein", "", 0, []string{"einstein is running with workspace einstein", "next: holt computer run einstein"}, []string{"{"}},
		{"computer list", "", 0, []string{"NAME", "einstein  running  base", "1.0 GiB", "10.0 GiB", "s ago"}, []string{"{"}},
		{"computer list --json", "", 0, []string{`"name": "einstein"`}, []string{"NAME"}},
		{"computer get einstein", "", 0, []string{"state", "engine     local"}, nil},
		{"computer run einstein cat", "", 0, nil, []string{"holt:"}}, // a terminal is not passed without -i
		{"workspace list", "", 0, []string{"FILES", "einstein"}, nil},
		{"workspace check einstein", "", 0, []string{"0 problems"}, nil},
		{"image list", "", 0, []string{"coding-agent  no", "base          3 h ago", "1×1024 2×3072"}, nil},
		{"computer delete einstein", "n\n", 1, []string{"Delete einstein with its root disk", "[y/N]", "cancelled; nothing was changed"}, nil},
		{"computer get nobody", "", 3, []string{"\x1b[31mholt:\x1b[0m there is no computer", "\x1b[1mhint:\x1b[0m"}, nil},
		{"computer stop einstein", "", 0, []string{"einstein is stopped"}, nil},
		{"computer delete einstein", "y\n", 0, []string{"einstein is deleted"}, nil},
		{"computer get einstein", "", 3, nil, nil},
	} {
		step.take(t, d)
	}
}

// Snapshots as a person sees them. What goes with a computer and what came from it is named before it is
// deleted, and after.
func TestSnapshotsOnTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.NewSandboxed(t).Nouns()), "")
	for _, step := range []step{
		{"snapshot list", "", 0, []string{"no snapshots yet; take one with: holt computer snapshot NAME"}, nil},
		{"computer create --name einstein", "", 0, nil, nil},
		{"computer snapshot einstein --name dawn", "", 0, []string{"took snapshot dawn of einstein; it was halted for ", "next: holt computer fork einstein --at dawn"}, []string{"{"}},
		{"snapshot show dawn", "", 0, []string{"name        dawn\n", "kind        manual\n", "halted      "}, []string{"{", "after", "forks", "throttled", "forced"}},
		{"computer fork einstein --at dawn --name try --count 2", "", 0, []string{"try-1 is running, forked from einstein\ntry-2 is running, forked from einstein\n"}, []string{"{"}},
		{"computer fork einstein --at dawn --name try-2", "", 4, []string{"a computer named \"try-2\" already exists"}, []string{"{"}},
		{"snapshot list einstein", "", 0, []string{"SNAPSHOT", "HALTED", "dawn      einstein         manual", "try-1, try-2\n"}, []string{"{"}},
		{"computer get try-1", "", 0, []string{"forked from    einstein at dawn\n"}, nil},
		{"computer pause einstein", "", 0, []string{"einstein is paused\n"}, nil},
		{"computer resume einstein", "", 0, []string{"einstein is running\n"}, nil},
		{"snapshot restore dawn", "n\n", 1, []string{"Restore einstein to the snapshot dawn, taken ", " s ago? [y/N]", "cancelled; nothing was changed"}, nil},
		{"snapshot restore einstein@dawn", "y\n", 0, []string{"Restore einstein to the snapshot dawn, taken ",
			"einstein is running, restored to dawn; its previous state is the snapshot before-restore\n", "revert with: holt snapshot restore einstein@before-restore\n"}, nil},
		{"snapshot diff einstein@before-restore einstein", "", 0, []string{"from einstein@before-restore to einstein\n", "files      the same\n", "ports      the same\n"}, []string{"{"}},
		{"snapshot delete dawn", "n\n", 1, []string{"Delete snapshot dawn of einstein? Its forks are kept: try-1, try-2. [y/N]"}, nil},
		{"snapshot delete dawn", "y\n", 0, []string{"snapshot dawn is deleted, ", " freed; its forks are kept: try-1, try-2\n"}, []string{"{"}},
		{"computer snapshot try-1 --name noon", "", 0, nil, nil},
		{"computer delete einstein", "n\n", 1, []string{"workspace einstein? This deletes its snapshots: snap_", ", before-restore. Its forks are kept: try-1, try-2. [y/N]"}, nil},
		{"computer delete einstein --yes", "", 0, []string{"einstein is deleted; its snapshots are deleted: snap_", ", before-restore; its forks are kept: try-1, try-2\n"}, []string{"{"}},
		{"computer get try-1", "", 0, []string{"forked from    einstein (deleted) at snap_", " (deleted)\n"}, nil},
		{"computer delete try-1 --json --yes", "", 0, []string{`"deleted": "try-1"`, `"snapshots": [`, `"name": "noon"`}, []string{`"forks"`}},
		{"computer delete try-2", "y\n", 0, []string{"try-2 is deleted\n"}, nil},
	} {
		step.take(t, d)
	}
}

// A file of a workspace does nothing to the terminal it is printed on, and is
// otherwise as it is.
func TestContentOnTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	const content = "\x1b]0;mine\x07\x1b[2Jplain ä\n"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"workspace", "create", "data"}, {"workspace", "put", file, "data:file"}} {
		if screen, status := onTerminal(t, d, "", args...); status != 0 {
			t.Fatal(screen)
		}
	}
	for _, args := range [][]string{{"workspace", "cat", "data:file"}, {"workspace", "get", "data:file", "-"}} {
		if screen, status := onTerminal(t, d, "", args...); status != 0 || !strings.HasPrefix(screen, "␛]0;mine␇␛[2Jplain ä\n") || strings.Contains(screen, "mine\x07") {
			t.Errorf("%s on a terminal: %q", args[1], screen)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Args = append([]string{"holt"}, args...)
		cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
		if out, err := cmd.Output(); err != nil || string(out) != content {
			t.Errorf("%s to a pipe: %q %v", args[1], out, err)
		}
	}
}

// To delete a checkpoint ends what can be undone: a person is asked, and told what it frees.
func TestDeleteCheckpointAsks(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "workspace", "create", "data")
	for _, name := range []string{"one", "two"} {
		onTerminal(t, d, "", "workspace", "checkpoint", "data", name)
	}
	for _, step := range []struct {
		typed  string
		flags  []string
		status int
		want   string
	}{
		{"n\n", nil, 1, "cancelled; nothing was changed"},
		{"", []string{"--dry-run"}, 0, "deleting one would free"},
		{"y\n", nil, 0, "deleting one frees"},
	} {
		screen, status := onTerminal(t, d, step.typed, append([]string{"workspace", "delete-checkpoint", "data", "one"}, step.flags...)...)
		asked := strings.Contains(screen, "Delete checkpoint one of data? This frees 0 B of content.")
		if status != step.status || !strings.Contains(screen, step.want) || asked != (step.typed != "") {
			t.Errorf("%q %s: status %d:\n%s", step.typed, step.flags, status, screen)
		}
	}
	if screen, status := onTerminal(t, d, "", "workspace", "delete-checkpoint", "data", "two", "--yes"); status != 0 || strings.Contains(screen, "[y/N]") {
		t.Errorf("status %d:\n%s", status, screen)
	}
}

func TestTypedInput(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	screen, status := onTerminal(t, d, "typed\n", "computer", "run", "-i", "einstein", "read line; echo got $line")
	if status != 0 || !strings.Contains(screen, "got typed") {
		t.Errorf("status %d:\n%s", status, screen)
	}
}
