package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"holt"
)

// TestSSH: what ssh runs has its own streams, environment, user and exit status; what is there is reached under the names of
// computers; a stopped one is woken.
func TestSSH(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"

	got := s.ssh(at, "echo out; echo err >&2; exit 7")
	if got.out != "out\n" || !strings.HasSuffix(got.err, "err\n") || got.status != 7 {
		t.Error(got)
	}
	if got := s.ssh(at, "kill -TERM $$"); got.status != 255 { // as of any sshd: ssh has no better word for a signal
		t.Error("a signal:", got)
	}
	if out := s.does("-o", "SetEnv=FRUIT=pear", at, `echo $FRUIT; echo ${SSH_CONNECTION%% *}; pwd`); out != "pear\n127.0.0.1\n/home/agent\n" {
		t.Errorf("environment: %q", out)
	}
	if out := s.does("einstein+root@127.0.0.1", "id -un"); out != "root\n" {
		t.Errorf("as root: %q", out)
	}
	for name, want := range map[string]string{"einstein+ghost@127.0.0.1": "no user", "bohr@127.0.0.1": "no computer"} {
		if got := s.ssh(name, "true"); got.status != 255 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := s.ssh("ein/stein@127.0.0.1", "true"); got.status != 255 || !strings.Contains(got.err, "Permission denied") {
		t.Error("no name:", got)
	}
	began := time.Now()
	if out := s.does(at, "sleep 60 & echo done"); out != "done\n" || time.Since(began) > 30*time.Second {
		t.Errorf("a child that holds the output held ssh for %v: %q", time.Since(began), out)
	}
	if out := s.does(at, "exec > >(sleep 0.1; sed s/^/x/); seq 3"); out != "x1\nx2\nx3\n" {
		t.Errorf("last words of what a shell has started: %q", out)
	}
	if _, err := d.Computers().Stop(t.Context(), "einstein", ""); err != nil {
		t.Fatal(err)
	}
	if out := s.does(at, "echo awake"); out != "awake\n" {
		t.Errorf("a stopped computer: %q", out)
	}

	held := s.goesOn(at, "sleep 100")
	uses := ""
	for end := time.Now().Add(sshTime); !strings.Contains(uses, "ssh 127.0.0.1") && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		awake, err := d.Computers().Awake(t.Context(), "einstein")
		if err != nil {
			t.Fatal(err)
		}
		uses = ""
		for _, u := range awake.Uses {
			uses += fmt.Sprintf("%s %s; ", u.Kind, u.Detail)
		}
	}
	if !strings.Contains(uses, "ssh 127.0.0.1") {
		t.Errorf("why it is awake: %s", uses)
	}
	held.Process.Kill()
	gone(t, s, at, "sleep 100") // the program has got its SIGHUP

	s.does(at, "echo by ssh > made; sync")
	q, err := d.Workspaces().Query(t.Context(), "einstein", holt.QuerySpec{SQL: `SELECT writer, run FROM files WHERE name = 'made'`})
	if err != nil || len(q.Rows) != 1 || q.Rows[0][0] != "agent" || !strings.HasPrefix(fmt.Sprint(q.Rows[0][1]), "term_") {
		t.Errorf("who made a file: %+v %v", q.Rows, err)
	}
}

// gone waits until no process of the computer runs a command line.
func gone(t *testing.T, s *sshDoor, at, line string) {
	t.Helper()
	out := ""
	for end := time.Now().Add(sshTime); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if out = s.ssh(at, "pgrep -x -f '"+line+"'").out; out == "" {
			return
		}
	}
	t.Errorf("%s goes on: %s", line, out)
}

