package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/audit"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/nouns"
)

// auditKilled names the directory in which this test's own program, started again, serves until it is killed.
const auditKilled = "HOLT_TEST_AUDIT_DIR"

// auditGuest names the guest agent of its computers.
const auditGuest = "HOLT_TEST_AUDIT_GUEST"

// TestAnsweredIsAudited: a server is killed (SIGKILL) under eight callers who change something, five times; whatever was
// answered has its entry in the audit log.
func TestAnsweredIsAudited(t *testing.T) {
	if dir := os.Getenv(auditKilled); dir != "" {
		serveAudited(t, dir)
	}
	dir, answered := servertest.Home(t), map[string]bool{}
	for round := range 5 {
		killUnderCallers(t, dir, round, answered)
	}
	log := servertest.Open(t, servertest.Config(t, dir)).Audit()
	written := map[string]int{}
	for before := int64(0); ; {
		page, err := log.List(t.Context(), holt.AuditSpec{Limit: 1000, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			written[e.Request]++
			before = e.Seq
		}
		if len(page) == 0 {
			break
		}
	}
	for id := range answered {
		if written[id] != 1 {
			t.Errorf("the answered call %s has %d entries", id, written[id])
		}
	}
	t.Logf("counts: %d calls answered before 5 kills, %d entries", len(answered), len(written))
}

// TestBegunIsAudited: a server is killed while much is followed, and while a command and a terminal that it has started have no
// answer yet: the audit log says who it was.
func TestBegunIsAudited(t *testing.T) {
	dir := servertest.Home(t)
	child, c := audited(t, dir)
	var run holt.Run
	var job holt.Job
	c.made("/v1/computers", `{"name":"einstein"}`, &struct{}{})
	c.made("/v1/computers/einstein/runs", `{"command":"sleep 600"}`, &run)
	c.made("/v1/jobs", `{"run":{"command":"sleep 600"}}`, &job)
	for _, path := range []string{"/v1/runs/" + string(run.ID) + "/events", "/v1/jobs/" + string(job.ID) + "/events", "/v1/computers/einstein/logs?follow=true"} {
		resp, err := c.client.Get(c.base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	var callers sync.WaitGroup
	deadline := time.Now().Add(time.Minute)
	for path, body := range map[string]string{"runs": `{"command":"sleep 600 #unanswered"}`, "terminals": `{"name":"unanswered"}`} {
		callers.Go(func() {
			if resp, err := c.client.Post(c.base+"/v1/computers/einstein/"+path, "application/json", strings.NewReader(body)); err == nil {
				resp.Body.Close()
				t.Errorf("%s were answered %d", path, resp.StatusCode)
			}
		})
		for text := ""; !strings.Contains(text, unanswered); _, _, text = c.do("GET", "/v1/computers/einstein/"+path, "") {
			if time.Now().After(deadline) {
				t.Fatal("it is not begun: ", text)
			}
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // it was killed
	callers.Wait()
	entries, err := servertest.Open(t, servertest.Config(t, dir)).Audit().List(t.Context(), holt.AuditSpec{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, e := range entries {
		got[e.Op+" "+e.Code]++
	}
	want := map[string]int{"createComputer ok": 1, "startRun begun": 2, "startRun ok": 1, "createJob ok": 1, "openTerminal begun": 1, "followRun begun": 1, "followJob begun": 1, "computerLogs begun": 1}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// made makes something, and decodes what it is.
func (c *caller) made(path, body string, out any) {
	c.t.Helper()
	status, _, text := c.do("POST", path, body)
	if err := json.Unmarshal([]byte(text), out); status != http.StatusCreated || err != nil {
		c.t.Fatal(path, status, text, err)
	}
}

// TestFollowsAreAudited: who follows a run or a job by a token is in the audit log, once where it has ended already.
func TestFollowsAreAudited(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	log, err := audit.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	opt.Audit = log
	c := overTCP(t, servertest.Serve(t, opt, ""))
	var run holt.Run
	var job holt.Job
	c.made("/v1/computers", `{"name":"einstein"}`, &struct{}{})
	c.made("/v1/computers/einstein/runs", `{"command":"true"}`, &run)
	c.made("/v1/jobs", `{"run":{"command":"true"}}`, &job)
	for op, path := range map[string]string{"followRun": "/v1/runs/" + string(run.ID) + "/events", "followJob": "/v1/jobs/" + string(job.ID) + "/events"} {
		c.do("GET", path, "") // to its end
		_, header, _ := c.do("GET", path, "")
		var again []string
		for end := time.Now().Add(time.Minute); !slices.Contains(again, "ok") && time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // it is written after the answer
			entries, err := log.List(t.Context(), holt.AuditSpec{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			again = nil
			for _, e := range entries {
				if e.Request == header.Get("X-Request-Id") {
					again = append(again, e.Code)
					if e.Op != op || e.Actor != "token" {
						t.Errorf("%+v", e)
					}
				}
			}
		}
		if len(again) != 1 || again[0] != "ok" {
			t.Errorf("%s of what has ended: %q", op, again)
		}
	}
}

// killUnderCallers starts a server, has it called, and kills it; it notes the ids of the calls that were answered.
func killUnderCallers(t *testing.T, dir string, round int, answered map[string]bool) {
	t.Helper()
	child, c := audited(t, dir)
	var mu sync.Mutex
	var callers sync.WaitGroup
	enough := make(chan struct{}, 8)
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				resp, err := c.client.Post(c.base+"/v1/tokens", "application/json", strings.NewReader(fmt.Sprintf(`{"name":"t-%d-%d"}`, caller, i)))
				if err != nil {
					return // it was killed
				}
				resp.Body.Close()
				mu.Lock()
				answered[resp.Header.Get("X-Request-Id")] = true
				mu.Unlock()
				if i == 5*(round+1) {
					enough <- struct{}{}
				}
			}
		})
	}
	<-enough
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait() // it was killed
	callers.Wait()
}

// audited starts a server that is to be killed.
func audited(t *testing.T, dir string) (*exec.Cmd, *caller) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^TestAnsweredIsAudited$")
	child.Env = append(os.Environ(), auditKilled+"="+dir, auditGuest+"="+machinetest.Agent(t))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, fmt.Sprintf("%d.sock", child.Process.Pid))
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return child, overSocket(t, &servertest.Door{Socket: socket})
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// unanswered is what is started and never answered.
const unanswered = "unanswered"

type unansweredRuns struct{ nouns.Runs }

func (n unansweredRuns) Start(ctx context.Context, computer string, spec holt.RunSpec, key string) (holt.Run, error) {
	run, err := n.Runs.Start(ctx, computer, spec, key)
	if spec.Command == "sleep 600 #"+unanswered {
		select {}
	}
	return run, err
}

type unansweredTerminals struct{ nouns.Terminals }

func (n unansweredTerminals) Open(ctx context.Context, computer string, spec holt.TerminalSpec, key string) (holt.Terminal, error) {
	terminal, err := n.Terminals.Open(ctx, computer, spec, key)
	if spec.Name == unanswered {
		select {}
	}
	return terminal, err
}

// serveAudited serves a daemon until it is killed.
func serveAudited(t *testing.T, dir string) {
	guest, err := os.ReadFile(os.Getenv(auditGuest))
	if err != nil {
		t.Fatal(err)
	}
	nouns := servertest.Open(t, daemon.Config{DataDir: dir, Engine: daemon.EngineLocal, GuestBinary: guest, Log: servertest.Log(os.Stderr)}).Nouns()
	nouns.Runs, nouns.Terminals = unansweredRuns{nouns.Runs}, unansweredTerminals{nouns.Terminals}
	local, err := httpapi.ListenLocal(filepath.Join(dir, fmt.Sprintf("%d.sock", os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(httpapi.New(servertest.Options(t, nouns)).ServeLocal(local))
}
