package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"holt/internal/door/httpapi/servertest"
)

// screenWait bounds how long a test waits for what a terminal must show.
const screenWait = 2 * time.Minute

// person is somebody at a terminal in which the command runs.
type person struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when more is shown
	screen  []byte
	over    bool
}

// sit starts the command on a terminal of 100 columns and 30 lines.
func sit(t *testing.T, d *servertest.Door, args ...string) *person {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args = append([]string{"holt"}, args...) // see TestMain
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket, "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, tty: tty, cmd: cmd, changed: make(chan struct{})}
	t.Cleanup(func() { cmd.Process.Kill(); tty.Close() })
	go p.watch()
	return p
}

func (p *person) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := p.tty.Read(buf)
		p.mu.Lock()
		p.screen, p.over = append(p.screen, buf[:n]...), err != nil
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil { // EIO: the program has ended
			return
		}
	}
}

// sees waits until the terminal has shown a text.
func (p *person) sees(text string) {
	p.t.Helper()
	late := time.After(screenWait)
	for {
		p.mu.Lock()
		seen, over, changed := bytes.Contains(p.screen, []byte(text)), p.over, p.changed
		screen := string(p.screen[max(0, len(p.screen)-1000):])
		p.mu.Unlock()
		if seen {
			return
		}
		if over {
			p.t.Fatalf("the program ended without %q: %q", text, screen)
		}
		select {
		case <-changed:
		case <-late:
			p.t.Fatalf("no %q: %q", text, screen)
		}
	}
}

// shown returns all that the terminal has shown.
func (p *person) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.screen)
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.tty, text); err != nil {
		p.t.Fatal(err)
	}
}

// leaves waits for the program's end and returns its exit status.
func (p *person) leaves() int {
	_ = p.cmd.Wait() // the status says it
	for {
		p.mu.Lock()
		over, changed := p.over, p.changed
		p.mu.Unlock()
		if over {
			return p.cmd.ProcessState.ExitCode()
		}
		<-changed
	}
}

func TestAttach(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	p := sit(t, d, "terminal", "attach", "einstein", "-e", "GREETING=hi")
	p.sees("$ ")
	p.types("echo $GREETING-$TERM; stty size\n")
	p.sees("hi-xterm\r\n30 100")
	if err := pty.Setsize(p.tty, &pty.Winsize{Rows: 41, Cols: 123}); err != nil {
		t.Fatal(err)
	}
	p.types("until [ \"$(stty size)\" = '41 123' ]; do :; done; echo re''sized\n")
	p.sees("resized")
	p.types("sh -c 'trap \"echo inter''rupted; exit\" INT; echo wai\"\"ting; while :; do sleep 0.01; done'\n")
	p.sees("waiting")
	p.types("\x03")                                             // Ctrl-C is the computer's
	p.sees("interrupted")                                       // the kernel sends the signal before it echoes ^C
	p.types("printf '\\033[?1049h\\033[6n'; echo ques''tion\n") // another screen, and a question
	p.sees("\x1b[6nquestion")
	p.types("echo la''st\x1c") // what was typed before the key arrives
	if status := p.leaves(); status != 0 {
		t.Errorf("left with %d", status)
	}
	p.sees("\x1b[?1049l")
	p.sees("detached; main keeps running in einstein")

	q := sit(t, d, "terminal", "attach", "einstein", "main", "--detach-key", "none")
	q.sees("echo la''st")
	if strings.Contains(q.shown(), "\x1b[6n") {
		t.Error("a replay asks the terminal")
	}
	q.types("\n")
	q.sees("\rlast\r\n")
	q.types("sh -c 'trap \"echo qu''itted; exit\" QUIT; echo hold\"\"ing; while :; do sleep 0.01; done'\n")
	q.sees("holding")
	q.types("\x1c") // now it is a key like any other: SIGQUIT
	q.sees("quitted")
	q.types("exit 42\n")
	if status := q.leaves(); status != 42 {
		t.Errorf("ended with %d", status)
	}
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"terminal list einstein", 0, "exit 42"},
		{"terminal open einstein build --command cat", 0, "build is running in einstein"},
		{"terminal list einstein", 0, "build  running"},
		{"terminal signal einstein build INT", 0, "sent SIGINT to build"},
		{"terminal open einstein other --command cat", 0, "other is running"},
		{"terminal close einstein other", 0, "other: ended by SIGHUP"},
		{"terminal close einstein nothing", 3, "no terminal"},
		{"terminal attach nobody", 125, "no computer"},
		{"terminal attach einstein --detach-key x", 2, "not a detach key"},
		{"terminal attach einstein No", 2, "invalid name"},
		{"terminal attach", 2, "usage"},
	} {
		if screen, status := onTerminal(t, d, "", strings.Fields(tt.args)...); status != tt.status || !strings.Contains(screen, tt.want) {
			t.Errorf("%s: status %d, want %d:\n%s", tt.args, status, tt.status, screen)
		}
	}
}

