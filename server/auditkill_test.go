package server_test

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holt"
	"holt/audit"
	"holt/server"
	"holt/server/servertest"
)

// auditKilled names the directory in which this test's own program, started again, serves until it is killed.
const auditKilled = "HOLT_TEST_AUDIT_DIR"

// TestAnsweredIsAudited: a server is killed (SIGKILL) under eight callers who change something, five times; whatever was
// answered has its entry in the audit log.
func TestAnsweredIsAudited(t *testing.T) {
	if dir := os.Getenv(auditKilled); dir != "" {
		serveAudited(t, dir)
	}
	dir, answered := t.TempDir(), map[string]bool{}
	for round := range 5 {
		killUnderCallers(t, dir, round, answered)
	}
	log, err := audit.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
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

// killUnderCallers starts a server, has it called, and kills it; it notes the ids of the calls that were answered.
func killUnderCallers(t *testing.T, dir string, round int, answered map[string]bool) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^TestAnsweredIsAudited$")
	child.Env = append(os.Environ(), auditKilled+"="+dir, "TMPDIR="+dir) // it cleans nothing up
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, fmt.Sprintf("%d.sock", child.Process.Pid))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	c := overSocket(t, &servertest.Door{Socket: socket})
	var mu sync.Mutex
	var callers sync.WaitGroup
	enough := make(chan struct{}, 8)
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				resp, err := c.client.Post(c.base+"/v1/workspaces", "application/json", strings.NewReader(fmt.Sprintf(`{"name":"w-%d-%d"}`, caller, i)))
				if err != nil {
					return // it was killed
				}
				resp.Body.Close()
				mu.Lock()
				answered[resp.Header.Get("X-Request-Id")] = true
				mu.Unlock()
				if i == 20*(round+1) {
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

// serveAudited serves nouns in memory with a real audit log, until it is killed.
func serveAudited(t *testing.T, dir string) {
	log, err := audit.Open(dir, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	opt := servertest.Options(t, memory(t).Nouns())
	opt.Audit = log
	local, err := server.ListenLocal(filepath.Join(dir, fmt.Sprintf("%d.sock", os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	t.Fatal(server.New(opt).ServeLocal(local))
}
