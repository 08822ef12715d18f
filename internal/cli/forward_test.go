package cli_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// freePort is a port that nothing listened at a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// forwarding is a holt computer forward at work.
type forwarding struct {
	t   *testing.T
	cmd *exec.Cmd
	at  []string // where it listens
	all [][]string

	mu   sync.Mutex
	said string // on its standard error
}

// startForward starts one, and returns once it listens.
func startForward(t *testing.T, d *servertest.Door, args ...string) *forwarding {
	t.Helper()
	f := &forwarding{t: t, cmd: command(d, append([]string{"computer", "forward", "curie"}, args...)...)}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.cmd.Stderr = f
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.cmd.Process.Kill(); f.cmd.Wait() })
	var shown struct {
		Computer string
		Forwards []struct {
			Port  int
			Local string
			All   []string
		}
	}
	if err := json.NewDecoder(out).Decode(&shown); err != nil || shown.Computer != "curie" {
		t.Fatalf("%+v %v %s", shown, err, f.text())
	}
	for _, one := range shown.Forwards {
		f.at = append(f.at, one.Local)
		f.all = append(f.all, one.All)
	}
	return f
}

func (f *forwarding) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said += string(p)
	return len(p), nil
}

func (f *forwarding) text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said
}

// says waits until it has said something on standard error.
func (f *forwarding) says(text string) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(f.text(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("it does not say %q but %q", text, f.text())
		}
	}
}

// command is the real command, which speaks to a daemon.
func command(d *servertest.Door, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Args = append([]string{"holt"}, args...) // see TestMain
	cmd.Env = append(os.Environ(), "HOLT_SOCKET="+d.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// fails runs a command that must fail, and returns its exit status and what it says.
func fails(t *testing.T, d *servertest.Door, args ...string) (int, string) {
	t.Helper()
	out, err := command(d, args...).CombinedOutput()
	if err == nil {
		t.Fatalf("%v succeeds: %s", args, out)
	}
	return err.(*exec.ExitError).ExitCode(), string(out)
}

// pattern is n MiB that are each another.
func pattern(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		b.Write(bytes.Repeat([]byte(fmt.Sprintf("%08d", i)), 1<<17))
	}
	return b.Bytes()
}

// TestForward: what browsers do, 200 small connections at once and one of 50 MB,
// goes through; connections end as they end on the other side; and the listener
// outlives the daemon, and says what became of what was open.
func TestForward(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	large := pattern(50)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Write(large)
			return
		}
		fmt.Fprint(w, "hello "+r.URL.Path)
	}))
	defer inside.Close()
	port := inside.Listener.Addr().(*net.TCPAddr).Port
	echo := echoes(t, nouns, "curie")
	near := filepath.Join(t.TempDir(), "near")
	f := startForward(t, d, fmt.Sprintf("%d:%d", port, freePort(t)), fmt.Sprintf("%s:%s", echo, near), fmt.Sprintf("1:%d", freePort(t)))

	browse(t, "http://"+f.at[0], large)
	_, here, _ := net.SplitHostPort(f.at[0])
	if want := []string{"127.0.0.1:" + here, "[::1]:" + here}; !slices.Equal(f.all[0], want) {
		t.Errorf("it listens at %v, want %v", f.all[0], want)
	}
	for _, at := range f.all[0] {
		resp, err := http.Get("http://" + at + "/both")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "hello /both" {
			t.Errorf("at %s: %q, %v", at, b, err)
		}
		resp.Body.Close()
	}
	if info, err := os.Stat(near); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the socket here: %v %v", info, err)
	}
	if got := through(t, "unix", near, "abc"); got != "abc" {
		t.Errorf("through a socket came %q", got)
	}

	if conn, err := net.Dial("tcp", f.at[2]); err == nil { // or it is reset already
		if n, err := conn.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("where nothing listens came %d bytes, %v; it is to be reset", n, err)
		}
		conn.Close()
	}
	f.says("nothing listens at port 1 of curie")

	open, err := net.Dial("tcp", f.at[0])
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	io.WriteString(open, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answers := bufio.NewReader(open)
	if _, err := http.ReadResponse(answers, nil); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	open.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, answers); err == nil || os.IsTimeout(err) {
		t.Errorf("after the daemon's end: %v; it is to be reset", err)
	}
	f.says("this command keeps listening")
	servertest.Serve(t, servertest.Options(quietT{t}, nouns), d.Socket)
	if got := through(t, "unix", near, "again"); got != "again" {
		t.Errorf("after the daemon's return: %q", got)
	}
	f.cmd.Process.Signal(syscall.SIGINT)
	if err := f.cmd.Wait(); err != nil {
		t.Errorf("interrupted: %v %s", err, f.text())
	}
	if _, err := os.Stat(near); err == nil {
		t.Error("its socket is left")
	}
}