// TestAttachEnded: a terminal that has ended shows what it showed, and its status.
func TestAttachEnded(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	p := sit(t, d, "terminal", "attach", "einstein", "job", "--command", "echo the last words; exit 7")
	if status := p.leaves(); status != 7 {
		t.Errorf("status %d: %q", status, p.shown())
	}
	screen, _ := onTerminal(t, d, "", "terminal", "list", "einstein")
	id := regexp.MustCompile("term_[a-z2-7]{16}").FindString(screen)
	for range 2 {
		if screen, status := onTerminal(t, d, "", "terminal", "attach", "einstein", id); status != 7 || !strings.Contains(screen, "the last words") {
			t.Errorf("attached to %q: status %d: %q", id, status, screen)
		}
	}
	if screen, status := onTerminal(t, d, "", "terminal", "attach", "einstein", "term_aaaaaaaaaaaaaaaa"); status != 125 || !strings.Contains(screen, "there is no terminal") {
		t.Errorf("status %d: %q", status, screen)
	}

	onTerminal(t, d, "", "terminal", "open", "einstein", "job", "--command", "echo list''ening; cat")
	const unused = "job is already running (echo list''ening; cat); ignored: --command"
	for args, said := range map[string]bool{"sleep 1000": true, "echo list''ening; cat": false} {
		if screen, _ := onTerminal(t, d, "", "terminal", "open", "einstein", "job", "--command", args); strings.Contains(screen, unused) != said {
			t.Errorf("%s: %q", args, screen)
		}
	}
	q := sit(t, d, "terminal", "attach", "einstein", "job", "--command", "sleep 1000")
	q.sees(unused)
	q.sees("listening") // from here on keys are the program's
	q.types("\x1c")
	if status := q.leaves(); status != 0 {
		t.Errorf("left with %d", status)
	}
}

// TestAttachAgain: the daemon goes and comes back, and the person does not notice.
func TestAttachAgain(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	p := sit(t, d, "terminal", "attach", "einstein", "--command", "stty -echo; echo ready; cat")
	p.sees("ready")
	for i := range 3 {
		d.Kill()
		p.types(fmt.Sprintf("line %d ", i)) // nobody is there
		d = servertest.Serve(t, servertest.Options(quietT{t}, nouns), d.Socket)
		p.types("over\n")
		p.sees(fmt.Sprintf("line %d over\r\n", i))
	}
	if n := strings.Count(p.shown(), "line"); n != 3 {
		t.Errorf("%d lines: %q", n, p.shown())
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.leaves(); status != 143 {
		t.Errorf("ended by SIGTERM with %d", status)
	}
}

// TestAttachWithoutTerminal: bytes go in and come out, and the status is the terminal's.
func TestAttachWithoutTerminal(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(quietT{t}, servertest.New(t).Nouns()), "")
	onTerminal(t, d, "", "computer", "create", "--name", "einstein")
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{"holt", "terminal", "attach", "einstein", "--command", "stty -echo; read x; echo got $x; exit 6"}
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
	cmd.Stdin = strings.NewReader("bytes\x06 of a file\n") // no key among them
	cmd.Env = append(cmd.Env, "HOLT_DETACH_KEY=ctrl-f")
	out, _ := cmd.Output() // the status says it
	if cmd.ProcessState.ExitCode() != 6 || !bytes.Contains(out, []byte("got bytes")) {
		t.Errorf("status %d: %q", cmd.ProcessState.ExitCode(), out)
	}
}
