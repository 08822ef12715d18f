package s3

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"holt"
)

// uploadAlgorithm is the header of an upload with the algorithm of its parts' checksums.
const uploadAlgorithm = sumPrefix + "algorithm"

// uploadType is the header that says whether the checksum of an upload is that of the whole object or of its parts' checksums.
const uploadType = sumPrefix + "type"

// uploadID is the upload that a request names.
func (c *call) uploadID() (holt.ArtifactID, error) {
	id, err := holt.ParseArtifactID(c.query.Get("uploadId"))
	if err != nil {
		return "", fmt.Errorf("%w", holt.ErrNoUpload)
	}
	return id, nil
}

func (c *call) createUpload() error {
	p, err := c.put()
	if err != nil {
		return err
	}
	algorithm := c.r.Header.Get(uploadAlgorithm)
	if algorithm == "" && c.r.Header.Get(uploadType) != "" {
		return fail("InvalidRequest", "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
	}
	if algorithm != "" {
		if newSum(algorithm) == nil {
			return fail("InvalidRequest", "Checksum algorithm provided is unsupported.")
		}
		p.Headers[uploadAlgorithm] = strings.ToUpper(algorithm)
		c.Header().Set(uploadAlgorithm, strings.ToUpper(algorithm))
		kind := strings.ToUpper(c.r.Header.Get(uploadType))
		if kind == "" {
			kind = "COMPOSITE"
			if strings.EqualFold(algorithm, "CRC64NVME") {
				kind = "FULL_OBJECT"
			}
		}
		if _, can := crcs[strings.ToUpper(algorithm)]; kind != "COMPOSITE" && kind != "FULL_OBJECT" || kind == "FULL_OBJECT" && !can {
			return fail("InvalidRequest", "The %s checksum type cannot be used with the %s checksum algorithm.", kind, algorithm)
		}
		p.Headers[uploadType] = kind
		c.Header().Set(uploadType, kind)
	}
	if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); err != nil && !c.own { // a computer's is made when it is first used
		return err
	}
	up, err := c.d.opt.Objects.CreateUpload(c.ctx, p)
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, struct {
		XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
		Bucket   string
		Key      string
		UploadID string `xml:"UploadId"`
	}{Bucket: c.bucket, Key: c.key, UploadID: string(up.ID)})
	return nil
}

func (c *call) putPart() error {
	id, err := c.uploadID()
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(c.query.Get("partNumber"))
	if err != nil || number < 1 || number > holt.MostParts {
		return fail("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
	}
	if c.r.Header.Get("X-Amz-Copy-Source") != "" {
		return c.copyPart(id, number)
	}
	b, err := c.openBody(holt.MostObjectPut)
	if err != nil {
		return err
	}
	p, err := c.d.opt.Objects.PutPart(c.ctx, c.bucket, c.key, id, number, b, b.late)
	if err != nil {
		return err
	}
	c.sums(p.Headers)
	c.Header().Set("Etag", `"`+p.ETag+`"`)
	c.WriteHeader(http.StatusOK)
	return nil
}

// copyPart makes a part of a range of another object.
func (c *call) copyPart(id holt.ArtifactID, number int) error {
	from, err := c.source()
	if err != nil {
		return err
	}
	off, n := int64(0), from.Size
	if asked := c.r.Header.Get("X-Amz-Copy-Source-Range"); asked != "" {
		last := asked[strings.LastIndexByte(asked, '-')+1:]
		end, err := strconv.ParseInt(last, 10, 64)
		ok := false
		if err == nil && end < from.Size {
			off, n, ok, err = parseRange(asked, from.Size)
		}
		if err != nil || !ok {
			return fail("InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy, within the source.")
		}
	}
	if n > holt.MostObjectPut {
		return fail("InvalidRequest", "The specified copy source is larger than the maximum allowable size for a copy source: %d", int64(holt.MostObjectPut))
	}
	r := c.reading(from, off, n)
	defer r.Close()
	p, err := c.d.opt.Objects.PutPart(c.ctx, c.bucket, c.key, id, number, r, func() map[string]string { return nil })
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, copyXML{xml.Name{Local: "CopyPartResult"}, at(p.CreatedAt), `"` + p.ETag + `"`})
	return nil
}

