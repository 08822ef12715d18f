package httpapi_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

var update = flag.Bool("update", false, "rewrite golden files")

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not in step (go test -update):\n%s", path, d)
	}
}

func TestOpenAPI(t *testing.T) {
	s := httpapi.New(httpapi.Options{Nouns: servertest.New(t).Nouns(), Authorize: servertest.Everything{}, Version: "1"})
	golden(t, "../../../docs/openapi.json", string(s.Document())+"\n")
	doc := decode[struct {
		OpenAPI    string
		Components struct{ Schemas map[string]any }
		Paths      map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
			Parameters  []struct{ Name string }
		}
	}](t, string(s.Document()))
	if doc.OpenAPI != "3.1.0" || doc.Components.Schemas["Error"] == nil {
		t.Errorf("version %q, schemas %v", doc.OpenAPI, doc.Components.Schemas)
	}
	seen := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.Responses["default"] == nil {
				t.Errorf("%s %s does not say what an error is", method, path)
			}
			keyed := false
			for _, p := range op.Parameters {
				keyed = keyed || p.Name == "Idempotency-Key"
			}
			reads := method == "get" || method == "head"
			_, excepted := unkeyed[op.OperationID]
			if keyed == (reads || excepted) {
				t.Errorf("%s %s: idempotency key %v", method, path, keyed)
			}
			seen[op.OperationID] = true
		}
	}
	for id := range unkeyed {
		if !seen[id] {
			t.Errorf("there is no %s to except", id)
		}
	}
}

// unkeyed are the calls that change something, or are not GET, and take no idempotency key, with why they need none.
var unkeyed = map[string]string{
	"putArtifact":         "a stream of bytes; a repeat makes another version of the same bytes",
	"queryArtifacts":      "it only reads",
	"checkWorkspace":      "it changes nothing",
	"checkArchive":        "it changes nothing",
	"queryWorkspace":      "it changes nothing",
	"setComputerNetwork":  "the body is all of the policy: to set it again changes nothing",
	"setComputerSecret":   "the body is all of the secret: to set it again changes nothing",
	"setPreview":          "the body is all of the preview: to set it again changes nothing",
	"setDomain":           "the body is all of the domain: to set it again changes nothing",
	"setQuota":            "the body is all of the quota: to set it again changes nothing",
	"writeFile":           "the body is all of the file; If-Match says which content it replaces, and a repeat is refused then",
	"writeWorkspaceFile":  "likewise",
	"untarFiles":          "the body is all of the files: to send them again writes the same",
	"untarWorkspaceFiles": "likewise",
	"importWorkspace":     "the body is all of the files: to send them again writes the same",
	"sendJobInputs":       "what is sent twice is there twice, and goes in an hour unless a job begins with it",
	"writeRunInput":       "offset: what the run has already is skipped",
	"appendUpload":        "Upload-Offset: a repeat is refused, since the upload stands elsewhere by then",
	"queryAudit":          "it changes nothing",
	"createTicket":        "a ticket that nobody redeems is gone in seconds",
}

// TestErrorMeanings keeps the document and its page in step with where the codes are defined; docs/words.md is by package cli's test.
func TestErrorMeanings(t *testing.T) {
	source, err := os.ReadFile("../../../error.go")
	if err != nil {
		t.Fatal(err)
	}
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	c := overSocket(t, d)
	_, _, page := c.do("GET", "/docs", "")
	_, _, text := c.do("GET", "/openapi.json", "")
	doc := decode[struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}](t, text)
	codes := doc.Components.Schemas["Error"].Properties["code"].Enum
	defined := regexp.MustCompile(`(?m)^\t\w+ +Code = "(\w+)" +// (.+)$`).FindAllStringSubmatch(string(source), -1)
	if len(defined) < 13 || len(codes) != len(defined) {
		t.Errorf("%d codes are defined, the document has %v", len(defined), codes)
	}
	for i, m := range defined {
		row := fmt.Sprintf(`<td><code>%s</code></td><td>%d</td><td>%s</td>`, m[1], httpapi.Status(holt.Code(m[1])), m[2])
		if i >= len(codes) || codes[i] != m[1] || !strings.Contains(page, row) {
			t.Errorf("%s is not in the document, or not on the page as %s", m[1], row)
		}
	}
}

func TestDocsPage(t *testing.T) {
	d := servertest.Serve(t, servertest.Options(t, servertest.New(t).Nouns()), "")
	status, header, text := overSocket(t, d).do("GET", "/docs", "")
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("status %d, %v", status, header)
	}
	for _, want := range []string{"/v1/computers/{computer}/runs", "Idempotency-Key", `id="schema-Error"`, `id="error-too_many"`, "PATCH", `curl -X POST -H`, `id="find"`, `href="#schema-Computer"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if found := regexp.MustCompile(`(?i)(src|href)="?(https?:)?//|@import|<script[^>]|url\(`).FindString(text); found != "" {
		t.Errorf("the page loads something: %s", found)
	}
}

