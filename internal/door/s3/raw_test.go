package s3_test

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	"holt"
	"holt/internal/authz"
	"holt/internal/door/s3"
	"holt/internal/nouns"
)

// raw is a client that sends what a test says, signed.
type raw struct {
	w          *world
	id, secret string
}

// send returns the status, the headers and the text of the answer. headers are names and values in turn.
func (c raw) send(method, path, body string, headers ...string) (int, http.Header, string) {
	c.w.t.Helper()
	r := must(http.NewRequestWithContext(c.w.t.Context(), method, "http://"+c.w.addr+path, strings.NewReader(body)))(c.w.t)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := must(http.DefaultClient.Do(signer.SignV4(*r, c.id, c.secret, "", "us-east-1")))(c.w.t)
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header, string(must(io.ReadAll(resp.Body))(c.w.t))
}

// is sends a request and compares the answer.
func (c raw) is(status int, text, method, path, body string, headers ...string) http.Header {
	c.w.t.Helper()
	got, h, out := c.send(method, path, body, headers...)
	if got != status || !strings.Contains(out, text) {
		c.w.t.Errorf("%s %s: %d %s, not %d %s", method, path, got, holt.Clip(out, 300), status, text)
	}
	return h
}

func openRaw(t *testing.T) (*world, raw) {
	w := openWorld(t)
	id, secret := w.key("default")
	c := raw{w, id, secret}
	c.is(200, "", "PUT", "/data", "")
	return w, c
}

// TestPartChecksums: an upload of each algorithm has the checksum of its parts' checksums, which a client can name.
func TestPartChecksums(t *testing.T) {
	_, c := openRaw(t)
	for name, sum := range map[string]hash.Hash{"CRC32": crc32.NewIEEE(), "CRC32C": crc32.New(crc32.MakeTable(crc32.Castagnoli)), "CRC64NVME": crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5)),
		"SHA1": sha1.New(), "SHA256": sha256.New(), "SHA512": sha512.New()} {
		header, path, kind := "x-amz-checksum-"+strings.ToLower(name), "/data/"+name, "COMPOSITE"
		_, _, text := c.send("POST", path+"?uploads", "", "x-amz-checksum-algorithm", name, "x-amz-checksum-type", kind)
		_, text, _ = strings.Cut(text, "<UploadId>")
		id, _, _ := strings.Cut(text, "<")
		of, named, all := func(text string) string {
			sum.Reset()
			io.WriteString(sum, text)
			return base64.StdEncoding.EncodeToString(sum.Sum(nil))
		}, "", ""
		for n, body := range []string{string(noise(1, 5<<20)), "last"} {
			s := of(body)
			h := c.is(200, "", "PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", path, n+1, id), body, header, s)
			named += fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Checksum%s>%s</Checksum%[3]s></Part>", n+1, h.Get("Etag"), name, s)
			all += string(must(base64.StdEncoding.DecodeString(s))(t))
		}
		c.is(200, "<Checksum"+name+">"+of("last"), "GET", path+"?uploadId="+id, "")
		whole, end := of(all)+"-2", "<CompleteMultipartUpload>"+named+"</CompleteMultipartUpload>"
		c.is(400, "BadDigest", "POST", path+"?uploadId="+id, end, header, of("x")+"-2")
		c.is(400, "InvalidPart", "POST", path+"?uploadId="+id, strings.Replace(end, of("last"), of("x"), 1))
		c.is(200, "", "POST", path+"?uploadId="+id, end, header, whole)
		if got := c.is(200, "", "HEAD", path, "", "x-amz-checksum-mode", "ENABLED").Get(header); got != whole {
			t.Errorf("%s is %s, not %s", name, got, whole)
		}
	}

	_, _, text := c.send("POST", "/data/none?uploads", "", "x-amz-checksum-algorithm", "CRC32", "x-amz-checksum-type", "FULL_OBJECT")
	_, text, _ = strings.Cut(text, "<UploadId>")
	id, _, _ := strings.Cut(text, "<")
	h := c.is(200, "", "PUT", "/data/none?partNumber=1&uploadId="+id, "x")
	end := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>" + h.Get("Etag") + "</ETag></Part></CompleteMultipartUpload>"
	c.is(400, "InvalidRequest", "POST", "/data/none?uploadId="+id, end, "x-amz-checksum-crc32", "AAAAAA==")
	c.is(400, "InvalidRequest", "POST", "/data/none?uploadId="+id, end, "x-amz-checksum-sha1", "AAAAAA==")
	c.is(200, "", "POST", "/data/none?uploadId="+id, end)
}

