package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// started returns a server with one computer, and a run of the command on it.
func started(t *testing.T, spec holt.RunSpec) (*servertest.Door, nouns.Set, holt.Run) {
	t.Helper()
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	opt.Beat = 10 * time.Millisecond
	d := servertest.Serve(t, opt, "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	run, err := nouns.Runs.Start(t.Context(), "curie", spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return d, nouns, run
}

func TestEventsOnTheWire(t *testing.T) {
	d, nouns, run := started(t, holt.RunSpec{Command: "echo hello"})
	servertest.Collect(t, nouns, run.ID)
	c := overSocket(t, d)
	path := "/v1/runs/" + string(run.ID) + "/events"
	get := func(path string, headers ...string) (http.Header, string) {
		_, header, text := c.do("GET", path, "", headers...)
		return header, strings.ReplaceAll(text, ": still here\n\n", "") // as often as the host is slow
	}
	header, text := get(path)
	if header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("content type %q", header.Get("Content-Type"))
	}
	want := "id: 6\nevent: stdout\ndata: {\"kind\":\"stdout\",\"offset\":0,\"data\":\"aGVsbG8K\"}\n\nid: 6\nevent: exit\ndata: {\"kind\":\"exit\",\"offset\":6,\"run\":{"
	if !strings.HasPrefix(text, want) || !strings.HasSuffix(text, "}}\n\n") {
		t.Errorf("got  %q\nwant %q…", text, want)
	}
	for _, resume := range []struct{ path, header string }{
		{path + "?offset=4", ""}, {path, "Last-Event-ID: 4"}, {path + "?offset=1", "Last-Event-ID: 4"},
	} {
		headers := []string{}
		if resume.header != "" {
			headers = append(headers, resume.header)
		}
		if _, text := get(resume.path, headers...); !strings.HasPrefix(text, "id: 6\nevent: stdout\ndata: {\"kind\":\"stdout\",\"offset\":4,\"data\":\"bwo=\"}\n\n") {
			t.Errorf("resumed with %+v: %q", resume, text)
		}
	}
	if _, text := get(path + "?offset=6"); !strings.HasPrefix(text, "id: 6\nevent: exit\n") {
		t.Errorf("resumed at the end: %q", text)
	}
}

