package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/client"
)

// inUse is a daemon that somebody uses in many ways at once.
type inUse struct {
	*client.Client
	t       *testing.T
	data    string
	address string // of previews
	cmd     *exec.Cmd
	over    atomic.Bool  // what goes on may come to its end
	lines   atomic.Int64 // that terminals have answered
	pages   atomic.Int64 // that previews have shown
	pause   atomic.Int64 // longest without a page, nanoseconds
}

// TestRestart: a daemon is killed, and started again, under 20 attached terminals in which somebody types, 5 runs that
// are followed and 3 previews that are looked at. Nobody has to begin anew: every line that was typed is answered once
// and in its order, each run is heard to its end without a gap, and pages come as soon as there is a daemon.
// 2 kills; HOLT_SOAK=1: 20.
func TestRestart(t *testing.T) {
	t.Parallel()
	kills := 2
	if soak() {
		kills = 20
	}
	const terminals, runs, previews = 20, 5, 3
	u := &inUse{t: t, data: t.TempDir(), address: freeAddress(t)}
	c, err := client.New(client.Options{Socket: filepath.Join(u.data, "holt.sock"), Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	u.Client = c
	u.start()
	t.Cleanup(func() {
		if _, err := c.Computers.Delete(context.Background(), "einstein", ""); err != nil {
			t.Error(err)
		}
		c.Close()
		u.cmd.Process.Signal(os.Interrupt)
		u.cmd.Wait()
	})
	err = poll(patience, 10*time.Millisecond, func() error { _, err := c.Daemon.Health(t.Context()); return err })
	if err == nil {
		_, err = c.Computers.Create(t.Context(), holt.ComputerSpec{Name: "einstein"}, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range terminals {
		all.Go(func() { u.types(n) })
	}
	for n := range runs {
		all.Go(func() { u.follows(n) })
	}
	for range previews {
		port := u.serves()
		all.Go(func() { u.looks(port) })
	}
	random := rand.New(rand.NewPCG(uint64(*seed), 0))
	for range kills {
		lines, pages := u.lines.Load(), u.pages.Load()
		for end := time.Now().Add(patience); (u.lines.Load() < lines+5*terminals || u.pages.Load() < pages+5*previews) && !t.Failed(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Error("nothing goes on")
			}
		}
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond) // any instant
		u.cmd.Process.Kill()
		u.cmd.Wait()
		u.start()
	}
	u.over.Store(true)
	all.Wait()
	t.Logf("counts: seed %d: %d kills under %d terminals, %d runs and %d previews: %d lines were typed and answered, %d pages shown, the longest pause of a preview %v",
		*seed, kills, terminals, runs, previews, u.lines.Load(), u.pages.Load(), time.Duration(u.pause.Load()).Round(time.Millisecond))
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (u *inUse) start() {
	u.cmd = exec.Command(filepath.Join(binDir, "holt"), "serve", "--engine", "local", "--data-dir", u.data, "--preview-listen", u.address, "--ssh-listen", "off")
	log, err := os.OpenFile(filepath.Join(u.data, "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		u.t.Fatal(err)
	}
	defer log.Close()
	u.cmd.Stdout, u.cmd.Stderr = log, log
	if err := u.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
}

// types types line after line, each once the one before is answered.
func (u *inUse) types(n int) {
	t, ctx := u.t, u.t.Context()
	name := fmt.Sprintf("t%d", n)
	if _, err := u.Terminals.Open(ctx, "einstein", holt.TerminalSpec{Name: name, Argv: holt.OSStrings{"/bin/sh", "-c", "stty -echo; while read -r l; do echo \"<$l>\"; done"}}, ""); err != nil {
		t.Error(err)
		return
	}
	in, typed := make(chan holt.TerminalInput, 1), 1
	in <- holt.TerminalInput{Data: []byte("1\n")}
	var heard []byte
	var end *holt.Terminal
	err := u.Terminals.Attach(ctx, "einstein", name, holt.AttachSpec{Offset: -1}, in, func(e holt.TerminalEvent) error {
		if e.Kind == holt.TerminalExit {
			end = e.Terminal
		}
		heard = append(heard, e.Data...)
		for {
			i := bytes.IndexByte(heard, '\n')
			if i < 0 {
				return nil
			}
			line := strings.TrimSpace(string(heard[:i]))
			heard = heard[i+1:]
			switch line {
			case fmt.Sprintf("<%d>", typed):
			case fmt.Sprint(typed): // typed before its echo was off
				continue
			default:
				return fmt.Errorf("%q is not the answer to %d", line, typed)
			}
			u.lines.Add(1)
			if typed++; u.over.Load() {
				in <- holt.TerminalInput{Data: []byte{4}} // Ctrl-D
				continue
			}
			time.Sleep(20 * time.Millisecond)
			in <- holt.TerminalInput{Data: fmt.Appendf(nil, "%d\n", typed)}
		}
	})
	if err != nil || !u.over.Load() {
		t.Errorf("terminal %s ended at line %d with %q: %+v %v", name, typed, heard, end, err)
	}
}

// follows hears a run that counts to its end.
func (u *inUse) follows(n int) {
	t, ctx := u.t, u.t.Context()
	stop := fmt.Sprintf("stop%d", n)
	r, err := u.Runs.Start(ctx, "einstein", holt.RunSpec{Command: holt.OSString("n=0; while ! test -e " + stop + "; do n=$((n+1)); echo $n; sleep 0.02; done; echo end; exit 7")}, "")
	if err != nil {
		t.Error(err)
		return
	}
	var heard bytes.Buffer
	err = u.Runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error {
		heard.Write(e.Data)
		if u.over.Load() {
			_, err := u.Files.Write(ctx, "einstein", "/home/agent/"+stop, holt.WriteSpec{}, strings.NewReader(""))
			return err
		}
		return nil
	})
	lines := strings.Fields(heard.String())
	for i, line := range lines[:max(0, len(lines)-1)] {
		if line != fmt.Sprint(i+1) {
			t.Errorf("run %d: line %d is %q", n, i+1, line)
			break
		}
	}
	r, no := u.Runs.Get(ctx, r.ID)
	if err != nil || no != nil || len(lines) == 0 || lines[len(lines)-1] != "end" || r.ExitCode != 7 {
		t.Errorf("run %d ended as %+v after %d lines: %v %v", n, r, len(lines), err, no)
	}
}

// serves begins a web server in the computer and returns its port, which anybody may see.
func (u *inUse) serves() (port int) {
	t, ctx := u.t, u.t.Context()
	const server = `import http.server
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(s.server_address[1], flush=True)
s.serve_forever()`
	r, err := u.Runs.Start(ctx, "einstein", holt.RunSpec{Argv: holt.OSStrings{"python3", "-c", server}}, "")
	if err != nil {
		t.Fatal(err)
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	var heard bytes.Buffer
	u.Runs.Follow(following, r.ID, 0, func(e holt.RunEvent) error {
		if heard.Write(e.Data); bytes.HasSuffix(heard.Bytes(), []byte("\n")) && port == 0 {
			fmt.Sscan(heard.String(), &port)
			cancel()
		}
		return nil
	})
	public := true
	if _, err := u.Previews.Set(ctx, "einstein", port, holt.PreviewSpec{Public: &public}); err != nil {
		t.Fatal(err)
	}
	return port
}

// looks gets page after page. One that no daemon was there for is asked for again, as a browser's user does.
func (u *inUse) looks(port int) {
	browser := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", u.address)
	}}}
	defer browser.CloseIdleConnections()
	last := time.Now()
	for !u.over.Load() || time.Since(last) > time.Second {
		res, err := browser.Get(fmt.Sprintf("http://%d-einstein.localhost/", port))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				u.t.Errorf("the preview of port %d answers %s", port, res.Status)
				return
			}
		}
		if err == nil {
			u.pages.Add(1)
			for now, most := time.Since(last), u.pause.Load(); int64(now) > most && !u.pause.CompareAndSwap(most, int64(now)); most = u.pause.Load() {
			}
			last = time.Now()
		} else if time.Since(last) > patience {
			u.t.Errorf("the preview of port %d is gone: %v", port, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