// browse loads many small things at once and a large one.
func browse(t *testing.T, url string, large []byte) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) []byte {
		resp, err := client.Get(url + path)
		if err != nil {
			t.Error(err)
			return nil
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return b
	}
	var all sync.WaitGroup
	all.Go(func() {
		if got := get("/large"); sha256.Sum256(got) != sha256.Sum256(large) {
			t.Errorf("of %d bytes came others, %d", len(large), len(got))
		}
	})
	for i := range 200 {
		all.Go(func() {
			path := fmt.Sprint("/", i)
			if got := get(path); string(got) != "hello "+path {
				t.Errorf("%s: %q", path, got)
			}
		})
	}
	all.Wait()
}

// echoes starts a server in a computer that sends back what comes to its end, and returns its socket.
func echoes(t *testing.T, n nouns.Set, computer string) string {
	t.Helper()
	const server = `import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self): self.wfile.write(self.rfile.read())
s = socketserver.ThreadingUnixStreamServer("/tmp/echo", Echo)
print("ready", flush=True)
s.serve_forever()`
	run, err := n.Runs.Start(t.Context(), computer, holt.RunSpec{Argv: []string{"python3", "-c", server}}, "")
	ready := errors.New("it is ready")
	if err == nil {
		err = n.Runs.Follow(t.Context(), run.ID, 0, func(e holt.RunEvent) error {
			if e.Kind == holt.RunStdout {
				return ready
			}
			t.Errorf("the server in the computer: %+v %s", e, e.Data)
			return nil
		})
	}
	if !errors.Is(err, ready) {
		t.Fatal(err)
	}
	return "/tmp/echo"
}

// through sends a text and its end, and returns what comes back.
func through(t *testing.T, network, address, text string) string {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, text)
	conn.(interface{ CloseWrite() error }).CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

// TestForwardRefuses: what cannot be forwarded is said before anything listens.
func TestForwardRefuses(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	taken6, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken6.Close()
	port6 := strconv.Itoa(taken6.Addr().(*net.TCPAddr).Port)
	socket := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"curie", 2, "usage:"},
		{"curie 0", 2, "use a port from 1 to 65535"},
		{"curie 3000:", 2, "leave it out for the same number"},
		{"curie 3000:x", 2, "leave it out for the same number"},
		{"curie 70000", 2, "use a port from 1 to 65535"},
		{"curie run/docker.sock:1", 2, "use a port from 1 to 65535"},
		{"curie /run/docker.sock", 2, "use /run/docker.sock:PORT"},
		{"curie 3000:" + port, 4, "port " + port + " of 127.0.0.1 is already in use on this machine\nhint: use another port, such as 3000:"},
		{"curie 3000:" + port6, 4, "port " + port6 + " of ::1 is already in use on this machine\nhint: use another port, such as 3000:"},
		{"curie " + port, 4, "is already in use on this machine"},
		{"curie 3000:" + socket, 4, "already exists"},
		{"curie 3000 --address here", 2, "not an IP address"},
		{"curie 3000:3333 --address 192.0.2.1", 2, "cannot listen at port 3333 of 192.0.2.1"},
		{"nobody 3000", 3, "there is no computer"},
	} {
		status, said := fails(t, d, append([]string{"computer", "forward"}, strings.Fields(c.args)...)...)
		if status != c.status || !strings.Contains(said, c.says) || !strings.Contains(said, "\nhint: ") {
			t.Errorf("forward %s: %d, want %d and %q: %s", c.args, status, c.status, c.says, said)
		}
	}
}

// TestConnect: standard input and output become a connection.
func TestConnect(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(quietT{t}, nouns), "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	large := pattern(3)
	cmd := command(d, "computer", "connect", "curie", echoes(t, nouns, "curie"))
	cmd.Stdin = bytes.NewReader(large)
	if out, err := cmd.Output(); err != nil || !bytes.Equal(out, large) {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	cmd = command(d, "computer", "connect", "curie", strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port))
	in, err := cmd.StdinPipe() // that does not end: the far side's end is the command's
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	go io.WriteString(in, "GET / HTTP/1.0\r\n\r\n")
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "HTTP/1.0 404") {
		t.Errorf("%q, %v", out, err)
	}
	for args, want := range map[string]int{"curie 1": 5, "curie x": 2, "nobody 1": 3, "curie": 2} {
		if status, said := fails(t, d, append([]string{"computer", "connect"}, strings.Fields(args)...)...); status != want || !strings.Contains(said, "hint: ") {
			t.Errorf("connect %s: %d, want %d: %s", args, status, want, said)
		}
	}
}
