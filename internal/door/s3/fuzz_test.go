package s3

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// signedAt is when the requests of these tests are made.
var signedAt = time.Date(2026, 6, 9, 12, 0, 0, 0, time.UTC)

// inChunks is a body in signed chunks, with a trailer.
func inChunks(s signer, parts ...string) string {
	var b strings.Builder
	one := newChunks(strings.NewReader(""), &s, streamSignedTrailer)
	for _, p := range append(parts, "") {
		one.sum.Reset()
		one.sum.Write([]byte(p))
		s.last = signatureOf(&s, fmt.Sprintf("%s-PAYLOAD\n%s\n%s\n%s\n%s\n%x", algorithm, s.at, s.scope, s.last, emptyHash, one.sum.Sum(nil)))
		fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n", len(p), s.last)
		if p != "" {
			b.WriteString(p + "\r\n")
		}
	}
	trailer := "x-amz-checksum-crc32c:AAAAAA==\n"
	b.WriteString("x-amz-checksum-crc32c:AAAAAA==\r\nx-amz-trailer-signature:" + signatureOf(&s, algorithm+"-TRAILER\n"+s.at+"\n"+s.scope+"\n"+s.last+"\n"+digest(trailer)) + "\r\n\r\n")
	return b.String()
}

func signatureOf(s *signer, text string) string { return fmt.Sprintf("%x", mac(s.key, text)) }

// FuzzChunks: whatever arrives in chunks is read in bounded memory and ends; of signed chunks only the bytes that were signed
// come to an end without an error.
func FuzzChunks(f *testing.F) {
	s := signer{[]byte("key"), "20260609/us-east-1/s3/aws4_request", "20260609T120000Z", "seed"}
	good := inChunks(s, "some", "content")
	f.Add([]byte(good), true)
	f.Add([]byte(strings.Replace(good, "content", "c0ntent", 1)), true)
	f.Add([]byte(good[:len(good)/2]), true)
	f.Add([]byte("4\r\nsome\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"), false)
	f.Add([]byte("ffffffffffffffff\r\n"), false)
	f.Add([]byte(strings.Repeat("0", 10_000)), false)
	f.Fuzz(func(t *testing.T, b []byte, signed bool) {
		kind, use := streamTrailer, s
		if signed {
			kind = streamSignedTrailer
		}
		got, err := io.ReadAll(newChunks(bytes.NewReader(b), &use, kind))
		if signed && err == nil && string(got) != "somecontent" {
			t.Errorf("%q was not signed", got)
		}
		if len(got) > len(b) {
			t.Errorf("%d bytes come of %d", len(got), len(b))
		}
	})
}