type partXML struct {
	PartNumber     int
	LastModified   string `xml:",omitempty"`
	ETag           string
	Size           int64  `xml:",omitempty"`
	ChecksumCRC32  string `xml:",omitempty"`
	ChecksumCRC32C string `xml:",omitempty"`
	ChecksumCRC64  string `xml:"ChecksumCRC64NVME,omitempty"`
	ChecksumSHA1   string `xml:",omitempty"`
	ChecksumSHA256 string `xml:",omitempty"`
	ChecksumSHA512 string `xml:",omitempty"`
}

// sums are the checksums of a part, by header.
func (p *partXML) sums() map[string]*string {
	return map[string]*string{sumPrefix + "crc32": &p.ChecksumCRC32, sumPrefix + "crc32c": &p.ChecksumCRC32C, sumPrefix + "crc64nvme": &p.ChecksumCRC64,
		sumPrefix + "sha1": &p.ChecksumSHA1, sumPrefix + "sha256": &p.ChecksumSHA256, sumPrefix + "sha512": &p.ChecksumSHA512}
}

func (c *call) listParts() error {
	id, err := c.uploadID()
	if err != nil {
		return err
	}
	limit, err := c.limit("max-parts")
	if err != nil {
		return err
	}
	after := 0
	if text := c.query.Get("part-number-marker"); text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 0 {
			return fail("InvalidArgument", "Argument part-number-marker must be an integer between 0 and 2147483647")
		}
	}
	up, parts, err := c.d.opt.Objects.Parts(c.ctx, c.bucket, c.key, id, after+1, limit+1)
	if err != nil {
		return err
	}
	out := struct {
		XMLName              xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListPartsResult"`
		Bucket, Key          string
		UploadID             string `xml:"UploadId"`
		Initiator, Owner     owner
		StorageClass         string
		PartNumberMarker     int
		NextPartNumberMarker int `xml:",omitempty"`
		MaxParts             int
		IsTruncated          bool
		ChecksumAlgorithm    string    `xml:",omitempty"`
		Parts                []partXML `xml:"Part"`
	}{Bucket: c.bucket, Key: c.key, UploadID: string(id), Initiator: c.owner(), Owner: c.owner(), StorageClass: "STANDARD", PartNumberMarker: after, MaxParts: limit, ChecksumAlgorithm: up.Headers[uploadAlgorithm]}
	for i, p := range parts {
		if i == limit {
			out.IsTruncated = true
			break
		}
		one := partXML{PartNumber: p.Number, LastModified: at(p.CreatedAt), ETag: `"` + p.ETag + `"`, Size: p.Size}
		for header, to := range one.sums() {
			*to = p.Headers[header]
		}
		out.Parts, out.NextPartNumberMarker = append(out.Parts, one), p.Number
	}
	c.xml(http.StatusOK, out)
	return nil
}

type completeXML struct {
	XMLName xml.Name  `xml:"CompleteMultipartUpload"`
	Parts   []partXML `xml:"Part"`
}

