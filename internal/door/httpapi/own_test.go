package httpapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/audit"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestOwn: a computer speaks of itself alone, and can give its forks nothing that it has not itself.
func TestOwn(t *testing.T) {
	nouns, ctx := servertest.NewSandboxed(t).Nouns(), t.Context()
	made := map[string]holt.Computer{}
	for _, name := range []string{"curie", "bohr"} {
		made[name] = servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: name, Network: &holt.NetworkPolicy{Egress: holt.EgressOff}}, ""))(t)
	}
	servertest.Must(nouns.Computers.Snapshot(ctx, "bohr", holt.SnapshotSpec{Name: "secret"}, ""))(t)
	s := httpapi.New(servertest.Options(t, nouns))
	own := s.Own(made["curie"].ID)
	ask := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		r := httptest.NewRequest(method, "http://holt.internal"+path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		own.ServeHTTP(w, r)
		b, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(b)
	}
	servertest.Must(nouns.Files.Write(ctx, "curie", "/home/agent/report", holt.WriteSpec{}, strings.NewReader("report")))(t)
	if code, said := ask("POST", "/v1/self/artifacts", `{"path":"/home/agent/none"}`); code != http.StatusNotFound || !strings.Contains(said, "/home/agent/none") {
		t.Errorf("it published what there is not: %d %s", code, said)
	}
	servertest.Must(nouns.Runs.Start(ctx, "curie", holt.RunSpec{Command: "truncate -s 1P vast; touch done"}, ""))(t)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := nouns.Files.Stat(ctx, "curie", "/home/agent/done"); err == nil || time.Now().After(end) {
			break
		}
	}
	if code, said := ask("POST", "/v1/self/artifacts", `{"path":"/home/agent/vast"}`); code != httpapi.Status(holt.TooMany) {
		t.Errorf("it published more than its disk can have: %d %s", code, said)
	}
	for _, c := range []struct{ method, path, body, has string }{
		{"POST", "/v1/self/artifacts", `{"path":"/home/agent/report"}`, `"name":"curie/report"`},
		{"POST", "/v1/self/artifacts", `{"path":"/home/agent/report","name":"../../bohr/x"}`, `"bucket":"computers","name":"curie/bohr/x"`},
		{"GET", "/v1/self", "", `"name":"curie"`},
		{"GET", "/v1/self/network", "", `"egress":"off"`},
		{"GET", "/v1/self/network/traffic", "", `"destinations":[]`},
		{"POST", "/v1/self/checkpoint", `{"name":"mine"}`, `"mine"`},
		{"POST", "/v1/self/snapshot", `{"name":"dawn"}`, `"dawn"`},
		{"GET", "/v1/self/snapshots", "", `"dawn"`},
		{"POST", "/v1/self/fork", `{"name":"dirac"}`, `"dirac"`},
	} {
		if code, said := ask(c.method, c.path, c.body); code != http.StatusOK || !strings.Contains(said, c.has) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, said)
		}
	}
	if _, said := ask("GET", "/v1/self/snapshots", ""); strings.Contains(said, "secret") {
		t.Errorf("it sees the snapshots of another: %s", said)
	}
	if p := servertest.Must(nouns.Networks.Get(ctx, "dirac"))(t); p.Egress != holt.EgressOff {
		t.Errorf("its fork may reach %+v", p)
	}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/v1/self/fork", `{"network":{"egress":"open"}}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{"at":"bohr@secret"}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{"name":"a b"}`, http.StatusBadRequest},
		{"POST", "/v1/self/fork", `{`, http.StatusBadRequest},
		{"POST", "/v1/self/snapshot", `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, http.StatusBadRequest},
		{"PUT", "/v1/self/network", `{"egress":"open"}`, http.StatusMethodNotAllowed},
		{"GET", "/v1/computers", "", http.StatusNotFound},
		{"DELETE", "/v1/self", "", http.StatusMethodNotAllowed},
	} {
		if code, said := ask(c.method, c.path, c.body); code != c.code || !strings.Contains(said, `"code"`) {
			t.Errorf("%s %s %.40s: %d %.200s", c.method, c.path, c.body, code, said)
		}
	}
	servertest.Must(nouns.Computers.Snapshot(ctx, "bohr", holt.SnapshotSpec{Name: "dusk"}, "key"))(t)
	if code, said := ask("POST", "/v1/self/snapshot", `{"name":"dusk"}`, "Idempotency-Key", "key"); code != http.StatusOK || !strings.Contains(said, string(made["curie"].ID)) {
		t.Errorf("with a key that another caller has used: %d %s", code, said)
	}
	if code, said := ask("POST", "/v1/self/pause", ""); code != http.StatusOK || !strings.Contains(said, `"paused"`) {
		t.Errorf("pause: %d %s", code, said)
	}
}

// lateSnapshots lets snapshots begin, and end when told.
type lateSnapshots struct {
	nouns.Computers
	begun chan holt.Actor
	end   chan struct{}
}

func (l lateSnapshots) Snapshot(ctx context.Context, ref string, spec holt.SnapshotSpec, key string) (holt.Snapshot, error) {
	by, _ := holt.ActorOf(ctx)
	l.begun <- by
	select {
	case <-l.end:
	case <-ctx.Done():
		return holt.Snapshot{}, ctx.Err()
	}
	return l.Computers.Snapshot(ctx, ref, spec, key)
}

// manySnapshots are more than were taken.
type manySnapshots struct {
	nouns.Snapshots
	more int
}

func (m *manySnapshots) List(ctx context.Context, ref string) ([]holt.Snapshot, error) {
	all, err := m.Snapshots.List(ctx, ref)
	return append(all, make([]holt.Snapshot, m.more)...), err
}

// TestOwnIsBounded: a computer changes itself once at a time, in its own name, has only so many forks, which have
// none, and only so many snapshots.
func TestOwnIsBounded(t *testing.T) {
	nouns, ctx := servertest.NewSandboxed(t).Nouns(), t.Context()
	curie := servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""))(t)
	late := lateSnapshots{nouns.Computers, make(chan holt.Actor, 1), make(chan struct{})}
	nouns.Computers = late
	many := &manySnapshots{Snapshots: nouns.Snapshots}
	nouns.Snapshots = many
	s := httpapi.New(servertest.Options(t, nouns))
	ask := func(ctx context.Context, id holt.ComputerID, path, body string, header ...string) (int, string) {
		r := httptest.NewRequestWithContext(ctx, "POST", "http://holt.internal/v1/self/"+path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		s.Own(id).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	refused := func(id holt.ComputerID, path, body string, code int, header ...string) {
		t.Helper()
		if got, said := ask(ctx, id, path, body, header...); got != code {
			t.Errorf("%s %s: %d %s", path, body, got, said)
		} else if code == http.StatusTooManyRequests && !strings.Contains(said, "hint") {
			t.Errorf("%s %s: it is not told why: %s", path, body, said)
		}
	}

	gone, leave := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); ask(gone, curie.ID, "snapshot", "", "Idempotency-Key", "first") }()
	if by := <-late.begun; by.Computer != curie.ID || by.Name != "curie" {
		t.Errorf("done by %+v", by)
	}
	leave()
	refused(curie.ID, "checkpoint", "", http.StatusTooManyRequests)
	refused(curie.ID, "snapshot", "", http.StatusTooManyRequests)
	refused(curie.ID, "snapshot", "", http.StatusTooManyRequests, "Idempotency-Key", "second")
	repeated := make(chan struct{})
	go func() { // who comes again waits until it has ended
		defer close(repeated)
		refused(curie.ID, "snapshot", "", http.StatusOK, "Idempotency-Key", "first")
	}()
	short, enough := context.WithTimeout(ctx, 10*time.Millisecond)
	defer enough()
	if code, said := ask(short, curie.ID, "snapshot", "", "Idempotency-Key", "first"); code == http.StatusOK {
		t.Errorf("who left was answered: %s", said)
	}
	if len(late.begun) > 0 {
		t.Error("two at once")
	}
	close(late.end)
	<-ended
	<-late.begun
	<-repeated
	if m := servertest.Must(nouns.Snapshots.List(ctx, "curie"))(t); len(m) != 1 {
		t.Errorf("%d snapshots: its caller left, and it was not taken", len(m))
	}
	refused(curie.ID, "fork", `{"count":5}`, http.StatusTooManyRequests)
	refused(curie.ID, "fork", `{"count":3}`, http.StatusOK, "Idempotency-Key", "three")
	refused(curie.ID, "fork", `{"count":2}`, http.StatusTooManyRequests)
	refused(curie.ID, "fork", `{"count":3}`, http.StatusOK, "Idempotency-Key", "three") // was done
	refused(curie.ID, "fork", `{"name":"dirac"}`, http.StatusOK)
	refused(curie.ID, "fork", "", http.StatusTooManyRequests)
	dirac := servertest.Must(nouns.Computers.Get(ctx, "dirac"))(t)
	refused(dirac.ID, "fork", "", http.StatusForbidden)
	refused(curie.ID, "checkpoint", "", http.StatusBadRequest, "Idempotency-Key", strings.Repeat("k", 129))
	many.more = 31 - len(servertest.Must(nouns.Snapshots.List(ctx, "curie"))(t))
	refused(curie.ID, "snapshot", "", http.StatusOK)
	<-late.begun
	refused(curie.ID, "snapshot", "", http.StatusTooManyRequests)

	bohr := servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr"}, ""))(t)
	for range 63 {
		servertest.Must(nouns.History.Checkpoint(ctx, "bohr", holt.CheckpointSpec{}, ""))(t)
	}
	refused(bohr.ID, "checkpoint", `{"name":"last"}`, http.StatusOK)
	refused(bohr.ID, "checkpoint", `{"name":"one more"}`, http.StatusTooManyRequests)
	servertest.Must(nouns.History.Checkpoint(ctx, "bohr", holt.CheckpointSpec{Name: "its owner's"}, ""))(t)
}

// TestOwnIsSentSoon: a body that comes byte by byte, each in time, is waited for as long as one that does not come.
func TestOwnIsSentSoon(t *testing.T) {
	nouns, ctx := servertest.New(t).Nouns(), t.Context()
	curie := servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""))(t)
	opt := servertest.Options(t, nouns)
	opt.Patience = time.Second
	s := httptest.NewServer(httpapi.New(opt).Own(curie.ID))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, "POST /v1/self/checkpoint HTTP/1.1\r\nHost: holt.internal\r\nContent-Length: 60000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		answered <- err
	}()
	for drip := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case err := <-answered:
			if errors.Is(err, os.ErrDeadlineExceeded) { // an end without an answer is one, too
				t.Error("it is waited for")
			}
			return
		case <-drip.C:
			conn.Write([]byte(" ")) // or it has been answered
		}
	}
}

// TestOwnIsHeardOfLittle: what a computer asks of itself is in the audit log of its tenant; what there is not, and what it asks
// too often, is in none, and does not hinder what it looks at, nor another.
func TestOwnIsHeardOfLittle(t *testing.T) {
	log, err := audit.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	nouns, ctx := servertest.New(t).Nouns(), t.Context()
	opt := servertest.Options(t, nouns)
	opt.Audit = log
	s := httpapi.New(opt)
	var ids []holt.ComputerID
	for _, name := range []string{"curie", "bohr"} {
		ids = append(ids, servertest.Must(nouns.Computers.Create(ctx, holt.ComputerSpec{Name: name}, ""))(t).ID)
	}
	ask := func(id holt.ComputerID, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Own(id).ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "http://holt.internal/v1/"+path, nil))
		return w
	}
	if w := ask(ids[0], "POST", "self/checkpoint"); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body.String())
	}
	codes := map[int]int{}
	for range 200 {
		w := ask(ids[0], "POST", "self/nothing")
		codes[w.Code]++
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Fatal("when to come again is not said")
		}
	}
	if codes[404] < 99 || codes[429] < 50 || codes[404]+codes[429] != 200 {
		t.Errorf("answered %v", codes)
	}
	if w := ask(ids[0], "GET", "self"); w.Code != http.StatusOK {
		t.Errorf("it cannot look: %d", w.Code)
	}
	if w := ask(ids[1], "POST", "self/checkpoint"); w.Code != http.StatusOK {
		t.Errorf("another: %d", w.Code)
	}
	entries, err := log.List(ctx, holt.AuditSpec{Limit: 1000})
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, name := range []string{"bohr", "curie"} {
		if e := entries[i]; e.Name != name || e.Tenant != "default" || e.Actor != "computer" || e.Op != "self/checkpoint" {
			t.Errorf("%+v", e)
		}
	}
}
