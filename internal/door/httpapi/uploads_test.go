package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/nouns"
)

// TestTus: what a client of tus 1.0.0 says and expects, byte for byte as that protocol has it.
func TestTus(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c := overTCP(t, d)
	if _, err := nouns.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	const tus = "Tus-Resumable: 1.0.0"
	wants := func(what string, status, want int, header http.Header, fields ...string) {
		t.Helper()
		if status != want {
			t.Errorf("%s: status %d, want %d", what, status, want)
		}
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			if header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", what, name, header.Get(name), value)
			}
		}
	}
	status, header, _ := c.do("OPTIONS", "/v1/uploads", "")
	wants("options", status, 204, header, "Tus-Version: 1.0.0", "Tus-Checksum-Algorithm: sha256")
	if !strings.Contains(header.Get("Tus-Extension"), "creation") {
		t.Errorf("extensions %q", header.Get("Tus-Extension"))
	}
	field := func(k, v string) string { return k + " " + base64.StdEncoding.EncodeToString([]byte(v)) }
	meta := "Upload-Metadata: " + strings.Join([]string{field("workspace", "notes"), field("path", "/a/café"), field("parents", ""), field("mode", "600"), field("filename", "x"), "is_confidential"}, ",")
	status, header, _ = c.do("POST", "/v1/uploads", "", tus, "Upload-Length: 11", meta)
	at := header.Get("Location")
	wants("create", status, 201, header, tus)
	if !strings.HasPrefix(at, "/v1/uploads/upl_") || header.Get("Upload-Expires") == "" {
		t.Fatalf("location %q", at)
	}
	const piece = "Content-Type: application/offset+octet-stream"
	status, header, _ = c.do("PATCH", at, "hello ", tus, piece, "Upload-Offset: 0")
	wants("first piece", status, 204, header, "Upload-Offset: 6", tus)
	status, header, _ = c.do("HEAD", at, "", tus)
	wants("head", status, 200, header, "Upload-Offset: 6", "Upload-Length: 11", "Cache-Control: no-store", tus)
	c.refused(409, holt.Conflict, "PATCH", at, "world", tus, piece, "Upload-Offset: 5")
	sum := sha256.Sum256([]byte("worlt"))
	c.refused(460, holt.InvalidArgument, "PATCH", at, "world", tus, piece, "Upload-Offset: 6", "Upload-Checksum: sha256 "+base64.StdEncoding.EncodeToString(sum[:]))
	c.refused(400, holt.InvalidArgument, "PATCH", at, "world", tus, piece, "Upload-Offset: 6", "Upload-Checksum: md5 x")
	c.refused(412, holt.InvalidArgument, "PATCH", at, "world", "Tus-Resumable: 0.2.2", piece, "Upload-Offset: 6")
	c.refused(400, holt.InvalidArgument, "PATCH", at, "world", tus, piece)
	sum = sha256.Sum256([]byte("world"))
	status, header, _ = c.do("PATCH", at, "world", tus, piece, "Upload-Offset: 6", "Upload-Checksum: sha256 "+base64.StdEncoding.EncodeToString(sum[:]))
	wants("last piece", status, 204, header, "Upload-Offset: 11")
	if _, _, text := c.do("GET", "/v1/workspaces/notes/files/content?path=/a/caf%C3%A9", ""); text != "hello world" {
		t.Errorf("the last byte did not commit: %q", text)
	}
	info, err := nouns.WorkspaceFiles.Stat(t.Context(), "notes", "/a/café")
	if err != nil || info.Mode != 0o600 {
		t.Errorf("%+v, %v", info, err)
	}
	status, header, _ = c.do("HEAD", at, "", tus)
	wants("head when it is done", status, 200, header, "Upload-Offset: 11")

	status, header, _ = c.do("POST", "/v1/uploads", "", tus, "Upload-Length: 5", meta)
	wants("another", status, 201, header)
	at = header.Get("Location")
	status, _, _ = c.do("DELETE", at, "", tus)
	wants("terminate", status, 204, nil)
	status, _, _ = c.do("HEAD", at, "", tus)
	wants("head when it was terminated", status, 404, nil)
	c.refused(404, holt.NotFound, "PATCH", at, "hello", tus, piece, "Upload-Offset: 0")
	for _, bad := range [][]string{{tus, meta}, {tus, "Upload-Length: 5"}, {tus, "Upload-Length: -5", meta}, {tus, "Upload-Length: 5", "Upload-Metadata: path %%%"}, {tus, "Upload-Length: 5", "Upload-Metadata: " + field("workspace", "notes") + "," + field("path", "a")}, {}} {
		c.refused(400, holt.InvalidArgument, "POST", "/v1/uploads", "", bad...)
	}
	status, _, _ = c.do("HEAD", "/v1/uploads/x", "")
	wants("head of none", status, 400, nil)
}