// TestRestingFollower: a caller that reads nothing for longer than others may is not cut off from a run's output.
func TestRestingFollower(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	opt.Patience = 20 * time.Millisecond
	d := servertest.Serve(t, opt, "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	const size = 3 << 20 // less than what the memory keeps, more than a socket does
	run, err := nouns.Runs.Start(t.Context(), "curie", holt.RunSpec{Command: holt.OSString(fmt.Sprintf("head -c %d /dev/zero", size))}, "")
	if err != nil {
		t.Fatal(err)
	}
	servertest.Collect(t, nouns, run.ID)
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/runs/%s/events HTTP/1.1\r\nHost: holt\r\nConnection: close\r\n\r\n", run.ID)
	time.Sleep(10 * opt.Patience)
	b, err := io.ReadAll(conn)
	if err != nil || len(b) < size || !strings.Contains(string(b[len(b)-4096:]), "event: exit") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestGap(t *testing.T) {
	const all, kept = 5 << 20, 4 << 20
	d, nouns, run := started(t, holt.RunSpec{Command: holt.OSString(fmt.Sprintf("yes | head -c %d", all))})
	servertest.Collect(t, nouns, run.ID)
	var first []string
	at := int64(2)
	err := d.Client(t, time.Minute).Runs.Follow(t.Context(), run.ID, at, func(e holt.RunEvent) error {
		if len(first) == 0 || first[len(first)-1] != string(e.Kind) {
			first = append(first, string(e.Kind))
		}
		if e.Offset != at || e.Kind == holt.RunGap && (e.Dropped < all-kept-2 || e.Dropped > all-kept+64<<10) {
			t.Errorf("%s at %d, %d dropped; it is at %d", e.Kind, e.Offset, e.Dropped, at)
		}
		at = e.Offset + e.Dropped + int64(len(e.Data))
		return nil
	})
	if want := "[gap stdout exit]"; err != nil || fmt.Sprint(first) != want || at != all {
		t.Errorf("got  %v to %d, %v\nwant %s", first, at, err, want)
	}
}

// TestBeat reads comments from a stream that has nothing to say.
func TestBeat(t *testing.T) {
	d, nouns, run := started(t, holt.RunSpec{Command: "sleep 1000"})
	c := overSocket(t, d)
	r, err := http.NewRequestWithContext(t.Context(), "GET", c.base+"/v1/runs/"+string(run.ID)+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 3 {
		line, err := in.ReadString('\n')
		blank, _ := in.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, ":") || blank != "\n" {
			t.Fatalf("read %q, %q, %v", line, blank, err)
		}
	}
	// Shutdown ends it, although the run goes on.
	if err := d.Server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); err != nil || strings.Contains(string(rest), "event:") {
		t.Errorf("after shutdown: %q, %v", rest, err)
	}
	if err := nouns.Runs.Signal(context.Background(), run.ID, "SIGKILL", ""); err != nil {
		t.Error(err)
	}
}

// TestInputOfEndedRun has a caller who sends nothing and waits: the answer
// must come when the run ends.
func TestInputOfEndedRun(t *testing.T) {
	d, nouns, run := started(t, holt.RunSpec{Command: "read line; echo got $line", Stdin: true})
	conn, err := net.Dial("unix", d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /v1/runs/%s/stdin HTTP/1.1\r\nHost: holt\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhi\n\r\n", run.ID)
	if out, _ := servertest.Collect(t, nouns, run.ID); out[holt.RunStdout] != "got hi\n" {
		t.Errorf("output %q", out)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 409 || !strings.Contains(string(body), `"code":"conflict"`) {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func TestRange(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	c := overSocket(t, servertest.Serve(t, servertest.Options(t, nouns), ""))
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	const at = "/v1/computers/curie/files/content?path=/home/agent/f"
	if status, _, text := c.do("PUT", at+"&mode=640", "0123456789", "Content-Type: "); status != 200 || !strings.Contains(text, `"mode":416`) {
		t.Fatalf("wrote: %d, %s", status, text)
	}
	_, header, _ := c.do("GET", at, "")
	etag := header.Get("ETag")
	for _, r := range []struct {
		status         int
		header, answer string
		body           string
	}{
		{200, "Range: ", "", "0123456789"},
		{206, "Range: bytes=0-0", "bytes 0-0/10", "0"},
		{206, "Range: bytes=2-4", "bytes 2-4/10", "234"},
		{206, "Range: bytes=7-", "bytes 7-9/10", "789"},
		{206, "Range: bytes=7-100", "bytes 7-9/10", "789"},
		{206, "Range: bytes=-3", "bytes 7-9/10", "789"},
		{206, "Range: bytes=-30", "bytes 0-9/10", "0123456789"},
		{200, "Range: bytes=1-2,4-5", "", "0123456789"},
		{200, "Range: lines=1-2", "", "0123456789"},
		{200, "Range: bytes=5-2", "", "0123456789"},
	} {
		status, header, body := c.do("GET", at, "", r.header)
		if status != r.status || header.Get("Content-Range") != r.answer || body != r.body {
			t.Errorf("%s: %d, %q, %q; want %d, %q, %q", r.header, status, header.Get("Content-Range"), body, r.status, r.answer, r.body)
		}
	}
	const link = "/v1/computers/curie/files/content?path=/home/agent/link"
	if _, err := nouns.Files.Symlink(t.Context(), "curie", holt.SymlinkSpec{Path: "/home/agent/link", Target: "f"}, ""); err != nil {
		t.Fatal(err)
	}
	for _, r := range []string{"bytes=0-0", "bytes=2-4", "bytes=-3", "bytes=1000-"} { // the link's own size is 1
		for method, want := range map[string]string{"GET": "0123456789", "HEAD": ""} {
			status, header, body := c.do(method, link, "", "Range: "+r)
			if status != 200 || header.Get("Content-Range") != "" || header.Get("Accept-Ranges") != "" || body != want {
				t.Errorf("%s by a link: %s %d, %v, %q; want 200 and the whole", r, method, status, header, body)
			}
		}
	}
	if status, header, _ := c.do("GET", at, "", "Range: bytes=10-"); status != 416 || header.Get("Content-Range") != "bytes */10" {
		t.Errorf("behind the end: %d, %q", status, header.Get("Content-Range"))
	}
	if status, _, _ := c.do("GET", at, "", "Range: bytes=2-4", "If-Range: "+etag); status != 206 {
		t.Errorf("if it is still the same: status %d, want 206", status)
	}
	if status, _, body := c.do("GET", at, "", "Range: bytes=2-4", `If-Range: "other"`); status != 200 || body != "0123456789" {
		t.Errorf("if it has changed: status %d, %q", status, body)
	}
}

// shortFiles says that files are longer than they are.
type shortFiles struct{ nouns.Files }

func (s shortFiles) Stat(ctx context.Context, computer, path string) (holt.FileInfo, error) {
	info, err := s.Files.Stat(ctx, computer, path)
	info.Size += 100
	return info, err
}

// TestCutRead makes a read fail in the middle: the caller must not take the
// part for the whole.
func TestCutRead(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	nouns.Files = shortFiles{nouns.Files}
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := nouns.Files.Write(t.Context(), "curie", "/home/agent/f", holt.WriteSpec{}, strings.NewReader("short")); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	err := d.Client(t, time.Minute).Files.Read(t.Context(), "curie", "/home/agent/f", 0, -1, &got)
	if holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("read %q, %v; want an error", got.String(), err)
	}
}

func TestPages(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	for i := range 25 {
		if _, err := nouns.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: fmt.Sprintf("w%02d", (i*7)%25)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	c := overSocket(t, d)
	var names []string
	cursor := ""
	for pages := 1; ; pages++ {
		_, _, text := c.do("GET", "/v1/workspaces?limit=10&cursor="+cursor, "")
		page := decode[holt.Page[holt.Workspace]](t, text)
		for _, w := range page.Items {
			names = append(names, w.Name)
		}
		if cursor = page.Next; cursor == "" {
			if pages != 3 {
				t.Errorf("%d pages, want 3", pages)
			}
			break
		}
		if pages == 1 { // what was deleted meanwhile leaves no hole
			if err := nouns.Workspaces.Delete(t.Context(), "w09", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, name := range names {
		if name != fmt.Sprintf("w%02d", i) {
			t.Fatalf("listed %v", names)
		}
	}
	if len(names) != 25 {
		t.Errorf("listed %d, want 25", len(names))
	}
}

// samePorts are five listeners of one process at one address, and another.
type samePorts struct{ nouns.Ports }

func (samePorts) List(context.Context, string) ([]holt.Listener, error) {
	one := holt.Listener{Protocol: "tcp", Address: "0.0.0.0", Port: 80, PID: 7}
	return []holt.Listener{one, one, one, {Protocol: "tcp", Address: "0.0.0.0", Port: 443, PID: 7}, one, one}, nil
}

// TestPagesOfEqualPorts: a process may have many sockets at one address (SO_REUSEPORT), more than are in a page.
func TestPagesOfEqualPorts(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	nouns.Ports = samePorts{}
	c := overSocket(t, servertest.Serve(t, servertest.Options(t, nouns), ""))
	for _, limit := range []int{1, 2, 100} {
		var got []int
		for cursor, pages := "", 0; pages == 0 || cursor != "" && pages < 10; pages++ {
			_, _, text := c.do("GET", fmt.Sprintf("/v1/computers/curie/ports?limit=%d&cursor=%s", limit, url.QueryEscape(cursor)), "")
			page := decode[holt.Page[holt.Listener]](t, text)
			for _, l := range page.Items {
				got = append(got, l.Port)
			}
			cursor = page.Next
		}
		if fmt.Sprint(got) != "[80 443]" {
			t.Errorf("pages of %d: ports %v", limit, got)
		}
	}
}
