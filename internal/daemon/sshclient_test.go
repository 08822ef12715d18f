package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/daemon"
	"holt/internal/door/httpapi/servertest"
)

// sshDoor is a daemon's SSH gate on a port, and a client's files: a key that it takes, and whom it knows.
type sshDoor struct {
	t    testing.TB
	d    *daemon.Daemon
	dir  string
	port string
}

// openSSH opens the gate of a daemon. The options are those of the key, but the key.
func openSSH(t testing.TB, d *daemon.Daemon, spec holt.SSHKeySpec) *sshDoor {
	t.Helper()
	return openSSHAs(t, d, t.Context(), spec)
}

// openSSHAs is openSSH with a key that the actor of ctx has added.
func openSSHAs(t testing.TB, d *daemon.Daemon, ctx context.Context, spec holt.SSHKeySpec) *sshDoor {
	t.Helper()
	s := &sshDoor{t: t, d: d, dir: t.TempDir()}
	s.keygen("key")
	b, err := os.ReadFile(s.file("key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	spec.Key = string(b)
	if _, err := d.SSH().Keys().Add(ctx, spec); err != nil {
		t.Fatal(err)
	}
	s.listen()
	return s
}

// listen has the gate listen, and writes down its key as a client knows it.
func (s *sshDoor) listen() {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	_, s.port, _ = net.SplitHostPort(l.Addr().String())
	go s.d.SSH().Serve(l)
	s.write("known", "[127.0.0.1]:"+s.port+" "+s.d.SSH().Host().Key+"\n", 0o600)
}

func (s *sshDoor) file(name string) string { return filepath.Join(s.dir, name) }

func (s *sshDoor) write(name, text string, mode os.FileMode) string {
	s.t.Helper()
	if err := os.WriteFile(s.file(name), []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
	return s.file(name)
}

func (s *sshDoor) keygen(name string) {
	s.t.Helper()
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", s.file(name)).CombinedOutput(); err != nil {
		s.t.Fatalf("ssh-keygen: %v %s", err, out)
	}
}

// options are those of ssh, scp and sftp.
func (s *sshDoor) options() []string {
	return []string{"-F", "none", "-o", "UserKnownHostsFile=" + s.file("known"), "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes",
		"-i", s.file("key"), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "Port=" + s.port}
}

// program is a real client with options, and then args.
func (s *sshDoor) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, append(s.options(), args...)...)
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	cmd.WaitDelay = time.Second
	return cmd
}

// said is what a client wrote, and its exit status.
type said struct {
	out, err string
	status   int
}

func (s said) String() string {
	return fmt.Sprintf("status %d, out %q, err %q", s.status, s.out, s.err)
}

// ends runs a client to its end.
func ends(t testing.TB, cmd *exec.Cmd) said {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatalf("%s: %v %s", cmd, err, errs.String())
	}
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// sshTime bounds one client; nothing asserts how long it takes.
const sshTime = 2 * time.Minute

// ssh runs ssh to its end.
func (s *sshDoor) ssh(args ...string) said {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), sshTime)
	defer cancel()
	return ends(s.t, s.program(ctx, "ssh", args...))
}

// does runs a command by ssh that must succeed, and returns its output.
func (s *sshDoor) does(args ...string) string {
	s.t.Helper()
	got := s.ssh(args...)
	if got.status != 0 {
		s.t.Fatalf("ssh %s: %v", strings.Join(args, " "), got)
	}
	return got.out
}

// copies runs scp, sftp or rsync, which must succeed.
func (s *sshDoor) copies(name string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), sshTime)
	defer cancel()
	cmd := s.program(ctx, name, args...)
	if name == "rsync" {
		cmd.Args = append([]string{name, "-e", "ssh " + strings.Join(s.options(), " ")}, args...)
	}
	got := ends(s.t, cmd)
	if got.status != 0 {
		s.t.Fatalf("%s %s: %v", name, strings.Join(args, " "), got)
	}
	return got.out
}

// goesOn starts ssh and ends it with the test.
func (s *sshDoor) goesOn(args ...string) *exec.Cmd {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cmd := s.program(ctx, "ssh", args...)
	cmd.Stderr = servertest.LogTo{T: s.t}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cancel(); cmd.Wait() })
	return cmd
}

// freePort returns a port of this machine that nothing listens at.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
