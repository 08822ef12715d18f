package s3

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"strconv"
	"strings"

	"holt"
)

const mostKeys = 1000 // on a page

type objectXML struct {
	Key          string
	LastModified string
	ETag         string
	sumXML
	Size         int64
	StorageClass string
	Owner        *owner `xml:",omitempty"`
}

// sumXML says which checksum an object has.
type sumXML struct {
	ChecksumAlgorithm string `xml:",omitempty"`
	ChecksumType      string `xml:",omitempty"`
}

func sumOf(o holt.Object) (s sumXML) {
	for name, value := range o.Headers {
		algorithm, ok := strings.CutPrefix(name, sumPrefix)
		if ok && name != uploadAlgorithm && name != uploadType {
			s = sumXML{strings.ToUpper(algorithm), sumType(value)}
		}
	}
	return s
}

// sumType says what a checksum is of.
func sumType(value string) string {
	if strings.Contains(value, "-") {
		return "COMPOSITE" // the checksums of parts
	}
	return "FULL_OBJECT"
}

type prefixXML struct{ Prefix string }

// limit is the size of a page that a query asks for.
func (c *call) limit(name string) (int, error) {
	text := c.query.Get(name)
	if text == "" {
		return mostKeys, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fail("InvalidArgument", "Argument %s must be an integer between 0 and 2147483647", name)
	}
	return min(int(n), mostKeys), nil
}

// encoded is how names are written, if the query asks for that.
func (c *call) encoded() (func(string) string, error) {
	switch c.query.Get("encoding-type") {
	case "":
		return func(s string) string { return s }, nil
	case "url":
		return func(s string) string { return escape(s, true) }, nil
	}
	return nil, fail("InvalidArgument", "Invalid Encoding Method specified in Request")
}

// listing is what all lists have.
type listingXML struct {
	Name           string
	Prefix         string
	Delimiter      string `xml:",omitempty"`
	EncodingType   string `xml:",omitempty"`
	MaxKeys        int
	IsTruncated    bool
	CommonPrefixes []prefixXML
}

// page reads a page of the bucket.
func (c *call) page(q holt.ObjectQuery) (holt.ObjectPage, listingXML, func(string) string, error) {
	encode, err := c.encoded()
	if err == nil {
		q.Limit, err = c.limit("max-keys")
	}
	if err != nil {
		return holt.ObjectPage{}, listingXML{}, nil, err
	}
	q.Bucket, q.Prefix, q.Delimiter = c.bucket, c.query.Get("prefix"), c.query.Get("delimiter")
	p, err := c.d.opt.Objects.Objects(c.ctx, q)
	out := listingXML{Name: c.bucket, Prefix: encode(q.Prefix), Delimiter: encode(q.Delimiter), EncodingType: c.query.Get("encoding-type"), MaxKeys: q.Limit, IsTruncated: p.After != ""}
	for _, one := range p.Prefixes {
		out.CommonPrefixes = append(out.CommonPrefixes, prefixXML{encode(one)})
	}
	return p, out, encode, err
}

func (c *call) contents(p holt.ObjectPage, encode func(string) string, owned bool) (list []objectXML) {
	for _, o := range p.Objects {
		one := objectXML{Key: encode(o.Name), LastModified: at(o.CreatedAt), ETag: `"` + o.ETag + `"`, sumXML: sumOf(o), Size: o.Size, StorageClass: "STANDARD"}
		if owned {
			who := c.owner()
			one.Owner = &who
		}
		list = append(list, one)
	}
	return list
}

func (c *call) listObjects() error {
	marker := c.query.Get("marker")
	p, common, encode, err := c.page(holt.ObjectQuery{After: marker})
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		listingXML
		Marker     string
		NextMarker string      `xml:",omitempty"`
		Contents   []objectXML `xml:"Contents"`
	}{listingXML: common, Marker: encode(marker), NextMarker: encode(p.After), Contents: c.contents(p, encode, true)})
	return nil
}

func (c *call) listObjects2() error {
	if c.query.Get("list-type") != "2" {
		return fail("InvalidArgument", "Invalid List Type specified in Request")
	}
	after, token := c.query.Get("start-after"), c.query.Get("continuation-token")
	if c.query.Has("continuation-token") {
		b, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(b) == 0 {
			return fail("InvalidArgument", "The continuation token provided is incorrect")
		}
		after = string(b)
	}
	p, common, encode, err := c.page(holt.ObjectQuery{After: after})
	if err != nil {
		return err
	}
	next := ""
	if p.After != "" {
		next = base64.RawURLEncoding.EncodeToString([]byte(p.After))
	}
	c.xml(http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
		listingXML
		KeyCount              int
		StartAfter            string      `xml:",omitempty"`
		ContinuationToken     string      `xml:",omitempty"`
		NextContinuationToken string      `xml:",omitempty"`
		Contents              []objectXML `xml:"Contents"`
	}{listingXML: common, KeyCount: len(p.Objects) + len(p.Prefixes), StartAfter: encode(c.query.Get("start-after")), ContinuationToken: token, NextContinuationToken: next,
		Contents: c.contents(p, encode, c.query.Get("fetch-owner") == "true")})
	return nil
}

