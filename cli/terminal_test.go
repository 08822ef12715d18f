package cli_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"

	"holt/server/servertest"
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

func TestTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, memory(t).Nouns()), "")
	for _, step := range []struct {
		args   string
		typed  string
		status int
		want   []string
		never  []string
	}{
		{"computer list", "", 0, []string{"no computers yet"}, nil},
		{"computer create --name einstein", "", 0, []string{"einstein runs, with workspace einstein", "next: holt computer run einstein"}, []string{"{"}},
		{"computer list", "", 0, []string{"NAME", "einstein  running  base", "1.0 GiB", "10.0 GiB", "s ago"}, []string{"{"}},
		{"computer list --json", "", 0, []string{`"name": "einstein"`}, []string{"NAME"}},
		{"computer get einstein", "", 0, []string{"state", "engine     memory"}, nil},
		{"computer run einstein cat", "", 0, nil, []string{"holt:"}}, // a terminal is not passed without -i
		{"workspace list", "", 0, []string{"FILES", "einstein"}, nil},
		{"workspace check einstein", "", 0, []string{"0 problems"}, nil},
		{"image list", "", 0, []string{"coding-agent  no", "base          3 h ago"}, nil},
		{"computer delete einstein", "n\n", 7, []string{"Delete einstein with its root disk", "[y/N]", "nothing was done"}, nil},
		{"computer get nobody", "", 3, []string{"\x1b[31mholt:\x1b[0m there is no computer", "\x1b[1mhint:\x1b[0m"}, nil},
		{"computer stop einstein", "", 0, []string{"einstein is stopped"}, nil},
		{"computer delete einstein", "y\n", 0, []string{"einstein is deleted"}, nil},
		{"computer get einstein", "", 3, nil, nil},
	} {
		args := strings.Fields(step.args)
		screen, status := onTerminal(t, d, step.typed, args...)
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
}

func TestTypedInput(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, memory(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	screen, status := onTerminal(t, d, "typed\n", "computer", "run", "-i", "einstein", "read line; echo got $line")
	if status != 0 || !strings.Contains(screen, "got typed") {
		t.Errorf("status %d:\n%s", status, screen)
	}
}
