package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
	"holt/internal/guest/mount"
	"holt/internal/workspace"
)

// peer is the hostile program in the place of an agent without a machine.
type peer struct {
	dir  string
	out  *kept
	stop func()
}

// hostileFile is the program with what it is told behind it.
func hostileFile(t *testing.T, program []byte, mode string, seed uint64, canary, secret string) string {
	t.Helper()
	back := []byte(secret)
	slices.Reverse(back)
	path := filepath.Join(t.TempDir(), "hostile")
	if err := os.WriteFile(path, append(bytes.Clone(program), fmt.Sprintf("\nhostile %s %d %s %s\n", mode, seed, canary, back)...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// startPeer starts one.
func startPeer(t *testing.T, file string) *peer {
	t.Helper()
	p := &peer{dir: t.TempDir(), out: &kept{}}
	cmd := exec.Command(file, "agent", "--control-socket", "c", "--files-socket", "f")
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	cmd.Stdout = p.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stop = sync.OnceFunc(func() { cmd.Process.Kill(); cmd.Wait() })
	t.Cleanup(p.stop)
	return p
}

// dial begins a session of a channel.
func (p *peer) dial(ctx context.Context, name string) (net.Conn, error) {
	for {
		conn, err := net.Dial("unix", filepath.Join(p.dir, name))
		if err == nil {
			return channel.Dial(ctx, conn)
		}
		if ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
}

// tried is what it has tried.
func (p *peer) tried() map[string]int {
	time.Sleep(1100 * time.Millisecond) // it says so each second
	return lastTried(p.out.String())
}

// call is an operation of the agent's protocol as the host calls it.
type call struct {
	op string
	do func(ctx context.Context, c *agent.Client) error
}

// agentCalls are all; what comes is looked at no further than errEnough.
func agentCalls() []call {
	run, term, path := holt.NewRunID(), holt.NewTerminalID(), "/home/agent/x"
	sink := func() io.Writer { return &atMost{io.Discard, 4 << 20} }
	return []call{
		{"hello", func(ctx context.Context, c *agent.Client) error { _, err := c.Hello(ctx); return err }},
		{"configure", func(ctx context.Context, c *agent.Client) error {
			_, err := c.Configure(ctx, agent.Identity{Hostname: "x"})
			return err
		}},
		{"ready", func(ctx context.Context, c *agent.Client) error {
			_, err := c.Ready(ctx, []string{"a.service"}, time.Second)
			return err
		}},
		{"grow", func(ctx context.Context, c *agent.Client) error {
			_, err := c.Grow(ctx, holt.GuestShape{CPUs: 2}, time.Second)
			return err
		}},
		{"sync", func(ctx context.Context, c *agent.Client) error { return c.Sync(ctx) }},
		{"trim", func(ctx context.Context, c *agent.Client) error { return c.Trim(ctx, time.Second) }},
		{"shutdown", func(ctx context.Context, c *agent.Client) error { return c.Shutdown(ctx) }},
		{"inventory", func(ctx context.Context, c *agent.Client) error { _, err := c.Inventory(ctx); return err }},
		{"activity", func(ctx context.Context, c *agent.Client) error { _, err := c.Activity(ctx); return err }},
		{"measure", func(ctx context.Context, c *agent.Client) error { _, err := c.Measure(ctx, 1000, 1000); return err }},
		{"dial", func(ctx context.Context, c *agent.Client) error {
			conn, err := c.DialPort(ctx, "tcp", "localhost:80")
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			conn.Write([]byte("x"))
			io.Copy(sink(), conn) // how a connection ends is its own affair
			return nil
		}},
		{"port.list", func(ctx context.Context, c *agent.Client) error { _, err := c.Ports(ctx); return err }},
		{"run.start", func(ctx context.Context, c *agent.Client) error {
			_, err := c.StartRun(ctx, run, holt.RunSpec{Command: "true"})
			return err
		}},
		{"run.get", func(ctx context.Context, c *agent.Client) error { _, err := c.GetRun(ctx, run); return err }},
		{"run.list", func(ctx context.Context, c *agent.Client) error { _, err := c.Runs(ctx); return err }},
		{"run.follow", func(ctx context.Context, c *agent.Client) error {
			sum := sink()
			return c.FollowRun(ctx, run, 0, func(e holt.RunEvent) error { _, err := sum.Write(e.Data); return err })
		}},
		{"run.output", func(ctx context.Context, c *agent.Client) error {
			_, err := c.RunOutput(ctx, run, 1<<20)
			return err
		}},
		{"run.input", func(ctx context.Context, c *agent.Client) error {
			in, err := c.RunInput(ctx, run, 0, false, false)
			if err != nil {
				return err
			}
			in.Write([]byte("x"))
			_, err = in.End()
			return err
		}},
		{"run.signal", func(ctx context.Context, c *agent.Client) error { return c.SignalRun(ctx, run, "TERM") }},
		{"terminal.open", func(ctx context.Context, c *agent.Client) error {
			_, err := c.OpenTerminal(ctx, term, holt.TerminalSpec{})
			return err
		}},
		{"terminal.list", func(ctx context.Context, c *agent.Client) error { _, err := c.Terminals(ctx); return err }},
		{"terminal.attach", func(ctx context.Context, c *agent.Client) error {
			sum := sink()
			return c.AttachTerminal(ctx, term, holt.AttachSpec{Offset: -1}, nil, func(e holt.TerminalEvent) error { _, err := sum.Write(e.Data); return err })
		}},
		{"terminal.signal", func(ctx context.Context, c *agent.Client) error { return c.SignalTerminal(ctx, term, "INT") }},
		{"terminal.close", func(ctx context.Context, c *agent.Client) error { _, err := c.CloseTerminal(ctx, term); return err }},
		{"session", func(ctx context.Context, c *agent.Client) error {
			one, err := c.OpenSession(ctx, term, holt.SessionSpec{Command: "cat"})
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { one.Close() })()
			defer one.Close()
			one.Write([]byte("x"))
			one.CloseWrite()
			_, err = one.Output(sink(), sink())
			return err
		}},
		{"session.do", func(ctx context.Context, c *agent.Client) error {
			one, err := c.OpenSession(ctx, term, holt.SessionSpec{Terminal: &holt.SessionTerminal{}})
			if err != nil {
				return err
			}
			defer one.Close()
			if err := one.Resize(ctx, holt.TerminalSize{Cols: 80, Rows: 24}); err != nil {
				return err
			}
			return one.Signal(ctx, "TERM")
		}},
		{"listen", func(ctx context.Context, c *agent.Client) error {
			l, err := c.Listen(ctx, "unix", 0, "", "agent")
			if err != nil {
				return err
			}
			return l.Close()
		}},
		{"accept", func(ctx context.Context, c *agent.Client) error {
			l, err := c.Listen(ctx, "tcp", 8000, "", "agent")
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { l.Close() })()
			defer l.Close()
			conn, _, err := l.Accept(ctx)
			if err == nil {
				err = conn.Close()
			}
			return err
		}},
		{"service.put", func(ctx context.Context, c *agent.Client) error {
			_, err := c.PutService(ctx, holt.ServiceSpec{Name: "web"})
			return err
		}},
		{"service.do", func(ctx context.Context, c *agent.Client) error {
			_, err := c.DoService(ctx, "web", "stop")
			return err
		}},
		{"service.list", func(ctx context.Context, c *agent.Client) error { _, err := c.Services(ctx); return err }},
		{"service.log", func(ctx context.Context, c *agent.Client) error {
			return c.ServiceLog(ctx, "web", holt.ServiceLogQuery{Follow: true}, sink())
		}},
		{"file.read", func(ctx context.Context, c *agent.Client) error {
			_, err := c.ReadFile(ctx, path, 0, -1, sink())
			return err
		}},
		{"file.write", func(ctx context.Context, c *agent.Client) error {
			return c.WriteFile(ctx, path, holt.WriteSpec{Mode: 0o644}, strings.NewReader(strings.Repeat("x", 1<<20)))
		}},
		{"file.stat", func(ctx context.Context, c *agent.Client) error { _, err := c.Stat(ctx, path); return err }},
		{"file.list", func(ctx context.Context, c *agent.Client) error {
			return c.List(ctx, path, 0, 1000, func(i holt.FileInfo, _ int64) error {
				if strings.Contains(string(i.Name), "/") || string(i.Path) != path+"/"+string(i.Name) || i.Name == ".." {
					return fmt.Errorf("LEAK %q at %q", i.Name, i.Path)
				}
				return nil
			})
		}},
		{"file.mkdir", func(ctx context.Context, c *agent.Client) error { return c.Mkdir(ctx, path, 0o755, "", true) }},
		{"file.symlink", func(ctx context.Context, c *agent.Client) error { return c.Symlink(ctx, path, "y", "") }},
		{"file.remove", func(ctx context.Context, c *agent.Client) error { return c.Remove(ctx, path, true) }},
		{"file.rename", func(ctx context.Context, c *agent.Client) error { return c.Rename(ctx, path, path+"y") }},
		{"file.watch", func(ctx context.Context, c *agent.Client) error {
			n := 0
			return c.Watch(ctx, path, true, nil, func(agent.FileEvent) error {
				if n++; n > 10_000 {
					return errEnough
				}
				return nil
			})
		}},
	}
}

// protocolOps are the operations that the agent's sources name.
func protocolOps(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../guest/agent/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	name := regexp.MustCompile(`(?m)^(?:const)?\s*op[A-Z]\w*\s*=\s*"([a-z.]+)"`)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllSubmatch(b, -1) {
			all = append(all, string(m[1]))
		}
	}
	slices.Sort(all)
	return all
}

// illForms is how many ways to answer the program has.
const illForms = 11

// illMust is what must come of those that are wrong whatever was asked, unless time is up.
var illMust = map[int][]holt.Code{
	0: {holt.Corrupt}, 1: {}, 2: {holt.Corrupt}, 3: {holt.Corrupt},
	5: {holt.Forbidden, holt.NotFound, holt.Internal}, 6: {"", holt.Corrupt, holt.Unavailable}, 7: {},
}

// tellings is what came of lies, by operation.
type tellings struct {
	t    *testing.T
	mu   sync.Mutex
	came map[string]map[string]int
	most time.Duration
}

// took looks at what one call came to.
func (s *tellings) took(op string, form int, began time.Time, limit time.Duration, err error) {
	code := string(holt.CodeOf(err))
	switch {
	case err == nil:
		code = "ok"
	case errors.Is(err, errEnough):
		code = "enough"
	case holt.CodeOf(err) == holt.Unauthenticated, strings.Contains(err.Error(), "LEAK"), len(err.Error()) > 16<<10,
		strings.ContainsFunc(err.Error(), func(r rune) bool { return unicode.IsControl(r) }):
		s.t.Errorf("%s answered with form %d: %.300q", op, form, err)
	}
	if must := illMust[form]; must != nil && !slices.Contains(must, holt.CodeOf(err)) && holt.CodeOf(err) != holt.Timeout {
		s.t.Errorf("%s answered with form %d: %q, not one of %q: %v", op, form, holt.CodeOf(err), must, err)
	}
	took := time.Since(began)
	if took > limit+illLate*slower {
		s.t.Errorf("%s answered with form %d took %v: %v", op, form, took, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came[op] == nil {
		s.came[op] = map[string]int{}
	}
	s.came[op][code]++
	s.most = max(s.most, took)
}

// TestHostileChannels: a peer that is not told from an agent ends the host's own ends of both channels, without a
// machine: each operation of the protocol is answered in each way, and session follows session of frames that are
// none. No call outlives its context, nothing is said that a guest may not say, nothing is left. HOLT_SOAK=1: ten times as much.
func TestHostileChannels(t *testing.T) {
	seed, times := illSeed(t)
	program := hostileProgram(t)
	var ops []string
	for _, c := range agentCalls() {
		ops = append(ops, c.op)
	}
	slices.Sort(ops)
	if all := protocolOps(t); !slices.Equal(all, ops) {
		t.Fatalf("of the operations\n%q these are called:\n%q", all, ops)
	}
	before, resident := runtime.NumGoroutine(), sizesOf(os.Getpid()).Resident
	over, peak := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for {
			select {
			case <-over:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
				most = max(most, sizesOf(os.Getpid()).Resident)
			}
		}
	}()
	t.Run("lies", func(t *testing.T) {
		liar := startPeer(t, hostileFile(t, program, "lies", seed, "/nowhere", "nothing"))
		tellLies(t, liar, times)
		liar.stop()
	})
	t.Run("sessions", func(t *testing.T) { brokenSessions(t, program, seed, 60*times) })
	close(over)
	if most := <-peak; most > resident+illMemory*slower {
		t.Errorf("%d MiB of memory, before it %d", most>>20, resident>>20)
	} else {
		t.Logf("counts: seed %d: memory at most %d MiB, before it %d", seed, most>>20, resident>>20)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before it %d\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
		}
	}
}

// brokenSessions has four programs break so many sessions each, beside each other.
func brokenSessions(t *testing.T, program []byte, seed uint64, sessions int) {
	t.Helper()
	var work sync.WaitGroup
	var mu sync.Mutex
	all := map[string]int{}
	for n := range 4 {
		p := startPeer(t, hostileFile(t, program, "brief", seed+uint64(n), "/nowhere", "nothing"))
		work.Go(func() {
			defer p.stop()
			tried := breakSessions(t, p, sessions, rand.New(rand.NewPCG(seed, uint64(n))))
			mu.Lock()
			defer mu.Unlock()
			for kind, n := range tried {
				all[kind] += n
			}
		})
	}
	work.Wait()
	for _, kind := range []string{"noise", "streams of its own", "pings", "windows", "4 GiB in a frame", "lies", "half a frame", "drip", "silence", "deaf",
		"requests", "noise for files", "requests, replies unread", "hellos", "half a request", "4 GiB in a request", "broken requests", "silence for files"} {
		if all["sessions: "+kind] == 0 {
			t.Errorf("no session of %s", kind)
		}
	}
}

// tellLies has each operation be answered in each way, so many times.
func tellLies(t *testing.T, p *peer, times int) {
	t.Helper()
	s := &tellings{t: t, came: map[string]map[string]int{}}
	calls := agentCalls()
	began := time.Now()
	conn, err := p.dial(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.NewClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next := make(chan int)
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for n := range next {
				one, form := calls[n%len(calls)], n/len(calls)%illForms
				limit := 5 * time.Second * slower
				if form == 1 || form == 7 {
					limit = 400 * time.Millisecond * slower // or a busy host has not asked yet
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				began := time.Now()
				err := one.do(ctx, c.For(fmt.Sprintf("%x", form)))
				cancel()
				s.took(one.op, form, began, limit, err)
			}
		})
	}
	for n := range times * len(calls) * illForms {
		next <- n
	}
	close(next)
	work.Wait()
	tried := p.tried()
	answers := 0
	for _, one := range calls {
		told := 0
		for kind, n := range tried {
			if strings.HasPrefix(kind, "lie "+one.op+": ") {
				told++
				answers += n
			}
		}
		if told != illForms {
			t.Errorf("%s was answered in %d ways of %d", one.op, told, illForms)
		}
		t.Logf("%s: answered in %d ways: %s", one.op, told, counted(s.came[one.op]))
	}
	noLeak(t, tried)
	t.Logf("counts: %d operations x %d ways to answer x %d = %d answers in %v, no call longer than %v; %d MiB of endless answers, %d items of lists",
		len(calls), illForms, times, answers, time.Since(began).Round(time.Millisecond), s.most.Round(time.Millisecond),
		(tried["bytes of endless answers"]+tried["bytes of endless output"])>>20, tried["items of lists"])
}

