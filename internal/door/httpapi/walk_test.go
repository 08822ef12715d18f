package httpapi_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// described is the OpenAPI document, as far as walks over it need it.
type described struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct {
			Name, In string
			Required bool
		}
		RequestBody *struct{ Content map[string]any }
		Responses   map[string]struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				}
			}
		}
	}
}

func describedBy(t *testing.T, d *servertest.Door) described {
	t.Helper()
	return decode[described](t, string(d.Server.Document()))
}

// furnished are nouns with one of everything that can be named.
func furnished(t *testing.T) (nouns.Set, map[string]string) {
	t.Helper()
	nouns, ctx := servertest.New(t).Nouns(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: "bell"}, "")
	must(err)
	_, err = nouns.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, "")
	must(err)
	_, err = nouns.History.Checkpoint(ctx, "notes", holt.CheckpointSpec{Name: "first"}, "")
	must(err)
	run, err := nouns.Runs.Start(ctx, "bell", holt.RunSpec{Command: "true"}, "")
	must(err)
	_, err = nouns.Terminals.Open(ctx, "bell", holt.TerminalSpec{Command: "cat"}, "")
	must(err)
	s, err := nouns.Schedules.Create(ctx, holt.ScheduleSpec{Computer: "bell", Name: "nightly", Cron: "@daily", Spec: holt.RunSpec{Command: "true"}}, "")
	must(err)
	u, err := nouns.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/up", Size: 10}, "")
	must(err)
	return nouns, map[string]string{"computer": "bell", "workspace": "notes", "checkpoint": "first", "run": string(run.ID), "terminal": "main", "schedule": string(s.ID),
		"upload": string(u.ID), "tenant": "default", "image": "base", "snapshot": "none", "hold": string(holt.NewHoldID()), "service": "web", "secret": "KEY", "job": string(holt.NewJobID()), "inputs": string(holt.NewJobInputsID())}
}

// odd are values that no program means to send.
var odd = []string{"", " ", "..", "\x00", "a\x00b", "\xff\xfe", "é\u202e", "-1", "0", "1e309", "99999999999999999999", "9223372036854775807", "null", "true", "{}", `"`, "%00", "a b", "A", "-", "#", "@", "x@y", "*",
	strings.Repeat("a", 5000), strings.Repeat("é", 200), "/", "/home/agent", "/none/at/all", "live", "SIGNOTHING"}

// oddJSON are bodies of the same kind.
func oddJSON(r *rand.Rand, depth int) string {
	switch r.IntN(10 - depth) {
	case 0:
		return "null"
	case 1:
		return []string{"-1", "1e400", "9223372036854775808", "0.5", "true", "1"}[r.IntN(6)]
	case 2, 3:
		text, _ := json.Marshal(strings.ToValidUTF8(odd[r.IntN(len(odd))], "?"))
		return string(text)
	case 4:
		return "[" + oddJSON(r, min(depth+1, 8)) + "]"
	case 5:
		return []string{"", "{", "[]]", `{"a":1}{}`, "\xff", strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 20_000), `{"name":"\ud800"}`, `"\u0000"`}[r.IntN(9)]
	}
	fields := []string{"name", "path", "from", "to", "command", "argv", "size", "cpus", "memory_mb", "signal", "sql", "checkpoint", "run", "dir", "cron", "computer", "spec", "max_bytes", "egress", "allow", "env", "count", "mode", "idle_timeout", "sha256", "unknown"}
	var out strings.Builder
	for i := range 1 + r.IntN(4) {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q:%s", fields[r.IntN(len(fields))], oddJSON(r, min(depth+1, 8)))
	}
	return "{" + out.String() + "}"
}

// unmounted are workspaces that are mounted nowhere: odd calls would mount them over directories of the host.
type unmounted struct{ nouns.Workspaces }

func (unmounted) Mount(context.Context, string, holt.MountSpec, string) (holt.Mount, error) {
	return holt.Mount{}, holt.Errorf(holt.Unsupported, "this test mounts nothing")
}