// TestChunksAreVerified: chunks that were signed are read, and no others.
func TestChunksAreVerified(t *testing.T) {
	s := signer{[]byte("key"), "20260609/us-east-1/s3/aws4_request", "20260609T120000Z", "seed"}
	good := inChunks(s, "some", "content")
	for _, c := range []struct {
		from, to string
		ok       bool
	}{{"", "", true}, {"content", "c0ntent", false}, {"AAAAAA==", "AAAAAB==", false}, {"some\r\n", "somex\r\n", false}} {
		use := s
		in := newChunks(strings.NewReader(strings.Replace(good, c.from, c.to, 1)), &use, streamSignedTrailer)
		got, err := io.ReadAll(in)
		if (err == nil) != c.ok || c.ok && (string(got) != "somecontent" || in.got["x-amz-checksum-crc32c"] != "AAAAAA==") {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}

// FuzzClaim: no request without the secret has a valid signature, and none makes the parser panic.
func FuzzClaim(f *testing.F) {
	f.Add("GET", "/data/x", "list-type=2", "AWS4-HMAC-SHA256 Credential=HOLTX/20260609/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00", "20260609T120000Z")
	f.Add("PUT", "/a%2fb", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=HOLTX/20260609/r/s3/aws4_request&X-Amz-Date=20260609T120000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0", "", "")
	f.Add("GET", "/", "", "AWS a:b", "")
	f.Fuzz(func(t *testing.T, method, path, query, header, date string) {
		r := &http.Request{Method: method, Host: "localhost", URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Authorization": {header}, "X-Amz-Date": {date}, "X-Amz-Content-Sha256": {emptyHash}}}
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		c, err := parseClaim(r, values, signedAt)
		if err != nil {
			return
		}
		if _, err := c.verify(r, values, "secret"); err == nil {
			t.Errorf("%+v is valid", c)
		}
	})
}

// FuzzXML: no document makes a decoder panic, and what they take is within bounds.
func FuzzXML(f *testing.F) {
	for _, text := range []string{
		"<Delete><Quiet>true</Quiet><Object><Key>a</Key><VersionId>x</VersionId></Object></Delete>",
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></CompleteMultipartUpload>",
		"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
		"<LifecycleConfiguration><Rule><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>",
		"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>",
		"<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2030-01-01T00:00:00Z</RetainUntilDate></Retention>", "<LegalHold><Status>ON</Status></LegalHold>",
		"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, into := range []any{&deleteXML{}, &completeXML{}, &taggingXML{}, &lifecycleXML{}, &corsXML{}, &retentionXML{}, &holdXML{}, &lockXML{}, &versioningXML{}} {
			if decodeXML(b, into) != nil {
				continue
			}
			switch v := into.(type) {
			case *taggingXML:
				if tags, err := v.tags(10); err == nil && len(tags) > 10 {
					t.Errorf("%d tags", len(tags))
				}
			case *lifecycleXML:
				for i := range v.Rules {
					if change, err := v.Rules[i].change(); err == nil && (*change.ExpireMS < 0 || *change.Keep < 0) {
						t.Errorf("%d %d", *change.ExpireMS, *change.Keep)
					}
				}
			}
		}
	})
}

// TestJoinedCRC: the CRC of joined bytes is that of their parts joined.
func TestJoinedCRC(t *testing.T) {
	for name, c := range crcs {
		of := func(text string) uint64 { h := newSum(name); h.Write([]byte(text)); return c.value(h.Sum(nil)) }
		a, b := strings.Repeat("some bytes", 999), strings.Repeat("and others", 77)
		if got, want := c.join(c.join(0, of(a), int64(len(a))), of(b), int64(len(b))), of(a+b); got != want || !bytes.Equal(c.bytes(got), c.bytes(want)) {
			t.Errorf("%s: %x, not %x", name, got, want)
		}
	}
}

// FuzzRange: a range is within its object.
func FuzzRange(f *testing.F) {
	f.Add("bytes=0-1", int64(10))
	f.Add("bytes=-5", int64(3))
	f.Add("bytes=3-", int64(3))
	f.Fuzz(func(t *testing.T, text string, size int64) {
		if size < 0 {
			return
		}
		off, n, ok, err := parseRange(text, size)
		if err == nil && ok && (off < 0 || n <= 0 || off+n > size) {
			t.Errorf("%s of %d: %d+%d", text, size, off, n)
		}
	})
}

// TestSignature is the example of Amazon's documentation of signatures of version 4, GET Object.
func TestSignature(t *testing.T) {
	r := httptest.NewRequest("GET", "http://examplebucket.s3.amazonaws.com/test.txt", nil)
	r.Header.Set("Range", "bytes=0-9")
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	r.Header.Set("X-Amz-Date", "20130524T000000Z")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")
	now := time.Date(2013, 5, 24, 0, 10, 0, 0, time.UTC)
	c, err := parseClaim(r, url.Values{}, now)
	if err == nil {
		_, err = c.verify(r, url.Values{}, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := parseClaim(r, url.Values{}, now.Add(mostSkew)); err == nil {
		t.Error("the clock is wrong by more than is permitted")
	}
}
