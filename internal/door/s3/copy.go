package s3

import (
	"encoding/base64"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"holt"
)

// source returns the object that x-amz-copy-source names, as its conditions ask for it.
func (c *call) source() (holt.Object, error) {
	text, query, _ := strings.Cut(c.r.Header.Get("X-Amz-Copy-Source"), "?")
	name, err := url.PathUnescape(text)
	bucket, key, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	if err != nil || !ok || key == "" {
		return holt.Object{}, fail("InvalidArgument", "Invalid copy source object key")
	}
	of := *c
	of.bucket, of.key, of.query = bucket, key, url.Values{}
	if id, ok := strings.CutPrefix(query, "versionId="); ok {
		of.query.Set("versionId", id)
	}
	if who := c.r.Header.Get("X-Amz-Source-Expected-Bucket-Owner"); who != "" && who != c.owner().ID {
		return holt.Object{}, fail("AccessDenied", "The source bucket is not of the owner %s.", holt.Clip(who, 64))
	}
	o, err := of.object()
	c.Header().Del("X-Amz-Version-Id")
	c.Header().Del("X-Amz-Delete-Marker")
	if err != nil {
		return o, of.failureOf(err)
	}
	if on, err := of.versioned(); err == nil && on {
		c.Header().Set("X-Amz-Copy-Source-Version-Id", string(o.ID))
	}
	return o, unmodified(c.r.Header, "X-Amz-Copy-Source-", o)
}

type copyXML struct {
	XMLName      xml.Name
	LastModified string
	ETag         string
}

func (c *call) copyObject() error {
	from, err := c.source()
	if err != nil {
		return err
	}
	if from.Size > holt.MostObjectPut {
		return fail("InvalidRequest", "The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(holt.MostObjectPut))
	}
	p, err := c.put()
	if err != nil {
		return err
	}
	replace := strings.EqualFold(c.r.Header.Get("X-Amz-Metadata-Directive"), "REPLACE")
	if from.Bucket == c.bucket && from.Name == c.key && !replace && from.Newest && c.r.Header.Get("X-Amz-Tagging-Directive") != "REPLACE" {
		return fail("InvalidRequest", "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.")
	}
	if !replace {
		p.MediaType = from.MediaType
		maps.DeleteFunc(p.Headers, func(name, _ string) bool { return kept(name) }) // what is left is of the lock
		for name, value := range from.Headers {
			if kept(name) {
				p.Headers[name] = value
			}
		}
	}
	if !strings.EqualFold(c.r.Header.Get("X-Amz-Tagging-Directive"), "REPLACE") {
		p.Tags = from.Tags
	}
	if from.Parts == 0 { // the same bytes have the same checksums
		for name, value := range from.Headers {
			if strings.HasPrefix(name, sumPrefix) {
				p.Headers[name] = value // of the same bytes
			}
		}
	}
	r := c.reading(from, 0, from.Size)
	defer r.Close()
	in := io.Reader(r)
	if algorithm := c.r.Header.Get(uploadAlgorithm); algorithm != "" {
		sum := newSum(algorithm)
		if sum == nil {
			return fail("InvalidRequest", "Checksum algorithm provided is unsupported.")
		}
		in, p.Late = io.TeeReader(r, sum), func() map[string]string {
			return map[string]string{sumPrefix + strings.ToLower(algorithm): base64.StdEncoding.EncodeToString(sum.Sum(nil))}
		}
	}
	o, err := c.d.opt.Objects.PutObject(c.ctx, p, in)
	if err != nil {
		return err
	}
	c.tell(o)
	c.xml(http.StatusOK, copyXML{xml.Name{Local: "CopyObjectResult"}, at(o.CreatedAt), `"` + o.ETag + `"`})
	return nil
}

// reading is the bytes of an object as they are read.
func (c *call) reading(o holt.Object, off, n int64) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(c.d.opt.Objects.ReadObject(c.ctx, o, off, n, w)) }()
	return r
}
