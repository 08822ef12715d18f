package s3

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"strconv"
	"strings"
)

// What stands for the hash of a body that is sent in chunks. The names are those of S3.
const (
	streamSigned        = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	streamSignedTrailer = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	streamTrailer       = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
)

const (
	mostChunkLine = 4 << 10  // bytes of the line before a chunk, and of a trailer
	mostTrailers  = 16 << 10 // bytes of all trailers
)

// chunks reads a body in chunks: SIZE[;chunk-signature=SIGNATURE] CRLF, bytes, CRLF; the last is empty, and trailers may
// follow it. It verifies the signature of each chunk at its end.
type chunks struct {
	in       *bufio.Reader
	signer   *signer // nil: they are not signed
	trailers bool
	got      map[string]string // trailers, by lower-case name

	left      int64 // bytes of the chunk
	signature string
	sum       hash.Hash
	err       error
}

func newChunks(in io.Reader, s *signer, payload string) *chunks {
	c := &chunks{in: bufio.NewReaderSize(in, mostChunkLine), trailers: payload != streamSigned, got: map[string]string{}, sum: sha256.New()}
	if payload != streamTrailer {
		c.signer = s
	}
	return c
}

var errIncomplete = fail("IncompleteBody", "The request body terminated unexpectedly")

func (c *chunks) Read(p []byte) (int, error) {
	for c.err == nil && c.left == 0 {
		c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.sum.Write(p[:n])
	c.left -= int64(n)
	if err != nil {
		c.err = incomplete(err)
		return n, c.err
	}
	if c.left == 0 {
		c.err = c.end()
	}
	return n, c.err
}

func incomplete(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errIncomplete
	}
	return err
}

// line reads a line that ends with CRLF.
func (c *chunks) line() (string, error) {
	b, err := c.in.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errIncomplete
		}
		return "", incomplete(err)
	}
	text, ok := strings.CutSuffix(string(b), "\r\n")
	if !ok {
		return "", errIncomplete
	}
	return text, nil
}

// next begins a chunk; io.EOF: there is none.
func (c *chunks) next() error {
	text, err := c.line()
	if err != nil {
		return err
	}
	size, extension, _ := strings.Cut(text, ";")
	n, err := strconv.ParseUint(size, 16, 63)
	if err != nil || len(size) > 16 {
		return errIncomplete
	}
	c.signature = ""
	for field := range strings.SplitSeq(extension, ";") {
		if value, ok := strings.CutPrefix(field, "chunk-signature="); ok {
			c.signature = value
		}
	}
	c.sum.Reset()
	if c.left = int64(n); n > 0 {
		return nil
	}
	if err := c.check(); err != nil {
		return err
	}
	if c.trailers {
		return c.readTrailers()
	}
	if text, err := c.line(); err != nil || text != "" {
		return errIncomplete
	}
	return io.EOF
}

// end reads what follows the bytes of a chunk.
func (c *chunks) end() error {
	if text, err := c.line(); err != nil || text != "" {
		return errIncomplete
	}
	return c.check()
}

// check verifies the chunk that ends.
func (c *chunks) check() error {
	if c.signer == nil {
		return nil
	}
	s := c.signer
	return s.check(c.signature, algorithm+"-PAYLOAD\n"+s.at+"\n"+s.scope+"\n"+s.last+"\n"+emptyHash+"\n"+hex.EncodeToString(c.sum.Sum(nil)))
}

func (s *signer) check(signature, text string) error {
	want := hex.EncodeToString(mac(s.key, text))
	if !hmac.Equal([]byte(want), []byte(signature)) {
		return fail("SignatureDoesNotMatch", "The signature of a chunk does not match.")
	}
	s.last = want
	return nil
}

// readTrailers reads the trailers after the last chunk, and verifies their signature.
func (c *chunks) readTrailers() error {
	var signed strings.Builder
	signature, bytes := "", 0
	for {
		text, err := c.line()
		if err != nil {
			return err
		}
		if bytes += len(text); bytes > mostTrailers {
			return errIncomplete
		}
		if text == "" {
			break
		}
		name, value, ok := strings.Cut(text, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !ok:
			return errIncomplete
		case name == "x-amz-trailer-signature":
			signature = value
		default:
			c.got[name] = value
			signed.WriteString(name + ":" + value + "\n")
		}
	}
	if c.signer != nil {
		s := c.signer
		if err := s.check(signature, algorithm+"-TRAILER\n"+s.at+"\n"+s.scope+"\n"+s.last+"\n"+digest(signed.String())); err != nil {
			return err
		}
	}
	return io.EOF
}