// TestHoisted: what a presigned URL says of an object in its query is obeyed or refused, as in headers.
func TestHoisted(t *testing.T) {
	w, _ := openRaw(t)
	c, ctx := w.client("default"), t.Context()
	sum := sha256.Sum256([]byte("content"))
	for i, one := range []struct {
		query  url.Values
		body   string
		status int
		text   string
	}{
		{url.Values{"x-amz-meta-a": {"1"}, "x-amz-meta-a-b": {"2"}, "x-amz-checksum-sha256": {base64.StdEncoding.EncodeToString(sum[:])}}, "content", 200, ""},
		{url.Values{"x-amz-checksum-sha256": {base64.StdEncoding.EncodeToString(sum[:])}}, "other", 400, "BadDigest"},
		{url.Values{"content-md5": {"AAAAAAAAAAAAAAAAAAAAAA=="}}, "other", 400, "BadDigest"},
		{url.Values{"x-amz-storage-class": {"GLACIER"}}, "x", 400, "InvalidStorageClass"},
		{url.Values{"x-amz-acl": {"public-read"}}, "x", 501, "NotImplemented"},
		{url.Values{"x-amz-server-side-encryption": {"AES256"}}, "x", 501, "NotImplemented"},
		{url.Values{"x-amz-meta-a": {"1\r\n2"}}, "x", 400, "InvalidRequest"},
	} {
		to := must(c.Presign(ctx, "PUT", "data", fmt.Sprint(i), time.Hour, one.query))(t)
		r := must(http.NewRequestWithContext(ctx, "PUT", to.String(), strings.NewReader(one.body)))(t)
		resp := must(http.DefaultClient.Do(r))(t)
		text := string(must(io.ReadAll(resp.Body))(t))
		resp.Body.Close()
		if resp.StatusCode != one.status || !strings.Contains(text, one.text) {
			t.Errorf("%v: %d %s", one.query, resp.StatusCode, text)
		}
	}
	if st := must(c.StatObject(ctx, "data", "0", minio.StatObjectOptions{}))(t); st.UserMetadata["A"] != "1" || st.UserMetadata["A-B"] != "2" {
		t.Errorf("%+v", st.UserMetadata)
	}
}

// TestPreflight: a request that is not signed is nobody's, whatever key it names.
func TestPreflight(t *testing.T) {
	w, c := openRaw(t)
	if must(w.tokens.List(t.Context()))(t)[0].LastUsedAt == nil {
		t.Error("a signed request did not use its token")
	}
	c.is(200, "", "PUT", "/data?cors", "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>https://a.test</AllowedOrigin></CORSRule></CORSConfiguration>")
	c.id, c.secret = w.key("default") // not used yet
	var by []holt.Actor
	d := s3.New(s3.Options{Keys: w.keys, Objects: authz.Objects(nouns.Set{}, w.store), Log: slog.New(slog.DiscardHandler), Record: func(ctx context.Context, _ holt.AuditEntry) {
		a, _ := holt.ActorOf(ctx)
		by = append(by, a)
	}})
	for origin, status := range map[string]int{"https://a.test": 200, "https://b.test": 403} {
		r := httptest.NewRequest("OPTIONS", "http://localhost/data/x?X-Amz-Credential="+c.id+"/x", nil)
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "GET")
		out := httptest.NewRecorder()
		if d.ServeHTTP(out, r); out.Code != status {
			t.Errorf("%s: %d %s", origin, out.Code, out.Body)
		}
	}
	if len(by) != 1 || by[0].Token != "" {
		t.Errorf("it is recorded as of %+v", by)
	}
	for _, one := range must(w.tokens.List(t.Context()))(t) {
		if k := must(w.keys.Get(t.Context(), c.id))(t); one.ID == k.Token && one.LastUsedAt != nil {
			t.Error("a request without a signature used the token")
		}
	}
}

// TestBounds: settings are bounded, and what S3 has besides is refused.
func TestBounds(t *testing.T) {
	_, c := openRaw(t)
	rule := func(more string) string {
		return "<LifecycleConfiguration><Rule><Status>Enabled</Status><Prefix></Prefix>" + more + "</Rule></LifecycleConfiguration>"
	}
	c.is(501, "NoncurrentVersionTransition", "PUT", "/data?lifecycle", rule("<Expiration><Days>1</Days></Expiration><NoncurrentVersionTransition/>"))
	c.is(501, "Transition", "PUT", "/data?lifecycle", rule("<Transition/>"))
	c.is(400, "InvalidArgument", "PUT", "/data?lifecycle", rule("<ID>"+strings.Repeat("x", 256)+"</ID>"))
	c.is(200, "", "PUT", "/data?lifecycle", rule("<ID>"+strings.Repeat("x", 255)+"</ID><Expiration><Days>1</Days></Expiration>"))
	c.is(200, "<Days>1</Days>", "GET", "/data?lifecycle", "")
	cors := func(id string, n int) string {
		return "<CORSConfiguration><CORSRule><ID>" + id + "</ID><AllowedMethod>GET</AllowedMethod><AllowedOrigin>" + strings.Repeat(">", n) + "</AllowedOrigin></CORSRule></CORSConfiguration>"
	}
	c.is(400, "InvalidArgument", "PUT", "/data?cors", cors(strings.Repeat("x", 256), 1))
	c.is(400, "InvalidArgument", "PUT", "/data?cors", cors("", 60_000)) // > has 6 bytes where it is kept
	c.is(200, "", "PUT", "/data?cors", cors("", 1000))
	c.is(200, "", "PUT", "/data/x", "x")
	c.is(200, "NotImplemented", "POST", "/data?delete", "<Delete><Object><Key>x</Key><Size>7</Size></Object></Delete>")
	c.is(200, "x", "GET", "/data/x", "")
	c.is(501, "NotImplemented", "DELETE", "/data/x", "", "x-amz-if-match-size", "7")
}
