package artifact

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holt"
)

// script makes a program of the host.
func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scan")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// scanned puts some bytes into a bucket with a scan.
func (w *world) scanned(scan, content string) error {
	w.t.Helper()
	b := "b" + strconv.FormatInt(w.now.Add(1), 10)
	w.bucket(holt.BucketSpec{Name: b, Scan: scan})
	_, err := w.Put(w.t.Context(), holt.ArtifactPut{Bucket: b, Name: "dir/näme.txt", MediaType: "text/x"}, strings.NewReader(content))
	got, lost := w.Get(w.t.Context(), b+"/dir/näme.txt")
	if (err == nil) != (lost == nil) || err == nil && got.Size != int64(len(content)) {
		w.t.Errorf("%s: %v, but %+v %v", scan, err, got, lost)
	}
	return err
}

// TestScanCommand: what a command says decides, whatever a hostile one does, and it leaves no processes.
func TestScanCommand(t *testing.T) {
	w := newWorld(t)
	big := strings.Repeat("0123456789abcdef", 20<<10)
	pids := filepath.Join(t.TempDir(), "pids")
	for _, c := range []struct {
		text string
		code holt.Code // "": accepted
		says string
	}{
		{`exit 0`, "", ""},
		{`cat > /dev/null; echo '{"allow": true}'`, "", ""},
		{`test "$(wc -c)" = $HOLT_ARTIFACT_SIZE && echo "$HOLT_ARTIFACT_NAME $HOLT_ARTIFACT_TYPE ${HOME-none}"; exit 1`, holt.InvalidArgument, "refuses dir/näme.txt: dir/näme.txt text/x none"},
		{`test "$(sha256sum | cut -c1-64)" = $HOLT_ARTIFACT_SHA256`, "", ""},
		{`printf 'bad\033[2J\nfile'; exit 1`, holt.InvalidArgument, "refuses dir/näme.txt: bad␛[2J file"},
		{`exit 1`, holt.InvalidArgument, "no reason is given"},
		{`echo '{"allow": false, "reason": "a virus"}'`, holt.InvalidArgument, ": a virus"},
		{`echo '{"allow": fal'`, holt.Unavailable, "invalid JSON"},
		{`echo '{"allow": false, "reason": "'$(head -c 60000 /dev/zero | tr '\0' x)'"}'`, holt.InvalidArgument, "xxx… (60000 bytes)"},
		{`head -c 70000 /dev/zero; exit 1`, holt.Unavailable, "more than 64 KiB"},
		{`yes`, holt.Unavailable, "more than 64 KiB"},
		{`yes >&2 & sleep 0.1; exit 3`, holt.Unavailable, "exit status 3"},
		{`kill -9 $$`, holt.Unavailable, "signal: killed"},
		{`echo $$ > ` + pids + `; sleep 1000 & echo $! >> ` + pids + `; exit 0`, "", ""},
	} {
		err := w.scanned(script(t, c.text), big)
		if got := fmt.Sprint(err); holt.CodeOf(err) != c.code && !(c.code == "" && err == nil) || !strings.Contains(got, c.says) || len(got) > 1000 {
			t.Errorf("%s: %v", c.text, err)
		}
	}
	gone(t, pids)
	os.Remove(pids)
	w.scanTime = 500 * time.Millisecond
	err := w.scanned(script(t, `echo $$ > `+pids+`; sleep 1000 & echo $! >> `+pids+`; sleep 1000`), "x")
	if holt.CodeOf(err) != holt.Unavailable || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a scan that hangs: %v", err)
	}
	gone(t, pids)
}

// gone waits until the processes whose ids a file has are not there, or are zombies that only init has to reap.
func gone(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(text)) {
		id, _ := strconv.Atoi(field)
		for end := time.Now().Add(20 * time.Second); syscall.Kill(id, 0) == nil; time.Sleep(10 * time.Millisecond) {
			stat, _ := os.ReadFile("/proc/" + field + "/stat")
			if strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the scanner left a process: %s", stat)
			}
		}
	}
}