func (c *call) completeUpload() error {
	id, err := c.uploadID()
	if err != nil {
		return err
	}
	// The checksums in the headers are of the object, not of this body.
	want := map[string]string{}
	for name, values := range c.r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, sumPrefix) {
			want[lower] = values[0]
			c.r.Header.Del(name)
		}
	}
	var in completeXML
	if err := c.decode(mostCompleteXML, &in); err != nil {
		return err
	}
	if len(in.Parts) == 0 || len(in.Parts) > holt.MostParts {
		return fail("MalformedXML", "There must be 1 to 10000 parts.")
	}
	parts, last := make([]holt.ObjectPart, len(in.Parts)), 0
	for i, p := range in.Parts {
		if p.PartNumber <= last {
			return fail("InvalidPartOrder", "The list of parts was not in ascending order. Parts must be ordered by part number.")
		}
		last = p.PartNumber
		parts[i] = holt.ObjectPart{Number: p.PartNumber, ETag: unquoted(p.ETag)}
	}
	cond, err := c.condition()
	if err != nil {
		return err
	}
	sums, err := c.joined(id, in.Parts, want)
	if err != nil {
		return err
	}
	o, err := c.d.opt.Objects.CompleteUpload(c.ctx, c.bucket, c.key, id, parts, cond, sums)
	if err != nil {
		return err
	}
	c.tell(o)
	c.xml(http.StatusOK, struct {
		XMLName                     xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
		Location, Bucket, Key, ETag string
	}{Location: "http://" + c.r.Host + c.r.URL.EscapedPath(), Bucket: c.bucket, Key: c.key, ETag: `"` + o.ETag + `"`})
	return nil
}

// joined returns the checksum of the object that an upload makes, if each part has one of the upload's algorithm: that of the
// whole object or of the parts' checksums. It compares those that the client says, and refuses one that it cannot compare.
func (c *call) joined(id holt.ArtifactID, said []partXML, want map[string]string) (map[string]string, error) {
	up, parts, err := c.d.opt.Objects.Parts(c.ctx, c.bucket, c.key, id, 1, holt.MostParts)
	if errors.Is(err, holt.ErrNoUpload) {
		return nil, nil // it may be complete
	}
	if err != nil {
		return nil, err
	}
	of := map[int]holt.ObjectPart{}
	for _, p := range parts {
		of[p.Number] = p
	}
	algorithm := up.Headers[uploadAlgorithm]
	header, sum, whole := sumPrefix+strings.ToLower(algorithm), newSum(algorithm), uint64(0)
	poly, full := crcs[algorithm]
	full = full && up.Headers[uploadType] == "FULL_OBJECT"
	for name := range want {
		if name != header && name != uploadAlgorithm && name != uploadType {
			return nil, fail("InvalidRequest", "The %s cannot be compared: the upload does not have this checksum algorithm.", holt.Clip(name, 40))
		}
	}
	size := int64(0)
	for _, p := range said {
		size += of[p.PartNumber].Size
	}
	if text := c.r.Header.Get("X-Amz-Mp-Object-Size"); text != "" && text != strconv.FormatInt(size, 10) {
		return nil, fail("InvalidRequest", "The provided 'x-amz-mp-object-size' header value %s does not match what was computed: %d", holt.Clip(text, 20), size)
	}
	for _, p := range said {
		has := of[p.PartNumber]
		for name, text := range p.sums() {
			if *text != "" && has.Headers[name] != "" && *text != has.Headers[name] {
				return nil, fail("InvalidPart", "The checksum of part %d does not match.", p.PartNumber)
			}
		}
		b, err := base64.StdEncoding.DecodeString(has.Headers[header])
		switch none := sum == nil || err != nil || len(b) == 0; {
		case none && want[header] != "":
			return nil, fail("InvalidRequest", "The %s cannot be compared: part %d has none.", header, p.PartNumber)
		case none:
			return nil, nil
		case full:
			whole = poly.join(whole, poly.value(b), has.Size)
		}
		sum.Write(b)
	}
	got := fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(sum.Sum(nil)), len(said))
	if full {
		got = base64.StdEncoding.EncodeToString(poly.bytes(whole))
	}
	if w := want[header]; w != "" && w != got && (full || w+fmt.Sprintf("-%d", len(said)) != got) {
		return nil, fail("BadDigest", "The %s you specified did not match the calculated checksum.", header)
	}
	return map[string]string{header: got}, nil
}

func (c *call) abortUpload() error {
	id, err := c.uploadID()
	if err == nil {
		err = c.d.opt.Objects.AbortUpload(c.ctx, c.bucket, c.key, id)
	}
	return c.done(http.StatusNoContent, err)
}
