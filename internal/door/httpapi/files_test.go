package httpapi_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// twoOwners is a server with files of a computer and of a workspace, by their paths.
func twoOwners(t *testing.T) (*servertest.Door, nouns.Set, []string) {
	nouns := servertest.New(t).Nouns()
	if _, err := nouns.Computers.Create(t.Context(), holt.ComputerSpec{Name: "bell"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := nouns.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	return servertest.Serve(t, servertest.Options(t, nouns), ""), nouns, []string{"/v1/computers/bell/files", "/v1/workspaces/notes/files"}
}

// TestConditions: what editors need: an ETag with whatever they read or write, 304 for what they have, and 412 for what somebody else has changed.
func TestConditions(t *testing.T) {
	d, _, owners := twoOwners(t)
	c := overTCP(t, d)
	for _, owner := range owners {
		at := owner + "/content?path=/home/agent/f&parents=true"
		status, header, _ := c.do("PUT", at, "one", "If-None-Match: *")
		first := header.Get("ETag")
		if status != 200 || first == "" {
			t.Fatalf("%s: status %d, %v", owner, status, header)
		}
		c.refused(412, holt.Conflict, "PUT", at, "two", "If-None-Match: *")
		c.refused(412, holt.Conflict, "PUT", at, "two", `If-Match: "0-0"`)
		c.refused(412, holt.Conflict, "PUT", at, "two", "If-None-Match: "+first)
		c.refused(412, holt.Conflict, "PUT", owner+"/content?path=/home/agent/none", "two", "If-Match: *")
		at = owner + "/content?path=/home/agent/f"
		if status, header, text := c.do("GET", at, "", "If-None-Match: \"0-0\", W/"+first); status != 304 || text != "" || header.Get("ETag") != first {
			t.Errorf("%s: what one has: status %d %q %v", owner, status, text, header)
		}
		if status, header, text := c.do("HEAD", at, ""); status != 200 || text != "" || header.Get("ETag") != first || header.Get("Content-Length") != "3" || header.Get("Accept-Ranges") != "bytes" {
			t.Errorf("%s: HEAD: status %d %v", owner, status, header)
		}
		if status, header, _ := c.do("HEAD", at, "", "Range: bytes=1-"); status != 206 || header.Get("Content-Length") != "2" {
			t.Errorf("%s: HEAD of a range: status %d %v", owner, status, header)
		}
		if status, header, _ := c.do("GET", owner+"/stat?path=/home/agent/f", ""); status != 200 || header.Get("ETag") != first {
			t.Errorf("%s: stat: status %d %v", owner, status, header)
		}
		status, header, _ = c.do("PUT", at, "two!", "If-Match: \"0-0\", "+first)
		if status != 200 || header.Get("ETag") == first {
			t.Errorf("%s: with what was read: status %d %v", owner, status, header)
		}
		if _, _, text := c.do("GET", at, ""); text != "two!" {
			t.Errorf("%s: it holds %q", owner, text)
		}
	}
	c.refused(400, holt.InvalidArgument, "GET", owners[0]+"/content?path=/home", "")
}

// TestOneEditorWins: of several who replace what they have all read one does, whoever sends how slowly, and what each says it wrote is true.
func TestOneEditorWins(t *testing.T) {
	d, _, owners := twoOwners(t)
	c := overTCP(t, d)
	for _, owner := range owners {
		at := owner + "/content?path=/home/agent/f&parents=true"
		for round := range 5 {
			_, header, _ := c.do("PUT", at, fmt.Sprint("start ", round))
			read := header.Get("ETag")
			var wg sync.WaitGroup
			var won, lost atomic.Int32
			var winner atomic.Value
			for i := range 8 {
				wg.Go(func() {
					text := fmt.Sprintf("round %d by %d %s", round, i, strings.Repeat("x", i))
					r, _ := http.NewRequest("PUT", c.base+at, io.MultiReader(strings.NewReader(text[:3]), slowly{strings.NewReader(text[3:]), time.Duration(i) * time.Millisecond}))
					r.Header = c.header.Clone()
					r.Header.Set("If-Match", read)
					resp, err := c.client.Do(r)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
					switch resp.StatusCode {
					case 200:
						won.Add(1)
						winner.Store(text)
					case 412:
						lost.Add(1)
					default:
						t.Errorf("status %d", resp.StatusCode)
					}
				})
			}
			wg.Wait()
			if _, _, text := c.do("GET", strings.TrimSuffix(at, "&parents=true"), ""); won.Load() != 1 || lost.Load() != 7 || text != winner.Load() {
				t.Errorf("%s: %d won, %d lost; it holds %q, the winner wrote %q", owner, won.Load(), lost.Load(), text, winner.Load())
			}
		}
	}
}

type slowly struct {
	io.Reader
	pause time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Reader.Read(p)
}

// packed makes a tar stream of headers; what is regular holds its name.
func packed(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, h.Name)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestTar: a directory goes out and comes in again as a tar stream, the same.
func TestTar(t *testing.T) {
	d, _, owners := twoOwners(t)
	c, client := overTCP(t, d), d.Client(t, time.Minute)
	for i, owner := range owners {
		files, of := client.Files, "bell"
		if i == 1 {
			files, of = client.WorkspaceFiles, "notes"
		}
		in := packed(t, tar.Header{Name: "src/", Typeflag: tar.TypeDir, Mode: 0o750}, tar.Header{Name: "src/main.go", Mode: 0o600}, tar.Header{Name: "made/by/itself"},
			tar.Header{Name: "run.sh", Mode: 0o4755}, tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "run.sh"},
			tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})
		report, err := files.Untar(t.Context(), of, "/home/agent/tree", "", in)
		want := holt.TarReport{Files: 3, Dirs: 1, Links: 1, Bytes: int64(len("src/main.go" + "made/by/itself" + "run.sh")), Left: 2, LeftOut: []string{"hard", "pipe"}}
		if d := cmp.Diff(want, report); d != "" || err != nil {
			t.Errorf("%s: %v %s", owner, err, d)
		}
		var out bytes.Buffer
		if err := files.Tar(t.Context(), of, "/home/agent/tree", &out); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r)
			got[h.Name] = fmt.Sprintf("%c %o %s%s", h.Typeflag, h.Mode, h.Linkname, text)
			if h.Typeflag == tar.TypeSymlink {
				got[h.Name] = "link to " + h.Linkname // their modes are the host's
			}
		}
		wantTree := map[string]string{"src/": "5 750 ", "src/main.go": "0 600 src/main.go", "made/": "5 755 ", "made/by/": "5 755 ", "made/by/itself": "0 644 made/by/itself", "run.sh": "0 755 run.sh", "link": "link to /etc/passwd"}
		if d := cmp.Diff(wantTree, got); d != "" {
			t.Errorf("%s: %s", owner, d)
		}
		c.refused(400, holt.InvalidArgument, "GET", owner+"/tar?path=/home/agent/tree/run.sh", "")
		c.refused(404, holt.NotFound, "GET", owner+"/tar?path=/none", "")
	}
}