// breakSessions has many short sessions on both channels, each of them one attack.
func breakSessions(t *testing.T, p *peer, sessions int, rng *rand.Rand) map[string]int {
	ws, err := workspace.Create(filepath.Join(p.dir, "ws"), workspace.Options{})
	if err != nil {
		t.Error(err)
		return nil
	}
	defer ws.Close()
	calls := agentCalls()
	ended := map[string]int{}
	var mu sync.Mutex
	end := func(kind string, err error) {
		mu.Lock()
		defer mu.Unlock()
		code := string(holt.CodeOf(err))
		if err == nil {
			code = "ok"
		}
		ended[kind+" "+code]++
	}
	patient := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 200*time.Millisecond*slower)
	}
	began := time.Now()
	var both sync.WaitGroup
	both.Go(func() {
		for range sessions {
			ctx, cancel := patient()
			conn, err := p.dial(ctx, "f")
			if err == nil {
				err = mount.Guest(ctx, ws, conn, mount.GuestOptions{})
			}
			if cancel(); holt.CodeOf(err) == holt.Internal {
				t.Errorf("a session of the file channel met a defect: %v", err)
			}
			end("files", err)
		}
	})
	both.Go(func() {
		for range sessions {
			ctx, cancel := patient()
			conn, err := p.dial(ctx, "c")
			if err == nil {
				var c *agent.Client
				if c, err = agent.NewClient(conn); err == nil {
					for range 3 {
						err = calls[rng.IntN(len(calls))].do(ctx, c)
						end("call", err)
					}
					c.Close()
				}
			}
			cancel()
			end("control", err)
		}
	})
	both.Wait()
	if report, err := ws.Check(t.Context()); err != nil || len(report.Problems) > 0 {
		t.Errorf("check: %.5v %v", report.Problems, err)
	}
	took := time.Since(began)
	tried := p.tried()
	noLeak(t, tried)
	t.Logf("counts: %d sessions on each channel in %v: %d requests (%d broken), %d frames, %d MiB of noise; %s",
		sessions, took.Round(time.Millisecond), tried["requests"], tried["broken requests"], tried["frames of the control channel"], tried["bytes of noise"]>>20, counted(ended))
	return tried
}

func noLeak(t *testing.T, tried map[string]int) {
	t.Helper()
	if len(tried) == 0 {
		t.Error("the program says nothing of what it tried")
	}
	for kind, n := range tried {
		if strings.HasPrefix(kind, "LEAK") {
			t.Errorf("%s: %d", kind, n)
		}
	}
}

// lastTried is the last that the program says that it has tried.
func lastTried(said string) map[string]int {
	const before = "tried "
	for at := strings.LastIndex(said, before+"{"); at >= 0; at = strings.LastIndex(said[:at], before+"{") {
		var tried map[string]int
		if json.NewDecoder(strings.NewReader(said[at+len(before):])).Decode(&tried) == nil {
			return tried
		}
	} // what comes last may be cut off
	return nil
}

// counted lists counts by kind.
func counted(m map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%s %d", kind, m[kind]))
	}
	return strings.Join(all, ", ")
}