// TestSSHCopies: scp (both protocols), sftp, rsync and plain pipes bring files whole both ways, with modes, links and owners,
// beside start-up files that print and read.
func TestSSHCopies(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	s.does(at, "echo 'echo noise; read x' | tee -a .profile >>.bashrc")
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 24<<20+12345)
	random.Read(data)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	big := s.write("big", string(data), 0o640)

	ctx, cancel := context.WithTimeout(t.Context(), sshTime)
	defer cancel()
	cmd := s.program(ctx, "ssh", at, "cat > piped; sha256sum < piped; cat piped")
	cmd.Stdin = bytes.NewReader(data) // its end is the end of cat
	got := ends(t, cmd)
	if line, rest, _ := strings.Cut(got.out, "\n"); !strings.HasPrefix(line, sum) || rest != string(data) {
		t.Errorf("through pipes: %s, %d bytes back, status %d %s", line, len(rest), got.status, got.err)
	}
	for _, c := range []struct {
		name     string
		up, down []string
	}{
		{"scp", []string{"-q", "-p", big, at + ":scp"}, []string{"-q", at + ":scp"}},
		{"scp", []string{"-q", "-O", "-p", big, at + ":scp-O"}, []string{"-q", "-O", at + ":scp-O"}},
		{"rsync", []string{"-a", "--chown=1000:1000", big, "einstein+root@127.0.0.1:/home/agent/rsync"}, []string{"-a", at + ":rsync"}},
	} {
		there := strings.Split(c.down[len(c.down)-1], ":")[1]
		s.copies(c.name, c.up...)
		if out := s.does(at, "stat -c '%a %U %s' "+there+"; sha256sum < "+there); !strings.HasPrefix(out, fmt.Sprintf("640 %s %d\n%s", userName(t, s, at), len(data), sum)) {
			t.Errorf("%v: %q", c.up, out)
		}
		back := s.file("back-" + there)
		s.copies(c.name, append(c.down, back)...)
		if b, err := os.ReadFile(back); err != nil || fmt.Sprintf("%x", sha256.Sum256(b)) != sum {
			t.Errorf("%v: %d bytes, %v", c.down, len(b), err)
		}
	}

	batch := s.write("batch", "mkdir d\nput "+big+" d/a\nrename d/a d/b\nln -s b d/l\nln d/b d/hard\nchmod 600 d/b\nget d/l "+s.file("by-link")+"\nrm d/hard\n-get /etc/shadow "+s.file("shadow")+"\n", 0o600)
	s.copies("sftp", "-q", "-b", batch, at)
	if out := s.does(at, "readlink d/l; stat -c '%a %h' d/b; ls d"); out != "b\n600 1\nb\nl\n" {
		t.Errorf("sftp: %q", out)
	}
	if b, err := os.ReadFile(s.file("by-link")); err != nil || !bytes.Equal(b, data) {
		t.Errorf("sftp get: %d bytes %v", len(b), err)
	}
	if _, err := os.Stat(s.file("shadow")); err == nil {
		t.Error("the user agent read /etc/shadow by sftp")
	}

	s.does(at, "git init -q --bare repo.git")
	work := s.file("work")
	for _, line := range []string{
		"git init -q -b main work", "git -C work -c user.name=a -c user.email=a@b commit -q --allow-empty -m one",
		"git -C work push -q ssh://" + at + ":" + s.port + "/home/agent/repo.git main", "git clone -q -b main ssh://" + at + ":" + s.port + "/home/agent/repo.git again",
	} {
		git := exec.CommandContext(ctx, "/bin/sh", "-c", line)
		git.Dir, git.Env = filepath.Dir(work), append(os.Environ(), "GIT_SSH_COMMAND=ssh "+strings.Join(s.options(), " "))
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", line, err, out)
		}
	}
}

// userName is what the computer calls its user agent: on the local engine the host's name of that number.
func userName(t *testing.T, s *sshDoor, at string) string {
	t.Helper()
	return strings.TrimSpace(s.does(at, "touch mine; stat -c %U mine"))
}