type versionXML struct {
	XMLName      xml.Name
	Key          string
	VersionID    string `xml:"VersionId"`
	IsLatest     bool
	LastModified string
	ETag         string `xml:",omitempty"`
	sumXML
	Size         *int64 `xml:",omitempty"`
	StorageClass string `xml:",omitempty"`
	Owner        owner
}

func (c *call) listVersions() error {
	key, id := c.query.Get("key-marker"), c.query.Get("version-id-marker")
	if id != "" && key == "" {
		return fail("InvalidArgument", "A version-id marker cannot be specified without a key marker.")
	}
	on, err := c.versioned()
	if err != nil {
		return err
	}
	q := holt.ObjectQuery{After: key, Versions: true}
	if id != "" && id != "null" {
		if q.AfterID, err = holt.ParseArtifactID(id); err != nil {
			return fail("InvalidArgument", "Invalid version id specified")
		}
	}
	p, common, encode, err := c.page(q)
	if err != nil {
		return err
	}
	var list []versionXML
	for i := range p.Objects {
		o := &p.Objects[i]
		v := versionXML{XMLName: xml.Name{Local: "Version"}, Key: encode(o.Name), VersionID: string(o.ID), IsLatest: o.Newest, LastModified: at(o.CreatedAt), Owner: c.owner()}
		if !on && o.Newest {
			v.VersionID = "null"
		}
		if o.Marker {
			v.XMLName.Local = "DeleteMarker"
		} else {
			v.ETag, v.Size, v.StorageClass, v.sumXML = `"`+o.ETag+`"`, &o.Size, "STANDARD", sumOf(*o)
		}
		list = append(list, v)
	}
	c.xml(http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListVersionsResult"`
		listingXML
		KeyMarker           string
		VersionIDMarker     string `xml:"VersionIdMarker"`
		NextKeyMarker       string `xml:",omitempty"`
		NextVersionIDMarker string `xml:"NextVersionIdMarker,omitempty"`
		Versions            []versionXML
	}{listingXML: common, KeyMarker: encode(key), VersionIDMarker: id, NextKeyMarker: encode(p.After), NextVersionIDMarker: string(p.AfterID), Versions: list})
	return nil
}

type uploadXML struct {
	Key              string
	UploadID         string `xml:"UploadId"`
	Initiator, Owner owner
	StorageClass     string
	Initiated        string
}

func (c *call) listUploads() error {
	limit, err := c.limit("max-uploads")
	if err != nil {
		return err
	}
	encode, err := c.encoded()
	if err != nil {
		return err
	}
	all, err := c.d.opt.Objects.Uploads(c.ctx, c.bucket)
	if err != nil {
		return err
	}
	prefix, delimiter, key, id := c.query.Get("prefix"), c.query.Get("delimiter"), c.query.Get("key-marker"), c.query.Get("upload-id-marker")
	out := struct {
		XMLName            xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListMultipartUploadsResult"`
		Bucket             string
		KeyMarker          string
		UploadIDMarker     string `xml:"UploadIdMarker"`
		NextKeyMarker      string `xml:",omitempty"`
		NextUploadIDMarker string `xml:"NextUploadIdMarker,omitempty"`
		Prefix, Delimiter  string `xml:",omitempty"`
		EncodingType       string `xml:",omitempty"`
		MaxUploads         int
		IsTruncated        bool
		Uploads            []uploadXML `xml:"Upload"`
		CommonPrefixes     []prefixXML
	}{Bucket: c.bucket, KeyMarker: encode(key), UploadIDMarker: id, Prefix: encode(prefix), Delimiter: encode(delimiter), EncodingType: c.query.Get("encoding-type"), MaxUploads: limit}
	after, last, lastID := id == "", "", ""
	for _, u := range all {
		rest, ok := strings.CutPrefix(u.Name, prefix)
		if !ok || u.Name < key {
			continue
		}
		item := u.Name
		if i := strings.Index(rest, delimiter); delimiter != "" && i >= 0 {
			if item = prefix + rest[:i+len(delimiter)]; item <= key || item == last { // it is shown already
				continue
			}
		} else if u.Name == key { // those of the marker's name up to its id were shown
			if shown := !after || id == ""; shown {
				after = after || string(u.ID) == id
				continue
			}
		}
		if len(out.Uploads)+len(out.CommonPrefixes) == limit {
			out.IsTruncated, out.NextKeyMarker, out.NextUploadIDMarker = limit > 0, encode(last), lastID
			break
		}
		if last, lastID = item, ""; item != u.Name {
			out.CommonPrefixes = append(out.CommonPrefixes, prefixXML{encode(item)})
			continue
		}
		lastID = string(u.ID)
		out.Uploads = append(out.Uploads, uploadXML{encode(u.Name), lastID, c.owner(), c.owner(), "STANDARD", at(u.CreatedAt)})
	}
	c.xml(http.StatusOK, out)
	return nil
}