// TestTarStaysWithin: no stream writes anything outside of its directory, by its names or by links, and none takes more room than it sends.
func TestTarStaysWithin(t *testing.T) {
	d, nouns, owners := twoOwners(t)
	c := overTCP(t, d)
	link := tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "../"}
	for _, owner := range owners {
		files, of := nouns.Files, "bell"
		if strings.Contains(owner, "notes") {
			files, of = nouns.WorkspaceFiles, "notes"
		}
		put := func(body []byte) (int, string) {
			r, _ := http.NewRequest("PUT", c.base+owner+"/tar?path=/home/agent/in", bytes.NewReader(body))
			r.Header = c.header.Clone()
			resp, err := c.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(text)
		}
		for name, hs := range map[string][]tar.Header{
			"absolute":            {{Name: "/home/agent/escaped"}},
			"up":                  {{Name: "../escaped"}},
			"up in the middle":    {{Name: "a/../../escaped"}},
			"up at the end":       {{Name: "a/.."}},
			"through a link":      {link, {Name: "out/escaped"}},
			"a link for a parent": {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "a/b/escaped"}},
			"a directory in it":   {link, {Name: "out/escaped/", Typeflag: tar.TypeDir}},
			"a link in it":        {link, {Name: "out/escaped", Typeflag: tar.TypeSymlink, Linkname: "x"}},
			"a long name":         {{Name: strings.Repeat("n", 300)}},
			"a long link":         {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("n", 5000)}},
			"deep":                {{Name: strings.Repeat("d/", 300) + "escaped"}},
		} {
			if status, text := put(packed(t, hs...).Bytes()); status < 400 || status >= 500 || !strings.Contains(text, `"code"`) {
				t.Errorf("%s, %s: status %d %s", owner, name, status, text)
			}
		}
		// A file in the place of a link replaces it, and not what it leads to.
		if status, text := put(packed(t, tar.Header{Name: "f", Typeflag: tar.TypeSymlink, Linkname: "../escaped"}, tar.Header{Name: "f"}).Bytes()); status != 200 {
			t.Errorf("%s: status %d %s", owner, status, text)
		}
		page, err := files.List(t.Context(), of, "/home/agent", holt.PageSpec{})
		names := []string{}
		for _, e := range page.Items {
			names = append(names, string(e.Name))
		}
		if err != nil || !slices.Equal(names, []string{"in"}) {
			t.Errorf("%s: outside there is %v, %v", owner, names, err)
		}
		for name, body := range map[string][]byte{"noise": bytes.Repeat([]byte{0xa5}, 2000), "cut off": packed(t, tar.Header{Name: strings.Repeat("z", 200)}).Bytes()[:600]} {
			if status, text := put(body); status != 400 {
				t.Errorf("%s, %s: status %d %s", owner, name, status, text)
			}
		}
	}
	// 512 bytes that say they are 8 GiB of zeros are left out.
	bomb := make([]byte, 512)
	for at, text := range map[int]string{0: "bomb", 100: "0000644", 108: "0001750", 116: "0001750", 124: "00000000000", 136: "00000000000", 148: "        ", 156: "S", 257: "ustar  ",
		386: "77777777776", 398: "00000000000", 483: "77777777776"} {
		copy(bomb[at:], text)
	}
	sum := 0
	for _, b := range bomb {
		sum += int(b)
	}
	copy(bomb[148:], fmt.Sprintf("%06o\x00 ", sum))
	report, err := d.Client(t, time.Minute).WorkspaceFiles.Untar(t.Context(), "notes", "/bombs", "", bytes.NewReader(append(bomb, make([]byte, 1024)...)))
	if err != nil || report.Left != 1 || report.Bytes != 0 {
		t.Errorf("a bomb: %+v, %v", report, err)
	}
}
