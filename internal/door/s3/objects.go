package s3

import (
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"holt"
)

const (
	metaPrefix = "x-amz-meta-"
	mostMeta   = 2048 // bytes of names and values of user metadata
)

// contentHeaders are kept of an object besides its user metadata; its media type is a field of its own.
var contentHeaders = []string{"cache-control", "content-disposition", "content-encoding", "content-language", "expires"}

// object returns the object of a request. A delete marker is none.
func (c *call) object() (holt.Object, error) {
	id, err := c.version()
	if err != nil {
		return holt.Object{}, err
	}
	o, err := c.d.opt.Objects.Object(c.ctx, c.bucket, c.key, id)
	if err != nil {
		return o, err
	}
	if o.Marker {
		c.Header().Set("X-Amz-Delete-Marker", "true")
		c.Header().Set("X-Amz-Version-Id", string(o.ID))
		if id != "" {
			return o, fail("MethodNotAllowed", "The specified method is not allowed against this resource.")
		}
		return o, fail("NoSuchKey", "The specified key does not exist.")
	}
	return o, nil
}

// describe sets the headers of an object.
func (c *call) describe(o holt.Object) {
	h := c.Header()
	for name, value := range o.Headers {
		if name == "content-encoding" { // aws-chunked is how it was sent
			value = strings.Trim(strings.ReplaceAll(strings.ReplaceAll(value, "aws-chunked,", ""), "aws-chunked", ""), ", ")
		}
		if kept(name) && (value != "" || strings.HasPrefix(name, metaPrefix)) {
			h.Set(name, value)
		}
	}
	h.Set("Etag", `"`+o.ETag+`"`)
	h.Set("Last-Modified", o.CreatedAt.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", o.MediaType)
	c.tell(o)
	if len(o.Tags) > 0 {
		h.Set("X-Amz-Tagging-Count", strconv.Itoa(len(o.Tags)))
	}
	if o.RetainUntil != nil {
		h.Set("X-Amz-Object-Lock-Retain-Until-Date", at(*o.RetainUntil))
		h.Set("X-Amz-Object-Lock-Mode", lockMode(o))
	}
	if o.Hold {
		h.Set("X-Amz-Object-Lock-Legal-Hold", "ON")
	}
	for name, header := range map[string]string{"response-content-type": "Content-Type", "response-content-language": "Content-Language", "response-expires": "Expires",
		"response-cache-control": "Cache-Control", "response-content-disposition": "Content-Disposition", "response-content-encoding": "Content-Encoding"} {
		if value := c.query.Get(name); value != "" {
			h.Set(header, value)
		}
	}
	// It may be a page that a hostile computer made: no browser runs it here.
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
}

// tell sets the version of an answer, if the bucket keeps versions.
func (c *call) tell(o holt.Object) {
	if on, err := c.versioned(); err == nil && on {
		c.Header().Set("X-Amz-Version-Id", string(o.ID))
	}
}

// sums sets the checksums of an object.
func (c *call) sums(o map[string]string) {
	for name, value := range o {
		if strings.HasPrefix(name, sumPrefix) && name != uploadAlgorithm && name != uploadType {
			c.Header().Set(name, value)
			c.Header().Set(uploadType, sumType(value))
		}
	}
}

func (c *call) getObject() error {
	o, err := c.object()
	if err != nil {
		return err
	}
	c.describe(o)
	if err := unmodified(c.r.Header, "", o); err != nil {
		return err
	}
	off, n, status, err := c.span(o)
	if err != nil {
		return err
	}
	h := c.Header()
	if status == http.StatusPartialContent {
		h.Set("Content-Range", "bytes "+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+n-1, 10)+"/"+strconv.FormatInt(o.Size, 10))
	} else if strings.EqualFold(c.r.Header.Get("X-Amz-Checksum-Mode"), "ENABLED") {
		c.sums(o.Headers)
	}
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	if c.r.Method == http.MethodHead || n == 0 {
		c.WriteHeader(status)
		return nil
	}
	return c.d.opt.Objects.ReadObject(c.ctx, o, off, n, begin{c, status})
}

// begin begins the answer with the first bytes, so that an error before them can be told.
type begin struct {
	c      *call
	status int
}

func (b begin) Write(p []byte) (int, error) {
	if b.c.status == 0 {
		b.c.WriteHeader(b.status)
	}
	return b.c.Write(p)
}