// TestResumedAtOnce: whoever was cut off goes on at once, though the server has not noticed yet that the first connection is dead, and
// what had come before counts.
func TestResumedAtOnce(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	d := servertest.Serve(t, servertest.Options(t, nouns), "")
	c := overTCP(t, d)
	if _, err := nouns.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	// What its socket still holds when it is cut off was not read, and does not count: again, until all was.
	const sent, pieces = 600 << 10, 512 << 10
	at := int64(0)
	for range 20 {
		if at = resumed(t, nouns, d, c, sent, pieces); at == sent {
			return
		}
		if at < pieces {
			t.Fatalf("at %d: not all that had been read counts", at)
		}
	}
	t.Errorf("at %d: not all that had come counts", at)
}

// resumed cuts off a call that has sent so many bytes of a file, once these pieces of them were taken, by asking how much
// there is.
func resumed(t *testing.T, nouns nouns.Set, d *servertest.Door, c *caller, sent, pieces int64) int64 {
	t.Helper()
	data := bytes.Repeat([]byte("x"), 1<<20)
	u, err := nouns.Uploads.Create(t.Context(), holt.UploadSpec{Workspace: "notes", Path: "/x", Size: int64(len(data))}, "")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PATCH /v1/uploads/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nUpload-Offset: 0\r\nContent-Length: %d\r\n\r\n", u.ID, d.Addr, servertest.Secret, len(data))
	if _, err := conn.Write(data[:sent]); err != nil {
		t.Fatal(err)
	}
	for u.Offset < pieces {
		if u, err = nouns.Uploads.Get(t.Context(), u.ID); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	status, header, _ := c.do("HEAD", "/v1/uploads/"+string(u.ID), "")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it waited %v for a connection that is dead", took)
	}
	reply, err := io.ReadAll(conn)
	if !bytes.Contains(reply, []byte(" 503 ")) && err == nil {
		t.Errorf("the first call got %s", reply)
	}
	at, err := strconv.ParseInt(header.Get("Upload-Offset"), 10, 64)
	if status != 200 || err != nil {
		t.Fatalf("status %d, %v", status, err)
	}
	return at
}

// TestSendGoesOn: Send goes on over connections that break again and again, and sends each byte once.
func TestSendGoesOn(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	opt := servertest.Options(t, nouns)
	d := servertest.Serve(t, opt, "")
	if _, err := nouns.Workspaces.Create(t.Context(), holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 6<<20)
	for i := range data {
		data[i] = byte(i >> 8)
	}
	client, broke := d.Client(t, time.Minute), 0
	file := cutting{bytes.NewReader(data), func(off int64) {
		if want := int64(broke+1) * (1 << 20); broke < 4 && off >= want { // in the middle of a piece
			broke++
			d.Kill()
			d = servertest.Serve(t, opt, d.Socket)
		}
	}}
	sum := sha256.Sum256(data)
	info, err := client.Uploads.Send(t.Context(), holt.UploadSpec{Workspace: "notes", Path: "/big", Size: int64(len(data)), SHA256: fmt.Sprintf("%x", sum)}, file, nil)
	if err != nil || info.Size != int64(len(data)) || broke != 4 {
		t.Errorf("%+v, %v, broken off %d times", info, err, broke)
	}
	all, err := nouns.Uploads.List(t.Context())
	if text, _ := json.Marshal(all); err != nil || len(all) != 1 || all[0].State != holt.UploadDone {
		t.Errorf("%s, %v", text, err)
	}
}

// cutting calls a function before each read.
type cutting struct {
	*bytes.Reader
	before func(off int64)
}

func (c cutting) ReadAt(p []byte, off int64) (int, error) {
	c.before(off)
	return c.Reader.ReadAt(p, off)
}