// TestOddInput: whatever is sent to whichever call, the answer is that of the call or an error of the one form, and never the word of a
// defect. It is 12 calls of each; HOLT_SOAK=1 makes it 100. HOLT_SEED gives the numbers.
func TestOddInput(t *testing.T) {
	count := 12
	if os.Getenv("HOLT_SOAK") != "" {
		count = 100
	}
	seed := uint64(1)
	if s := os.Getenv("HOLT_SEED"); s != "" {
		fmt.Sscan(s, &seed)
	}
	nouns, names := furnished(t)
	nouns.Workspaces = unmounted{nouns.Workspaces}
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c, doc := overSocket(t, d), describedBy(t, d)
	r, refused, done := rand.New(rand.NewPCG(seed, 0)), 0, 0
	paths := make([]string, 0, len(doc.Paths))
	for path := range doc.Paths {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		for _, method := range []string{"get", "head", "post", "put", "patch", "delete"} {
			op, ok := doc.Paths[path][method]
			if !ok || op.OperationID == "endDaemon" {
				continue
			}
			for range count {
				at, query, header := path, url.Values{}, http.Header{}
				value := func(name string) string {
					if known := names[name]; known != "" && r.IntN(3) > 0 {
						return known
					}
					return odd[r.IntN(len(odd))]
				}
				for _, p := range op.Parameters {
					switch {
					case p.In == "path":
						at = strings.ReplaceAll(at, "{"+p.Name+"}", url.PathEscape(value(p.Name)))
					case p.In == "query" && (p.Required || r.IntN(2) == 0):
						query.Set(p.Name, value(p.Name))
					case p.In == "header" && r.IntN(2) == 0:
						header.Set(p.Name, strings.Map(func(c rune) rune { return max(c, ' ') }, value(p.Name)))
					}
				}
				if r.IntN(5) == 0 {
					query.Set("unknown", "x")
				}
				body := ""
				if op.RequestBody != nil {
					body = oddJSON(r, 0)
					header.Set("Content-Type", []string{"application/json", "application/json", "text/plain", ""}[r.IntN(4)])
				}
				status, text := c.odd(method, at, query, header, body)
				what := fmt.Sprintf("seed %d: %s %s?%s %.200q", seed, method, at, query.Encode(), body)
				var e holt.Error
				switch {
				case status == 0 || status < 400:
					done++
				case method == "head":
					refused++
				case json.Unmarshal([]byte(text), &e) != nil || e.Message == "" || e.Code == "" || e.Code == holt.Internal || e.Code == holt.Corrupt:
					t.Errorf("%s: status %d %.500s", what, status, text)
				case len(text) > 16<<10:
					t.Errorf("%s: an error of %d bytes", what, len(text))
				default:
					refused++
				}
			}
		}
	}
	t.Logf("counts: %d odd calls of %d paths, %d refused", refused+done, len(paths), refused)
}

// odd makes a call as it is, and returns its status, 0 if it would go on for long.
func (c *caller) odd(method, at string, query url.Values, header http.Header, body string) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, strings.ToUpper(method), c.base+at+"?"+query.Encode(), strings.NewReader(body))
	if err != nil {
		return 0, "" // no client sends it
	}
	r.Header = header
	resp, err := c.client.Do(r)
	if err != nil {
		if ctx.Err() == nil && !strings.Contains(err.Error(), "invalid header") {
			c.t.Errorf("%s %s: %v", method, at, err)
		}
		return 0, ""
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/") {
		return resp.StatusCode, ""
	}
	var text bytes.Buffer
	io.Copy(&text, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, text.String()
}

// whole are lists that come in one page, with why.
var whole = map[string]string{
	"getDoctor":          "a dozen of findings",
	"fileHistory":        "what became of one path; it is bounded by the checkpoints there are",
	"getScheduleHistory": "at most 200 firings are kept",
}

