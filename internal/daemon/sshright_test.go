package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"holt"
)

// TestSSHRights: a token is a password until it is revoked, which ends what came by it at once, and so does a key's deletion;
// other keys are refused; the host's key outlives the daemon.
func TestSSHRights(t *testing.T) {
	dir := home(t)
	d := open(t, config(t, dir))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	ctx := t.Context()
	token, secret, err := d.Tokens().Create(ctx, "robot", 0)
	if err != nil {
		t.Fatal(err)
	}
	ask := s.write("ask", "#!/bin/sh\necho '"+secret+"'\n", 0o700)
	byToken := func(ctx context.Context, command string) *exec.Cmd {
		cmd := s.program(ctx, "ssh", at, command)
		for i, arg := range cmd.Args {
			if arg == s.file("key") {
				cmd.Args[i] = "/dev/null"
			}
		}
		cmd.Args = append([]string{"ssh", "-o", "BatchMode=no", "-o", "PreferredAuthentications=password", "-o", "NumberOfPasswordPrompts=1"}, cmd.Args[1:]...)
		cmd.Env = append(cmd.Env, "SSH_ASKPASS="+ask, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:none")
		return cmd
	}
	if got := ends(t, byToken(ctx, "echo by token")); got.out != "by token\n" || got.status != 0 {
		t.Error(got)
	}
	held := byToken(ctx, "echo began; sleep 400")
	var why bytes.Buffer
	held.Stderr = &why
	out, err := held.StdoutPipe()
	if err == nil {
		err = held.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := d.Tokens().Delete(ctx, token.ID); err != nil {
		t.Fatal(err)
	}
	if held.Wait(); held.ProcessState.ExitCode() != 255 || !strings.Contains(why.String(), "the token was revoked") {
		t.Error("the session of a revoked token:", held.ProcessState, why.String())
	}
	gone(t, s, at, "sleep 400")
	if got := ends(t, byToken(ctx, "true")); got.status != 255 || !strings.Contains(got.err, "Permission denied") {
		t.Error("a revoked token:", got)
	}
	os.Rename(s.file("key"), s.file("mine"))
	os.Rename(s.file("key.pub"), s.file("mine.pub"))
	s.keygen("key")
	if got := s.ssh(at, "true"); got.status != 255 || !strings.Contains(got.err, "Permission denied") {
		t.Error("another key:", got)
	}
	os.Rename(s.file("mine"), s.file("key"))
	os.Rename(s.file("mine.pub"), s.file("key.pub"))
	printed, err := exec.Command("ssh-keygen", "-l", "-f", s.file("key.pub")).Output()
	all, listErr := d.SSH().Keys().List(ctx)
	if err != nil || listErr != nil || len(all) != 1 || !strings.Contains(string(printed), all[0].Fingerprint) || all[0].LastUsedAt == nil {
		t.Errorf("%s, %+v %v %v", printed, all, err, listErr)
	}
	before := d.SSH().Host()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	s.d = up(t, config(t, dir))
	if after := s.d.SSH().Host(); after.Key != before.Key {
		t.Errorf("the host's key was %s, and is %s", before.Fingerprint, after.Fingerprint)
	}
	s.listen()
	waiting := s.goesOn(at, "sleep 401")
	running(t, s, at, "sleep 401")
	if _, err := s.d.SSH().Keys().Delete(ctx, all[0].Fingerprint); err != nil {
		t.Fatal(err)
	}
	if waiting.Wait(); waiting.ProcessState.ExitCode() != 255 {
		t.Error("the session of a deleted key:", waiting.ProcessState)
	}
	if got := s.ssh(at, "true"); got.status != 255 || !strings.Contains(got.err, "Permission denied") {
		t.Error("a deleted key:", got)
	}
}

// TestSSHAgentForwarding: an agent is reached from the computer by who was granted that, by its Linux user only, and no longer than
// the session lasts; others are told.
func TestSSHAgentForwarding(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	granted := openSSH(t, d, holt.SSHKeySpec{AllowAgentForwarding: true})
	refused := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	socket := granted.file("agent")
	daemon := exec.CommandContext(t.Context(), "ssh-agent", "-D", "-a", socket)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer daemon.Wait()
	defer daemon.Process.Kill()
	granted.keygen("carried")
	add := func() error {
		cmd := exec.Command("ssh-add", "-q", granted.file("carried"))
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		return cmd.Run()
	}
	for end := time.Now().Add(sshTime); add() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no agent")
		}
	}
	with := func(s *sshDoor, args ...string) said {
		cmd := s.program(t.Context(), "ssh", append([]string{"-A"}, args...)...)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK="+socket)
		return ends(t, cmd)
	}
	got := with(granted, at, "ssh-add -l; stat -c '%a' $SSH_AUTH_SOCK; dirname $SSH_AUTH_SOCK > where; ls -ld $(dirname $SSH_AUTH_SOCK) | cut -c1-10")
	if !strings.Contains(got.out, "carried (ED25519)\n600\ndrwx------\n") || got.status != 0 {
		t.Error(got)
	}
	if got := granted.ssh(at, "ls -d $(cat where) 2>/dev/null; echo ${SSH_AUTH_SOCK-none}"); got.out != "none\n" {
		t.Error("after the session:", got)
	}
	got = with(refused, at, "ssh-add -l; echo ${SSH_AUTH_SOCK-none}")
	if !strings.Contains(got.out, "none\n") || strings.Contains(got.out, "carried") || !strings.Contains(got.err, "--allow-agent-forwarding") {
		t.Error("not granted:", got)
	}
}