// span is the range of an object that a request asks for, or the part.
func (c *call) span(o holt.Object) (off, n int64, status int, err error) {
	asked := c.r.Header.Get("Range")
	if text := c.query.Get("partNumber"); text != "" {
		number, err := strconv.Atoi(text)
		switch {
		case err != nil || number < 1 || number > holt.MostParts:
			return 0, 0, 0, fail("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
		case asked != "":
			return 0, 0, 0, fail("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")
		case o.Size == 0 && number == 1:
			return 0, 0, http.StatusOK, nil
		case o.Parts == 0 && number == 1:
			return 0, o.Size, http.StatusPartialContent, nil
		case number > o.Parts:
			return 0, 0, 0, fail("InvalidPartNumber", "The requested partnumber is not satisfiable")
		}
		p, off, err := c.d.opt.Objects.ObjectPart(c.ctx, o, number)
		c.Header().Set("X-Amz-Mp-Parts-Count", strconv.Itoa(o.Parts))
		return off, p.Size, http.StatusPartialContent, err
	}
	off, n, ok, err := parseRange(asked, o.Size)
	switch {
	case err != nil:
		c.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(o.Size, 10))
		return 0, 0, 0, err
	case !ok:
		return 0, o.Size, http.StatusOK, nil
	}
	return off, n, http.StatusPartialContent, nil
}

// parseRange parses one range of bytes. ok is false for what is none, which is ignored.
func parseRange(text string, size int64) (off, n int64, ok bool, err error) {
	text, ok = strings.CutPrefix(text, "bytes=")
	first, last, dash := strings.Cut(text, "-")
	if !ok || !dash || strings.Contains(text, ",") {
		return 0, 0, false, nil
	}
	from, err1 := strconv.ParseUint(first, 10, 63)
	to, err2 := strconv.ParseUint(last, 10, 63)
	unsatisfiable := fail("InvalidRange", "The requested range is not satisfiable")
	switch {
	case first == "" && err2 == nil: // the last bytes
		if n = min(int64(to), size); n == 0 {
			return 0, 0, false, unsatisfiable
		}
		return size - n, n, true, nil
	case err1 != nil || last != "" && (err2 != nil || to < from):
		return 0, 0, false, nil
	case int64(from) >= size:
		return 0, 0, false, unsatisfiable
	case last == "":
		to = uint64(size - 1)
	}
	return int64(from), min(int64(to), size-1) - int64(from) + 1, true, nil
}

// unmodified compares an object with the conditions of a read; prefix is of their headers.
func unmodified(h http.Header, prefix string, o holt.Object) error {
	modified := o.CreatedAt.Truncate(time.Second)
	match, none := h.Get(prefix+"If-Match"), h.Get(prefix+"If-None-Match")
	failed := fail("PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	if match != "" && !matches(match, o.ETag) {
		return failed
	}
	if t, err := http.ParseTime(h.Get(prefix + "If-Unmodified-Since")); err == nil && match == "" && modified.After(t) {
		return failed
	}
	since, err := http.ParseTime(h.Get(prefix + "If-Modified-Since"))
	if none != "" && matches(none, o.ETag) || none == "" && err == nil && !modified.After(since) {
		if prefix != "" {
			return failed
		}
		return fail("NotModified", "Not Modified")
	}
	return nil
}

func matches(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = unquoted(one); one == "*" || one == etag {
			return true
		}
	}
	return false
}

func unquoted(etag string) string { return strings.Trim(strings.TrimSpace(etag), `"`) }

// condition is that of a request that changes an object.
func (c *call) condition() (holt.ObjectCondition, error) {
	match, none := unquoted(c.r.Header.Get("If-Match")), unquoted(c.r.Header.Get("If-None-Match"))
	if none != "" && none != "*" {
		return holt.ObjectCondition{}, fail("NotImplemented", "If-None-Match takes only *.")
	}
	return holt.ObjectCondition{Match: match, NoneMatch: none}, nil
}