// TestEveryListHasPages: every list has pages, or says why not; and page by page it is what it is in one.
func TestEveryListHasPages(t *testing.T) {
	nouns, names := furnished(t)
	ctx := t.Context()
	var dir bytes.Buffer
	w := tar.NewWriter(&dir)
	for i := range 5 {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprint("f", i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	artifact := servertest.Must(nouns.Artifacts.Put(ctx, holt.ArtifactPut{Name: "linked", Tree: true}, &dir))(t)
	names["artifact"] = string(artifact.ID)
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		if _, err := nouns.Artifacts.CreateLink(ctx, names["artifact"], holt.ArtifactLinkSpec{}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.Computers.Create(ctx, holt.ComputerSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.History.Checkpoint(ctx, "notes", holt.CheckpointSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.Runs.Start(ctx, "bell", holt.RunSpec{Command: "true"}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.Terminals.Open(ctx, "bell", holt.TerminalSpec{Name: name, Command: "cat"}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.WorkspaceFiles.Mkdir(ctx, "notes", holt.MkdirSpec{Path: holt.OSString("/" + name)}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := nouns.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/x", Size: 1}, ""); err != nil {
			t.Fatal(err)
		}
	}
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c, doc, several := overSocket(t, d), describedBy(t, d), 0
	for path, methods := range doc.Paths {
		op, ok := methods["get"]
		if !ok || !strings.Contains(op.Responses["200"].Content["application/json"].Schema.Ref, "/Page") {
			continue
		}
		paged := false
		for _, p := range op.Parameters {
			paged = paged || p.Name == "cursor"
			if p.In == "path" {
				path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(names[p.Name]))
			}
		}
		if _, excepted := whole[op.OperationID]; paged == excepted {
			t.Errorf("%s: pages %v", op.OperationID, paged)
		}
		if !paged {
			continue
		}
		query := "?path=/&"
		if strings.HasPrefix(path, "/v1/computers/") { // nothing changes there
			query = "?path=/usr&"
		}
		if !slices.ContainsFunc(op.Parameters, func(p struct {
			Name, In string
			Required bool
		}) bool {
			return p.Name == "path"
		}) {
			query = "?"
		}
		items := func(limit int) (all []json.RawMessage) {
			for cursor := ""; ; {
				status, _, text := c.do("GET", path+query+fmt.Sprintf("limit=%d&cursor=%s", limit, url.QueryEscape(cursor)), "")
				if status == 501 || status == 404 && (strings.Contains(path, "job") || strings.Contains(path, "snapshot")) {
					return nil // nothing of the kind here
				}
				page := decode[holt.Page[json.RawMessage]](t, text)
				if status != 200 || len(page.Items) > limit || len(all) > 1000 {
					t.Fatalf("%s: status %d, %d items with limit %d: %s", op.OperationID, status, len(page.Items), limit, text)
				}
				all = append(all, page.Items...)
				if cursor = page.Next; cursor == "" {
					return all
				}
			}
		}
		one, by := items(1000), items(2)
		if len(one) != len(by) {
			t.Errorf("%s: %d items at once, %d by pages", op.OperationID, len(one), len(by))
			continue
		}
		if path == "/v1/computers/bell/files" { // pages of it come as its directory has them, and in one they are sorted
			byPath := func(a, b json.RawMessage) int { return bytes.Compare(a, b) }
			slices.SortFunc(one, byPath)
			slices.SortFunc(by, byPath)
		}
		for i := range one {
			if stable := strings.Contains(path, "stats") || strings.Contains(path, "terminals"); !stable && !bytes.Equal(one[i], by[i]) {
				t.Errorf("%s: item %d is %s by pages, and %s at once", op.OperationID, i, by[i], one[i])
			}
		}
		if len(one) > 2 {
			several++
		}
	}
	if several < 7 {
		t.Errorf("only %d lists had several pages", several)
	}
}

// TestPagesWhileThingsChange: what is there all the while is seen once, whatever is made and removed before and behind the cursor.
func TestPagesWhileThingsChange(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c, ctx := overSocket(t, d), t.Context()
	for i := range 20 {
		if _, err := nouns.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: fmt.Sprintf("stays-%02d", i)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	seen, cursor := map[string]int{}, ""
	for step := 0; ; step++ {
		_, _, text := c.do("GET", "/v1/workspaces?limit=3&cursor="+url.QueryEscape(cursor), "")
		page := decode[holt.Page[holt.Workspace]](t, text)
		for _, w := range page.Items {
			seen[w.Name]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		if step >= 8 {
			continue
		}
		// The one that the cursor names goes, others come on both sides.
		for _, name := range []string{fmt.Sprintf("a-%02d", step), fmt.Sprintf("stays-%02d-more", step), fmt.Sprintf("z-%02d", step)} {
			if _, err := nouns.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: name}, ""); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasPrefix(cursor, "stays-") || strings.HasSuffix(cursor, "-more") {
			if err := nouns.Workspaces.Delete(ctx, cursor, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 20 {
		if name := fmt.Sprintf("stays-%02d", i); seen[name] != 1 {
			t.Errorf("%s was seen %d times", name, seen[name])
		}
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s was seen %d times", name, times)
		}
	}
}