// TestSSHForwards: ssh -L, -D and -R reach ports and sockets both ways, with the Linux user's rights and no others.
func TestSSHForwards(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	inner, local, socks, sock := freePort(t), freePort(t), freePort(t), s.file("sock")
	const serve = `import http.server,socket,socketserver,sys,os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"inside " + self.path.encode())
    def log_message(self, *a): pass
    def address_string(self): return ""
class U(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
import threading
threading.Thread(target=U(sys.argv[2], H).serve_forever).start()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`
	ctx := t.Context()
	copyIn := s.program(ctx, "ssh", at, "cat > serve.py")
	copyIn.Stdin = strings.NewReader(serve)
	if got := ends(t, copyIn); got.status != 0 {
		t.Fatal(got)
	}
	s.goesOn("einstein+root@127.0.0.1", "umask 077; cd /home/agent; exec python3 serve.py "+inner+" /home/agent/root.sock")
	s.goesOn("-N", "-L", local+":localhost:"+inner, "-L", sock+":/home/agent/root.sock", "-D", socks, at)
	page := func(args ...string) string {
		out := ""
		for end := time.Now().Add(sshTime); out == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			b, _ := exec.CommandContext(ctx, "curl", append([]string{"-s", "-m", "10", "--noproxy", ""}, args...)...).Output()
			out = string(b)
		}
		return out
	}
	if got := page("http://127.0.0.1:" + local + "/L"); got != "inside /L" {
		t.Errorf("-L: %q", got)
	}
	if got := page("-x", "socks5h://127.0.0.1:"+socks, "http://localhost:"+inner+"/D"); got != "inside /D" {
		t.Errorf("-D: %q", got)
	}
	if b, err := exec.Command("curl", "-s", "-m", "10", "--unix-socket", sock, "http://x/").CombinedOutput(); err == nil {
		t.Errorf("the user agent reached a socket of root's: %s", b)
	}
	rootSock := s.file("rootsock")
	s.goesOn("-N", "-L", rootSock+":/home/agent/root.sock", "einstein+root@127.0.0.1")
	if got := page("--unix-socket", rootSock, "http://x/U"); got != "inside /U" {
		t.Errorf("-L of a socket: %q", got)
	}

	outside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "outside ", r.URL.Path) })}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go outside.Serve(l)
	defer outside.Close()
	remote := freePort(t)
	if out := s.does("-o", "ExitOnForwardFailure=yes", "-R", remote+":"+l.Addr().String(), at, "curl -s http://127.0.0.1:"+remote+"/R"); out != "outside /R" {
		t.Errorf("-R: %q", out)
	}
	if out := s.does("-o", "ExitOnForwardFailure=yes", "-R", "/home/agent/r.sock:"+l.Addr().String(), at, "stat -c %a r.sock; curl -s --unix-socket r.sock http://x/S"); out != "600\noutside /S" {
		t.Errorf("-R of a socket: %q", out)
	}
	if out := s.does(at, "ls r.sock 2>/dev/null; curl -s -m 5 http://127.0.0.1:"+remote+"/ || echo none"); out != "none\n" {
		t.Errorf("a listener outlived its connection: %q", out)
	}
	for _, refused := range []string{"80:" + l.Addr().String(), "/root/r.sock:" + l.Addr().String()} {
		if got := s.ssh("-o", "ExitOnForwardFailure=yes", "-R", refused, at, "true"); got.status == 0 {
			t.Errorf("the user agent listens at %s: %v", refused, got)
		}
	}
}

// TestSSHTerminal: a login shell on a terminal of the client's size, which follows it; vim works; what is left when the line is
// lost is hung up, and nohup is not.
func TestSSHTerminal(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	cmd := s.program(t.Context(), "ssh", "-tt", at)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 97})
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	shown := newShown(screen)
	write := func(keys string) {
		t.Helper()
		if _, err := screen.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	write("PS1='$ '; echo $TERM `stty size` $((6*7))x; [ -t 0 ] && tty\r")
	shown.await(t, "xterm-256color 31 97 42x")
	if err := pty.Setsize(screen, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	write("until [ \"`stty size`\" = '40 120' ]; do sleep 0.1; done; echo resi''zed\r")
	shown.await(t, "resized")
	write("vim -u NONE -n poem.txt\r")
	shown.await(t, "~") // the empty lines of the screen
	write("iroses are red\rviolets are blue\x1b:wq\r")
	shown.await(t, "written")
	write("cat poem.txt | tr a-z A-Z\r")
	shown.await(t, "VIOLETS ARE BLUE")
	write("sleep 200\r")
	running(t, s, at, "sleep 200")
	write("\x03") // it is the program in front that hears it, and what is typed behind it may be thrown away
	shown.await(t, "^C")
	shown.await(t, "$ ")
	write("echo inter''rupted\r")
	shown.await(t, "interrupted")
	write("nohup sleep 301 >/dev/null 2>&1 & sleep 302\r")
	running(t, s, at, "sleep 302")
	cmd.Process.Kill() // the line is lost
	gone(t, s, at, "sleep 302")
	if out := s.does(at, "pkill -x -f 'sleep 301' && echo went on"); out != "went on\n" {
		t.Errorf("nohup: %q", out)
	}
}

// running waits until a process of the computer has a command line.
func running(t *testing.T, s *sshDoor, at, line string) {
	t.Helper()
	for end := time.Now().Add(sshTime); s.ssh(at, "pgrep -x -f '"+line+"'").out == ""; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not begin", line)
		}
	}
}