// TestWire pins the JSON of everything that travels: a change of it breaks
// clients that people have.
func TestWire(t *testing.T) {
	at := time.Date(2026, 6, 9, 12, 30, 0, 123456789, time.UTC)
	run := holt.Run{
		ID: "run_aaaaaaaaaaaaaaaa", ComputerID: "cmp_aaaaaaaaaaaaaaaa", State: holt.RunExited, ExitCode: 143, Signal: "SIGTERM", TimedOut: true, Background: 2, StartedAt: at, EndedAt: &at,
		Spec: holt.RunSpec{Command: "make", Argv: []string{"make"}, Env: map[holt.OSString]holt.OSString{"A": "b"}, Secrets: holt.Secrets{"S": "t"}, Cwd: "/tmp", User: "root", Stdin: true, TimeoutMS: 1000},
	}
	wire := map[string]any{
		"computer":       holt.Computer{ID: "cmp_aaaaaaaaaaaaaaaa", Name: "curie", Template: "base", State: holt.ComputerRunning, Reason: "r", Engine: "qemu-tcg", CPUs: 1, MemoryMB: 1024, DiskSizeMB: 10240, Workspace: "curie", CreatedAt: at, StartedAt: &at, BootMS: 2500, IdleTimeout: holt.IdleTimeout(90 * time.Minute), WokenBy: "run: make", WokenAt: &at, WakeMS: 400},
		"computer_never": holt.ComputerUpdate{IdleTimeout: holt.NeverIdle},
		"awake":          holt.Awake{ComputerID: "cmp_aaaaaaaaaaaaaaaa", Computer: "curie", State: holt.ComputerRunning, IdleTimeout: holt.NeverIdle, Uses: []holt.Use{{Kind: holt.UseHold, ID: "hld_aaaaaaaaaaaaaaaa", Detail: "thinking", Since: at, Until: &at}}, LastUse: &holt.Use{Kind: holt.UseRun, Since: at}, IdleSince: &at, PausesAt: &at, Note: "n"},
		"hold":           holt.Hold{ID: "hld_aaaaaaaaaaaaaaaa", ComputerID: "cmp_aaaaaaaaaaaaaaaa", Reason: "thinking", By: "person root", CreatedAt: at, ExpiresAt: at},
		"hold_spec":      holt.HoldSpec{Reason: "thinking", ForMS: 1800000},
		"computer_bare":  holt.Computer{},
		"job_bare":       holt.Job{}, "job": holt.Job{ID: "job_aaaaaaaaaaaaaaaa", State: holt.JobFailed, Reason: "r", ExitCode: 137, Signal: "SIGKILL", TimedOut: true, Error: holt.Errorf(holt.Timeout, "late"), Attempts: 2,
			Spec:       holt.JobSpec{Template: "base", CPUs: 1, MemoryMB: 2, DiskSizeMB: 3, Inputs: "inp_aaaaaaaaaaaaaaaa", Workspace: "w", Collect: "out", Run: holt.RunSpec{Command: "make"}},
			ComputerID: "cmp_aaaaaaaaaaaaaaaa", RunID: "run_aaaaaaaaaaaaaaaa", Outputs: &holt.JobOutputs{Files: 1, Bytes: 2, Kept: true}, CreatedAt: at, StartedAt: &at, EndedAt: &at,
			Steps: holt.JobSteps{CreateMS: 1, RunMS: 2, CollectMS: 3, DeleteMS: 4}},
		"job_inputs":    holt.JobInputs{ID: "inp_aaaaaaaaaaaaaaaa"},
		"computer_spec": holt.ComputerSpec{Name: "curie", Template: "base", CPUs: 1, MemoryMB: 2, DiskSizeMB: 3, Workspace: "w"},
		"run":           run, "run_bare": holt.Run{}, "signal_spec": holt.SignalSpec{Signal: "SIGINT"},
		"event_stdout": holt.RunEvent{Kind: holt.RunStdout, Offset: 5, Data: []byte("hello\x00\xff")},
		"event_gap":    holt.RunEvent{Kind: holt.RunGap, Offset: 5, Dropped: 7},
		"event_exit":   holt.RunEvent{Kind: holt.RunExit, Offset: 12, Run: &run},
		"file":         holt.FileInfo{Path: "/a/b", Name: "b", Kind: "symlink", Size: 1, Mode: 0o777, UID: 1000, GID: 1000, ModTime: at, Target: "c"},
		"mkdir_spec":   holt.MkdirSpec{Path: "/a", Mode: 0o700, User: "agent", Parents: true},
		"rename_spec":  holt.RenameSpec{From: "/a", To: "/b"},
		"workspace":    holt.Workspace{ID: "wsp_aaaaaaaaaaaaaaaa", Name: "w", CreatedAt: at, Computer: "curie", Mounts: []holt.Mount{{Dir: "/mnt", ReadOnly: true}}, Files: 3, Bytes: 4},
		"query_spec":   holt.QuerySpec{SQL: "SELECT 1", At: "c", Also: []string{"w", "w@c"}, Forks: true, MaxRows: 5, TimeoutMS: 6},
		"query_result": holt.QueryResult{Columns: []string{"path", "n"}, Rows: [][]any{{"a", 1}, {nil, 2.5}}, Truncated: true, ElapsedMS: 0.25},
		"check_report": holt.CheckReport{Inodes: 1, Entries: 2, Extents: 3, Bytes: 4, Problems: []string{"p"}},
		"image":        holt.Image{Template: "base", Built: true, Digest: "d", MinDiskMB: 2048, Bytes: 5, BuiltAt: &at, Ready: []holt.Shape{{CPUs: 1, MemoryMB: 1024}}},
		"finding":      holt.Finding{Name: "kvm", Verdict: holt.VerdictWarn, Found: "none", Do: "nothing", Install: []string{"qemu-system-x86"}},
		"health":       holt.Health{Status: "ok", Version: "1", PID: 7, DataDir: "/var/lib/holt", Engine: "local", StartedAt: at, Running: 2},
		"down_spec":    holt.DownSpec{Computers: holt.DownKeep},
		"down_report":  holt.DownReport{Stopped: []string{"a"}, Kept: []string{}, Unmounted: []string{"/mnt"}},
		"page":         holt.Page[string]{Items: []string{"a"}, Next: "a"},
		"error":        holt.Errorf(holt.OutOfSpace, "the disk is full").WithHint("make room"),
	}
	data, err := json.MarshalIndent(wire, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "wire.json"), string(data)+"\n")
}