// TestScanURL: what a server answers decides. It gets the bytes, and nothing can be read before its answer.
func TestScanURL(t *testing.T) {
	w := newWorld(t)
	content := strings.Repeat("0123456789abcdef", 20<<10)
	var status int
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != content || r.Method != http.MethodPost || r.ContentLength != int64(len(content)) ||
			r.Header.Get("Holt-Artifact-Name") != "dir%2Fn%C3%A4me.txt" || r.Header.Get("Holt-Artifact-Type") != "text%2Fx" || len(r.Header.Get("Holt-Artifact-SHA256")) != 64 {
			t.Errorf("%d bytes, %v: %v", len(got), r.Header, err)
		}
		page, err := w.List(t.Context(), holt.ArtifactQuery{Bucket: r.Header.Get("Holt-Artifact-Bucket"), Versions: true})
		if err != nil || len(page.Items) != 0 {
			t.Errorf("before it is scanned: %+v %v", page, err)
		}
		if status/100 == 3 {
			out.Header().Set("Location", "/elsewhere")
		}
		out.WriteHeader(status)
		io.WriteString(out, body)
	}))
	defer s.Close()
	for _, c := range []struct {
		status int
		body   string
		code   holt.Code
		says   string
	}{
		{200, "", "", ""}, {204, "", "", ""}, {200, `{"allow": true}`, "", ""},
		{200, `{"allow": false, "reason": "a virus"}`, holt.InvalidArgument, ": a virus"},
		{403, `{"allow": false, "reason": "a virus"}`, holt.InvalidArgument, ": a virus"},
		{403, "no", holt.Unavailable, "HTTP status 403"}, {500, "", holt.Unavailable, "HTTP status 500"}, {307, "", holt.Unavailable, "HTTP status 307"},
		{200, strings.Repeat("x", 70_000), holt.Unavailable, "more than 64 KiB"},
	} {
		status, body = c.status, c.body
		err := w.scanned(s.URL+"/scan?x=1", content)
		if holt.CodeOf(err) != c.code && !(c.code == "" && err == nil) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%d %.80s: %v", c.status, c.body, err)
		}
	}
	s.Close()
	if err := w.scanned(s.URL, "x"); holt.CodeOf(err) != holt.Unavailable || strings.Contains(err.Error(), s.URL) {
		t.Errorf("no server: %v", err)
	}
}

// TestScansWait: four scans run at a time, two of a tenant. A store that is closed while they run leaves rows, which the next one
// removes.
func TestScansWait(t *testing.T) {
	w := newWorld(t)
	var now, most, seen atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		n := now.Add(1)
		defer now.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		seen.Add(1)
		<-r.Context().Done()
	}))
	defer s.Close()
	other := holt.WithActor(t.Context(), holt.Actor{Token: holt.NewTokenID(), Tenant: "other"})
	for _, ctx := range []context.Context{t.Context(), other} {
		if _, err := w.CreateBucket(ctx, holt.BucketSpec{Name: "scanned", Scan: s.URL}, ""); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			ctx := t.Context()
			if i >= 8 {
				ctx = other
			}
			if _, err := w.Put(ctx, holt.ArtifactPut{Bucket: "scanned", Name: fmt.Sprint(i)}, strings.NewReader(strings.Repeat("x", 20_000))); err == nil {
				t.Error("it was stored")
			}
		})
	}
	for end := time.Now().Add(time.Minute); seen.Load() < 4 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	w.Store.cancel() // as if it was killed: nothing is written any more
	wg.Wait()
	w.Store.Close()
	w.open()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := w.rows(t.Context(), ``)
		if err != nil || time.Now().After(end) {
			t.Fatal(len(list), err)
		}
		if len(list) == 0 {
			break
		}
	}
	if most.Load() != mostScans {
		t.Errorf("%d scans ran at a time", most.Load())
	}
}

// TestScanIsSetMeanwhile: an artifact whose bytes arrive while a scan is set does not appear without it.
func TestScanIsSetMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.bucket(holt.BucketSpec{Name: "b"})
	r, in := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := w.Put(t.Context(), holt.ArtifactPut{Bucket: "b", Name: "a"}, r)
		done <- err
	}()
	io.WriteString(in, "bytes")
	if _, err := w.UpdateBucket(t.Context(), "b", holt.BucketChange{Scan: ptr("/bin/false")}, ""); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := <-done; holt.CodeOf(err) != holt.Conflict {
		t.Error(err)
	}
	w.has("b", "")
}

// FuzzVerdict: no answer of a scanner that refuses is taken for one that accepts, and reasons are safe to show.
func FuzzVerdict(f *testing.F) {
	for _, said := range []string{``, `{"allow": false}`, `{"allow": true, "reason": "x"}`, "{\"allow\": false, \"reason\": \"\x1b\"}", `{"allow": null}`, `{`, "text\x00"} {
		f.Add([]byte(said), true, false)
		f.Add([]byte(said), false, true)
	}
	f.Fuzz(func(t *testing.T, said []byte, allows, refuses bool) {
		refused, err := answer{allows: allows && !refuses, refuses: refuses, said: said, status: "s"}.verdict()
		accepted := refused == "" && err == nil
		if accepted && (refuses || !allows) {
			t.Errorf("%q is accepted", said)
		}
		if len(refused) > 2*mostReason || strings.ContainsFunc(refused, func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q", refused)
		}
	})
}