// put is the object that a request describes.
func (c *call) put() (p holt.ObjectPut, err error) {
	p.Bucket, p.Name, p.MediaType, p.Headers = c.bucket, c.key, c.r.Header.Get("Content-Type"), map[string]string{}
	bytes := 0
	for name, values := range c.r.Header {
		if kept(name) {
			value := strings.Join(values, ",")
			p.Headers[strings.ToLower(name)] = value
			if strings.HasPrefix(strings.ToLower(name), metaPrefix) {
				bytes += len(name) - len(metaPrefix) + len(value)
			}
		}
	}
	if bytes > mostMeta {
		return p, fail("MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size of %d bytes", mostMeta)
	}
	if text := c.r.Header.Get("X-Amz-Tagging"); text != "" {
		values, err := url.ParseQuery(text)
		if err != nil {
			return p, fail("InvalidArgument", "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.")
		}
		p.Tags = map[string]string{}
		n := 0
		for k, v := range values {
			p.Tags[k], n = v[0], n+len(v)
		}
		if err := checkTags(p.Tags, n, 10); err != nil {
			return p, err
		}
	}
	if err := c.lock(&p); err != nil {
		return p, err
	}
	p.If, err = c.condition()
	return p, err
}

func (c *call) putObject() error {
	if c.r.Header.Get("X-Amz-Copy-Source") != "" {
		return c.copyObject()
	}
	p, err := c.put()
	if err != nil {
		return err
	}
	b, err := c.openBody(holt.MostObjectPut)
	if err != nil {
		return err
	}
	p.Late = b.late
	o, err := c.d.opt.Objects.PutObject(c.ctx, p, b)
	if err != nil {
		return err
	}
	c.sums(b.sums)
	return c.made(o)
}

// made answers that an object is stored.
func (c *call) made(o holt.Object) error {
	c.tell(o)
	c.Header().Set("Etag", `"`+o.ETag+`"`)
	c.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) tags() error {
	o, err := c.object()
	if err != nil {
		return err
	}
	c.tell(o)
	c.xml(http.StatusOK, taggingOf(o.Tags))
	return nil
}

func (c *call) setTags() error {
	var in taggingXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	tags, err := in.tags(10)
	if err == nil {
		err = c.change(func(o *holt.Object) error { o.Tags = tags; return nil })
	}
	return c.done(http.StatusOK, err)
}

func (c *call) deleteTags() error {
	return c.done(http.StatusNoContent, c.change(func(o *holt.Object) error { o.Tags = nil; return nil }))
}

// change changes the object of a request.
func (c *call) change(change func(*holt.Object) error) error {
	o, err := c.object()
	if err != nil {
		return err
	}
	c.tell(o)
	return c.d.opt.Objects.ChangeObject(c.ctx, c.bucket, c.key, o.ID, change)
}

// attributes are those that GetObjectAttributes asks for.
func (c *call) attributes() error {
	o, err := c.object()
	if err != nil {
		return err
	}
	wanted := strings.Split(strings.ReplaceAll(strings.Join(c.r.Header.Values("X-Amz-Object-Attributes"), ","), " ", ""), ",")
	type sum struct {
		XMLName xml.Name
		Value   string `xml:",chardata"`
	}
	out := struct {
		XMLName      xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ GetObjectAttributesResponse"`
		ETag         string   `xml:",omitempty"`
		Checksum     []sum    `xml:"Checksum>any,omitempty"`
		Parts        int      `xml:"ObjectParts>PartsCount,omitempty"`
		StorageClass string   `xml:",omitempty"`
		ObjectSize   *int64   `xml:",omitempty"`
	}{}
	for _, name := range wanted {
		switch name {
		case "ETag":
			out.ETag = o.ETag
		case "ObjectSize":
			out.ObjectSize = &o.Size
		case "StorageClass":
			out.StorageClass = "STANDARD"
		case "ObjectParts":
			out.Parts = o.Parts
		case "Checksum":
			for _, header := range slices.Sorted(maps.Keys(o.Headers)) {
				if name, ok := strings.CutPrefix(header, sumPrefix); ok && name != "type" && name != "algorithm" {
					out.Checksum = append(out.Checksum, sum{xml.Name{Local: "Checksum" + strings.ToUpper(name)}, o.Headers[header]})
				}
			}
		default:
			return fail("InvalidArgument", "Invalid attribute name specified.")
		}
	}
	c.tell(o)
	c.Header().Set("Last-Modified", o.CreatedAt.UTC().Format(http.TimeFormat))
	c.xml(http.StatusOK, out)
	return nil
}
