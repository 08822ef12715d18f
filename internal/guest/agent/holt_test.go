package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"holt"
)

// selfServer simulates the daemon's API for a computer, until it is told to hang up.
type selfServer struct {
	t    *testing.T
	mu   sync.Mutex
	is   holt.Self
	seen []string
	keys map[string]int
	cut  func() // of the next change: what happens when its connection ends; nil: it is answered
	away int    // of the next changes: they were done, but no daemon answers
}

func (s *selfServer) serve() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(c)
		}
	}()
	return l.Addr().String()
}

func (s *selfServer) answer(c net.Conn) {
	defer c.Close()
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, _ := io.ReadAll(q.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, q.Method+" "+q.URL.Path+" "+string(body))
	s.keys[q.Header.Get("Idempotency-Key")]++
	if q.Method == "POST" && s.cut != nil {
		s.cut()
		s.cut = nil
		return
	}
	status, said := 200, any(s.is)
	switch q.URL.Path {
	case "/v1/self", "/v1/self/pause":
	case "/v1/self/checkpoint":
		said = holt.Checkpoint{Name: "mine"}
	case "/v1/self/snapshot":
		status, said = 409, holt.Errorf(holt.Conflict, "it is being deleted").WithHint("wait")
	case "/v1/self/artifacts":
		said = holt.Published{Bucket: "artifacts", Name: "curie/report.pdf"}
	case "/v1/self/fork":
		said = holt.ForkedComputers{Computers: []holt.ForkedComputer{{Name: "bohr"}, {Name: "dirac", Error: holt.Errorf(holt.OutOfSpace, "the disk is full")}}}
	}
	if q.Method == "POST" && s.away > 0 {
		s.away, status, said = s.away-1, 503, holt.Errorf(holt.Unavailable, "holt is away")
	}
	b, _ := json.Marshal(said)
	fmt.Fprintf(c, "HTTP/1.0 %d x\r\nContent-Type: application/json\r\n\r\n%s", status, b)
}

// TestCommand: requests and exit status of the command in a computer. If its
// connection ends, it finds out whether it is in a fork.
func TestCommand(t *testing.T) {
	s := &selfServer{t: t, is: holt.Self{ID: "cmp_1", Name: "curie"}, keys: map[string]int{}}
	address := s.serve()
	run := func(line string) (int, string) {
		var out, said bytes.Buffer
		status := runCommand(strings.Fields(line), address, &out, &said)
		return status, out.String() + said.String()
	}
	for _, c := range []struct {
		line   string
		status int
		says   string
	}{
		{"", 0, "holt self"}, {"--help", 0, "Exit status"}, {"fork --help", 0, "Exit status"},
		{"self", 0, `"name": "curie"`}, {"self --json=false", 0, "curie\tcmp_1"}, {"self x", 2, "does not take"},
		{"checkpoint mine", 0, `"mine"`}, {"checkpoint --json=false mine", 0, "checkpoint mine"}, {"checkpoint a b", 2, "does not take"},
		{"snapshot --name dawn", 4, "holt: it is being deleted\nhint: wait"}, {"snapshot --count 2", 2, "not defined"},
		{"fork --count 2 --name x --json=false", 6, "bohr runs, forked from curie\nholt: dirac: the disk is full"},
		{"publish", 2, "needs a file"}, {"publish --json=false /tmp/report.pdf", 0, "published as artifacts/curie/report.pdf"}, {"publish a b", 2, "does not take"},
		{"fork --count x", 2, "invalid value"}, {"pause", 0, `"curie"`}, {"delete", 2, "unknown command"},
	} {
		if status, said := run(c.line); status != c.status || !strings.Contains(said, c.says) {
			t.Errorf("holt %s: %d %s", c.line, status, said)
		}
	}
	for _, away := range []int{0, 1, 2} {
		if s.away = away; away == 0 {
			s.cut = func() {}
		}
		clear(s.keys)
		if status, said := run("checkpoint again"); status != 0 || !strings.Contains(said, "mine") {
			t.Errorf("its connection ended, or %d times there was no daemon: %d %s", away, status, said)
		}
		if last := s.seen[len(s.seen)-1]; last != `POST /v1/self/checkpoint {"name":"again"}` {
			t.Error(last)
		}
		twice := false
		for key, n := range s.keys {
			twice = twice || key != "" && n == max(2, away+1)
		}
		if !twice {
			t.Errorf("it is not asked again by its key, %d: %v", away, s.keys)
		}
	}
	s.away = 1
	if status, said := run("pause"); status != 5 || !strings.Contains(said, "holt is away") { // it may not have been paused
		t.Errorf("no answer to a pause: %d %s", status, said)
	}
	s.cut = func() {}
	if status, said := run("pause --json=false"); status != 0 || said != "curie was paused and is resumed\n" {
		t.Errorf("it was paused: %d %s", status, said)
	}
	s.cut = func() { s.is = holt.Self{ID: "cmp_2", Name: "bohr"} }
	if status, said := run("fork --json=false"); status != 0 || said != "this is bohr, a fork\n" {
		t.Errorf("in a fork: %d %s", status, said)
	}
	if status := runCommand([]string{"self"}, "127.0.0.1:1", io.Discard, io.Discard); status != 5 {
		t.Errorf("no daemon: %d", status)
	}
}

func FuzzOwnAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.0 404\r\n\r\n{\"code\":\"not_found\",\"message\":\"x\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var into holt.Self
		_ = readOwn(bytes.NewReader(b), &into)
	})
}

func TestInstallCommands(t *testing.T) {
	root := t.TempDir()
	if err := installCommands(root); err == nil {
		t.Error("there is no such directory")
	}
	if err := os.MkdirAll(root+commandDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := installCommands(root); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"holt", "sync"} {
		path := root + "/usr/local/bin/" + name
		if to, err := os.Readlink(path); err != nil || to != GuestPath {
			t.Errorf("%s %v", to, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("mine"), 0o755); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(path); installCommands(root) != nil || string(b) != "mine" {
			t.Errorf("the user's own %s is gone", name)
		}
	}
}
