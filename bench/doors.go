package main

import (
	"bytes"
	"context"
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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const previewAbout = `
A web server of this process, which a computer of the local engine has as a port of its own: asked directly, through ` + "`holt computer forward`" + `, which knows nothing of HTTP, and as a public preview,
by %d callers at once, all on the same two processors.`

const sshAbout = `
OpenSSH's clients, with a key: into a computer of the local engine through holt's gate, and into this machine through OpenSSH's sshd.`

const (
	previewColumn = "preview"
	forwardColumn = "forward"
	directColumn  = "direct"
	gateColumn    = "holt"
	sshdColumn    = "sshd"
	doorMB        = 256 // of a large answer or file at most, MiB
)

// web is a way to a web server.
type web struct {
	address string
	host    string // by which it is asked
	kept    *http.Client
	fresh   *http.Client // a connection for each request
}

func newWeb(address, host string) *web {
	return &web{address, host, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// get asks for an answer, and returns how much it was.
func (w *web) get(ctx context.Context, c *http.Client, path string) (int64, error) {
	q, err := http.NewRequestWithContext(ctx, "GET", "http://"+w.address+path, nil)
	if err != nil {
		return 0, err
	}
	q.Host = w.host
	resp, err := c.Do(q)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	return io.Copy(io.Discard, resp.Body)
}

// previews are requests to one web server.
func (r *apiRoom) previews(ctx context.Context, b *bench, s *section) error {
	page, large := bytes.Repeat([]byte("holt"), 1024), int64(min(b.apiMB, doorMB))<<20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/large" {
			io.Copy(w, io.NewSectionReader(sameBytes{}, 0, large))
			return
		}
		w.Write(page)
	}))
	b.own("the web server", func() error { server.Close(); return nil })
	direct := server.Listener.Addr().(*net.TCPAddr)
	public := true
	if _, err := r.d.client.Previews.Set(ctx, "bench-0", direct.Port, holt.PreviewSpec{Public: &public}); err != nil {
		return err
	}
	forward, err := r.forward(ctx, b, direct.Port)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(r.preview)
	ways := map[string]*web{
		directColumn:  newWeb(direct.String(), ""),
		forwardColumn: newWeb(forward, ""),
		previewColumn: newWeb(r.preview, fmt.Sprintf("%d-bench-0.localhost:%s", direct.Port, port)),
	}
	for _, w := range []struct {
		name string
		n    int
		how  func(*web) *http.Client
	}{
		{"answers of 4 KiB", b.apiCalls, func(w *web) *http.Client { return w.kept }},
		{"answers of 4 KiB, each on a connection of its own", b.apiCalls / 8, func(w *web) *http.Client { return w.fresh }},
	} {
		err := s.crowds(b, w.name, w.n, callers, func(column string) error {
			n, err := ways[column].get(ctx, w.how(ways[column]), "/")
			if err == nil && n != int64(len(page)) {
				err = fmt.Errorf("%d bytes came", n)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	var columns []column[*web]
	for _, name := range s.columns {
		columns = append(columns, column[*web]{name, ways[name]})
	}
	f, err := rounds(ctx, b, b.rounds, work[*web]{
		name: fmt.Sprintf("an answer of %d MiB", large>>20), unit: megabytes,
		measure: func(ctx context.Context, w *web) (float64, error) {
			began := time.Now()
			n, err := w.get(ctx, w.kept, "/large")
			if err == nil && n != large {
				err = fmt.Errorf("%d bytes came", n)
			}
			return float64(n) / 1e6 / time.Since(began).Seconds(), err
		},
	}, columns)
	s.figures = append(s.figures, f)
	return err
}

// forward starts the command that makes a port of a computer one of this machine's, and returns where.
func (r *apiRoom) forward(ctx context.Context, b *bench, port int) (address string, err error) {
	cmd := exec.Command(r.d.b.holt, "computer", "forward", "bench-0", fmt.Sprintf("%d:0", port), "--json")
	cmd.Env = r.d.env()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", err
	}
	b.own("the forward", func() error { cmd.Process.Kill(); cmd.Wait(); return nil })
	var said struct {
		Forwards []struct {
			Local string `json:"local"`
		} `json:"forwards"`
	}
	if err := json.NewDecoder(out).Decode(&said); err != nil || len(said.Forwards) != 1 {
		return "", fmt.Errorf("the forward says nothing: %w", err)
	}
	return said.Forwards[0].Local, nil
}

// login is a way to a shell.
type login struct {
	dir, user, port string
}

// options are ssh's and scp's.
func (l login) options(more ...string) []string {
	return append([]string{"-q", "-F", "none", "-i", filepath.Join(l.dir, "key"), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
		"-o", "StrictHostKeyChecking=accept-new", "-o", "UserKnownHostsFile=" + filepath.Join(l.dir, "known"), "-o", "Port=" + l.port}, more...)
}

func (l login) at() string { return l.user + "@127.0.0.1" }

// ssh is what people do over it.
func (r *apiRoom) ssh(ctx context.Context, b *bench, s *section) error {
	dir := filepath.Join(r.dir, "ssh")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key := filepath.Join(dir, "key")
	if _, err := command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", key); err != nil {
		return err
	}
	line, err := os.ReadFile(key + ".pub")
	if err != nil {
		return err
	}
	if _, err := r.d.client.SSHKeys.Add(ctx, holt.SSHKeySpec{Key: strings.TrimSpace(string(line))}, ""); err != nil {
		return err
	}
	port, err := startSSHD(ctx, b, dir, line)
	if err != nil {
		return err
	}
	here := filepath.Join(dir, "here")
	if err := os.WriteFile(here, nil, 0o600); err != nil {
		return err
	}
	megabytesOf := int64(min(b.apiMB, doorMB))
	f, err := os.Create(here)
	if err == nil {
		_, err = io.Copy(f, io.NewSectionReader(sameBytes{}, 0, megabytesOf<<20))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	rate := func(seconds float64, err error) (float64, error) {
		return float64(megabytesOf<<20) / 1e6 / seconds, err
	}
	columns := []column[login]{{gateColumn, login{dir, "bench-0+root", r.gate}}, {sshdColumn, login{dir, "root", port}}}
	for _, w := range []work[login]{
		{name: "a connection, `true` and its end", unit: millis, measure: func(ctx context.Context, l login) (float64, error) {
			took, err := timed(ctx, "ssh", append(l.options(), l.at(), "true")...)
			return took * 1000, err
		}},
		{name: fmt.Sprintf("scp of %d MiB into it", megabytesOf), unit: megabytes, measure: func(ctx context.Context, l login) (float64, error) {
			return rate(timed(ctx, "scp", append(l.options(), here, l.at()+":"+filepath.Join(dir, "there"))...))
		}},
		{name: fmt.Sprintf("scp of %d MiB out of it", megabytesOf), unit: megabytes, measure: func(ctx context.Context, l login) (float64, error) {
			return rate(timed(ctx, "scp", append(l.options(), l.at()+":"+filepath.Join(dir, "there"), filepath.Join(dir, "back"))...))
		}},
		{name: fmt.Sprintf("%d MiB through a pipe, `cat`", megabytesOf), unit: megabytes, measure: func(ctx context.Context, l login) (float64, error) {
			return rate(timed(ctx, "ssh", append(l.options("-n"), l.at(), "cat "+filepath.Join(dir, "there"))...))
		}},
	} {
		f, err := rounds(ctx, b, b.rounds, w, columns)
		s.figures = append(s.figures, f)
		if err != nil {
			return err
		}
	}
	return nil
}

// startSSHD starts OpenSSH's server for this bench only.
func startSSHD(ctx context.Context, b *bench, dir string, key []byte) (port string, err error) {
	if port, err = freePort(); err != nil {
		return "", err
	}
	hostKey, allowed := filepath.Join(dir, "host"), filepath.Join(dir, "allowed")
	if _, err := command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hostKey); err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(allowed, key, 0o600), os.MkdirAll("/run/sshd", 0o755))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", hostKey, "-p", port, "-o", "ListenAddress=127.0.0.1", "-o", "AuthorizedKeysFile="+allowed,
		"-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PermitRootLogin=prohibit-password", "-o", "PidFile=none", "-o", "Subsystem=sftp internal-sftp")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("sshd (scripts/test-deps bench installs it): %w", err)
	}
	b.own("sshd", func() error { cmd.Process.Kill(); cmd.Wait(); return nil })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			return port, conn.Close()
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("sshd does not listen: %w", err)
		}
	}
}