// bootstrap is what VS Code Remote sends to bash, in small: it unpacks a server, starts it so that it goes on, says at which port and
// socket, and stays.
const bootstrap = `echo "f00d: running"
uname -rsv; cat /etc/os-release 2>/dev/null | grep -c PRETTY_NAME
mkdir -p $HOME/.vscode-server/bin && cd $HOME/.vscode-server
cat > bin/server.py <<'PY'
import http.server, os, socketserver, sys, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(("server " + self.path).encode())
    def log_message(self, *a): pass
    def address_string(self): return ""
class U(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
try: os.unlink("vscode.sock")
except OSError: pass
threading.Thread(target=U("vscode.sock", H).serve_forever, daemon=True).start()
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
open("port", "w").write(str(s.server_port))
s.serve_forever()
PY
rm -f port; python3 bin/server.py > log 2>&1 < /dev/null &
while [ ! -s port ]; do sleep 0.05; done
echo "f00d: start"
echo "{\"listeningOn\": $(cat port), \"socket\": \"$PWD/vscode.sock\", \"connectionToken\": \"t\", \"arch\": \"$(uname -m)\", \"tty\": \"$SSH_TTY\"}"
echo "f00d: end"
`

// TestSSHOfVSCode: what its log shows: ssh -v -T -D PORT HOST bash, with a long script as input, a server that is reached through the
// dynamic forward and through a forwarded socket, files by sftp; when the line is lost the server goes on.
func TestSSHOfVSCode(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "einstein"})
	s := openSSH(t, d, holt.SSHKeySpec{})
	const at = "einstein@127.0.0.1"
	socks := freePort(t)
	connect := func() (end func(), told map[string]any) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cmd := s.program(ctx, "ssh", "-v", "-T", "-D", socks, at, "bash")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		shown := newShown(out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(in, strings.Repeat("# a comment of a long script that is sent in one go\n", 5000), bootstrap)
		shown.await(t, "f00d: end\n")
		shown.mu.Lock()
		_, rest, _ := strings.Cut(shown.text.String(), "f00d: start\n")
		shown.mu.Unlock()
		line, _, _ := strings.Cut(rest, "\n")
		if err := json.Unmarshal([]byte(line), &told); err != nil {
			t.Fatal(line, err)
		}
		return func() { cancel(); cmd.Wait() }, told
	}
	page := func(args ...string) string {
		b, err := exec.CommandContext(t.Context(), "curl", append([]string{"-s", "-m", "60", "--noproxy", "", "--retry", "20", "--retry-connrefused"}, args...)...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	end, told := connect()
	if told["tty"] != "" {
		t.Error("-T has a terminal:", told)
	}
	url := fmt.Sprintf("http://127.0.0.1:%v/", told["listeningOn"])
	if got := page("-x", "socks5h://127.0.0.1:"+socks, url+"version"); got != "server /version" {
		t.Errorf("through -D: %q", got)
	}
	here := s.file("vscode.sock")
	s.goesOn("-N", "-T", "-L", here+":"+told["socket"].(string), at)
	got := ""
	for end := time.Now().Add(sshTime); got != "server /socket" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got = page("--unix-socket", here, "http://x/socket")
	}
	if got != "server /socket" {
		t.Errorf("through a socket: %q", got)
	}
	s.copies("scp", "-q", s.write("settings.json", "{}", 0o600), at+":.vscode-server/settings.json")
	end()
	if out := s.does(at, "curl -s "+url+"still"); out != "server /still" {
		t.Errorf("the server after the line was lost: %q", out)
	}
}
