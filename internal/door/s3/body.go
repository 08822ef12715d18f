package s3

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"holt"
)

const sumPrefix = "x-amz-checksum-"

// nvme is the polynomial of CRC-64/NVME, bits reversed.
var nvme = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// newSum returns the hash of a checksum algorithm; nil: there is none of the name.
func newSum(name string) hash.Hash {
	switch strings.ToLower(name) {
	case "crc32":
		return crc32.NewIEEE()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc64nvme":
		return crc64.New(nvme)
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	case "sha512":
		return sha512.New()
	}
	return nil
}

// body is the body of a request with the checksums that it must have. Its last error says which it has not.
type body struct {
	in     io.Reader
	left   int64 // bytes of it
	chunks *chunks
	checks []check
	sums   map[string]string // checksums to keep, by header
	done   bool
}

// check is a checksum that the body must have.
type check struct {
	sum     hash.Hash
	want    []byte // nil: that of the trailer
	header  string // to keep it; "": it is not kept
	failure string // code
}

func (b *body) Read(p []byte) (int, error) {
	if b.done {
		return 0, io.EOF
	}
	n, err := b.in.Read(p)
	for _, c := range b.checks {
		c.sum.Write(p[:n])
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, fail("IncompleteBody", "The body is longer than its header says.")
	}
	if err != io.EOF {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errIncomplete
		}
		return n, err
	}
	if b.left > 0 {
		return n, errIncomplete
	}
	if err := b.verify(); err != nil {
		return n, err
	}
	b.done = true
	return n, io.EOF
}

func (b *body) verify() error {
	for _, c := range b.checks {
		got := c.sum.Sum(nil)
		if c.want == nil {
			var ok bool
			if c.want, ok = decodeSum(b.chunks.got[c.header], c.sum); !ok {
				return fail("MalformedTrailerError", "The request has no valid trailer %s.", c.header)
			}
		}
		if string(got) != string(c.want) {
			what := "The " + strings.ToUpper(strings.TrimPrefix(c.header, sumPrefix)) + " you specified did not match the calculated checksum."
			if c.header == "" {
				what = "The bytes that arrived do not have the hash that the request says."
			}
			return fail(c.failure, "%s", what)
		}
		if c.header != "" {
			b.sums[c.header] = base64.StdEncoding.EncodeToString(got)
		}
	}
	return nil
}

func decodeSum(text string, sum hash.Hash) ([]byte, bool) {
	want, err := base64.StdEncoding.DecodeString(text)
	return want, err == nil && len(want) == sum.Size()
}

// late returns the checksums of the body, which has arrived.
func (b *body) late() map[string]string { return b.sums }

// openBody returns the body of a request, of at most most bytes.
func (c *call) openBody(most int64) (*body, error) {
	b := &body{in: c.r.Body, left: c.r.ContentLength, sums: map[string]string{}}
	if c.payload == streamSigned || c.payload == streamSignedTrailer || c.payload == streamTrailer {
		n, err := strconv.ParseInt(c.r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || n < 0 {
			return nil, fail("MissingContentLength", "You must provide the x-amz-decoded-content-length HTTP header.")
		}
		if c.signer == nil && c.payload != streamTrailer && !c.own {
			return nil, fail("InvalidRequest", "The chunks of the body cannot be signed.")
		}
		b.left, b.chunks = n, newChunks(b.in, c.signer, c.payload)
		b.in = b.chunks
	} else if strings.HasPrefix(c.payload, "STREAMING-") {
		return nil, fail("NotImplemented", "A body of the kind %s is not supported.", holt.Clip(c.payload, 60))
	} else if c.payload != unsigned && c.payload != "" {
		want, err := hex.DecodeString(c.payload)
		if err != nil || len(want) != sha256.Size {
			return nil, fail("InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-…, or a valid sha256 value.")
		}
		b.checks = append(b.checks, check{sha256.New(), want, "", "XAmzContentSHA256Mismatch"})
	}
	switch {
	case b.left < 0:
		return nil, fail("MissingContentLength", "You must provide the Content-Length HTTP header.")
	case b.left > most:
		return nil, fail("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size of %d bytes.", most)
	}
	return b, c.addChecks(b)
}

// addChecks has the checksums verified that the headers name.
func (c *call) addChecks(b *body) error {
	if said := c.r.Header.Values("Content-Md5"); len(said) > 0 {
		want, ok := decodeSum(said[0], md5.New())
		if !ok {
			return fail("InvalidDigest", "The Content-MD5 you specified is not valid.")
		}
		b.checks = append(b.checks, check{md5.New(), want, "", "BadDigest"})
	}
	seen := ""
	for header, values := range c.r.Header {
		header = strings.ToLower(header)
		name, ok := strings.CutPrefix(header, sumPrefix)
		if !ok || name == "algorithm" || name == "mode" || name == "type" {
			continue
		}
		sum := newSum(name)
		if sum == nil {
			return fail("InvalidRequest", "The checksum algorithm %s is not supported.", holt.Clip(name, 20))
		}
		want, ok := decodeSum(values[0], sum)
		if !ok {
			return fail("InvalidRequest", "Value for %s header is invalid.", header)
		}
		if seen != "" {
			return fail("InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		seen = header
		b.checks = append(b.checks, check{sum, want, header, "BadDigest"})
	}
	trailer := strings.ToLower(strings.TrimSpace(c.r.Header.Get("X-Amz-Trailer")))
	if trailer == "" {
		return nil
	}
	sum := newSum(strings.TrimPrefix(trailer, sumPrefix))
	if b.chunks == nil || !b.chunks.trailers || sum == nil || seen != "" {
		return fail("InvalidRequest", "The value specified in the x-amz-trailer header is not supported")
	}
	b.checks = append(b.checks, check{sum, nil, trailer, "BadDigest"})
	return nil
}

// slow bounds slow clients: each read or write has to bring something within patience.
type slow struct {
	http.ResponseWriter
	ctl      *http.ResponseController
	in       io.ReadCloser
	patience time.Duration
	ended    atomic.Bool // the body was read to its end
	closed   atomic.Bool // no more is to be read
}

func (s *slow) Read(p []byte) (int, error) {
	if s.closed.Load() {
		return 0, fail("AccessDenied", "The token of this request was revoked or has expired.")
	}
	_ = s.ctl.SetReadDeadline(time.Now().Add(s.patience)) // only a test's recorder cannot
	defer s.ctl.SetReadDeadline(time.Time{})
	n, err := s.in.Read(p)
	if err == io.EOF {
		s.ended.Store(true)
	}
	return n, err
}

func (s *slow) Close() error { return s.in.Close() }

func (s *slow) Write(p []byte) (int, error) {
	_ = s.ctl.SetWriteDeadline(time.Now().Add(s.patience))
	return s.ResponseWriter.Write(p)
}

// cut ends the reading and writing of a request whose token ends.
func (s *slow) cut() {
	s.closed.Store(true)
	_ = s.ctl.SetReadDeadline(time.Unix(1, 0))
	_ = s.ctl.SetWriteDeadline(time.Unix(1, 0))
}
