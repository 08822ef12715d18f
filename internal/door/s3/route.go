package s3

import (
	"encoding/xml"
	"io"
	"net/http"
	"slices"
	"strings"

	"holt"
)

// answers are the functions of requests, by method and what the query names: "" is nothing.
type answers map[string]func(*call) error

var onService = answers{"GET ": (*call).listBuckets}

var onBucket = answers{
	"PUT ": (*call).createBucket, "HEAD ": (*call).headBucket, "DELETE ": (*call).deleteBucket,
	"GET ": (*call).listObjects, "GET list-type": (*call).listObjects2, "GET versions": (*call).listVersions, "GET uploads": (*call).listUploads,
	"POST delete": (*call).deleteObjects, "GET location": (*call).location, "GET acl": (*call).acl,
	"GET versioning": (*call).versioning, "PUT versioning": (*call).setVersioning,
	"GET object-lock": (*call).lockConfiguration, "PUT object-lock": (*call).setLockConfiguration,
	"GET lifecycle": (*call).lifecycle, "PUT lifecycle": (*call).setLifecycle, "DELETE lifecycle": (*call).deleteLifecycle,
	"GET cors": (*call).cors, "PUT cors": (*call).setCORS, "DELETE cors": (*call).deleteCORS,
	"GET tagging": (*call).bucketTags, "PUT tagging": (*call).setBucketTags, "DELETE tagging": (*call).deleteBucketTags,
	"GET policy": none("NoSuchBucketPolicy"), "GET encryption": none("ServerSideEncryptionConfigurationNotFoundError"), "GET website": none("NoSuchWebsiteConfiguration"),
	"GET publicAccessBlock": none("NoSuchPublicAccessBlockConfiguration"), "GET ownershipControls": none("OwnershipControlsNotFoundError"), "GET replication": none("ReplicationConfigurationNotFoundError"),
}

var onObject = answers{
	"GET ": (*call).getObject, "HEAD ": (*call).getObject, "PUT ": (*call).putObject, "DELETE ": (*call).deleteObject,
	"GET attributes": (*call).attributes, "GET acl": (*call).acl,
	"GET tagging": (*call).tags, "PUT tagging": (*call).setTags, "DELETE tagging": (*call).deleteTags,
	"GET retention": (*call).retention, "PUT retention": (*call).setRetention, "GET legal-hold": (*call).legalHold, "PUT legal-hold": (*call).setLegalHold,
	"POST uploads": (*call).createUpload, "PUT uploadId": (*call).putPart, "GET uploadId": (*call).listParts, "POST uploadId": (*call).completeUpload, "DELETE uploadId": (*call).abortUpload,
}

// subresources are the names in a query that make a request another one.
var subresources = []string{"accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "intelligent-tiering", "inventory", "legal-hold", "lifecycle", "list-type",
	"location", "logging", "metadataTable", "metrics", "notification", "object-lock", "ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment",
	"restore", "retention", "select", "session", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions", "website"}

// none answers that there is no configuration of a kind.
func none(code string) func(*call) error {
	return func(c *call) error {
		if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); err != nil {
			return err
		}
		return fail(code, "There is none.")
	}
}

// unknown are headers that would be in effect only in S3: a request with one is refused rather than misunderstood.
var unknown = []string{"X-Amz-Server-Side-Encryption-Customer-Algorithm", "X-Amz-Copy-Source-Server-Side-Encryption-Customer-Algorithm", "X-Amz-Website-Redirect-Location",
	"X-Amz-Grant-Read", "X-Amz-Grant-Write", "X-Amz-Grant-Full-Control", "X-Amz-Grant-Read-Acp", "X-Amz-Grant-Write-Acp", "X-Amz-Write-Offset-Bytes", "X-Amz-If-Match-Size", "X-Amz-If-Match-Last-Modified-Time"}

// lockHeaders lock a new object.
var lockHeaders = []string{"X-Amz-Object-Lock-Mode", "X-Amz-Object-Lock-Retain-Until-Date", "X-Amz-Object-Lock-Legal-Hold"}

// route answers a request.
func (c *call) route() error {
	of := onObject
	switch {
	case c.bucket == "":
		of = onService
	case c.key == "":
		of = onBucket
	}
	what := ""
	for _, name := range subresources {
		if c.query.Has(name) {
			what = name
			break
		}
	}
	for _, name := range unknown {
		if c.r.Header.Get(name) != "" {
			return fail("NotImplemented", "The header %s is not supported.", strings.ToLower(name))
		}
	}
	locks := slices.ContainsFunc(lockHeaders, func(name string) bool { return c.r.Header.Get(name) != "" })
	if c.own && (locks || what == "retention" || what == "legal-hold") {
		return fail("AccessDenied", "A computer cannot lock objects.")
	}
	if who := c.r.Header.Get("X-Amz-Expected-Bucket-Owner"); who != "" && who != c.owner().ID {
		return fail("AccessDenied", "The bucket is not of the owner %s.", holt.Clip(who, 64))
	}
	if acl := c.r.Header.Get("X-Amz-Acl"); acl != "" && acl != "private" && acl != "bucket-owner-full-control" {
		return fail("NotImplemented", "Access control lists are not supported: tokens say who may do what.")
	}
	if sse := c.r.Header.Get("X-Amz-Server-Side-Encryption"); sse != "" {
		return fail("NotImplemented", "Encryption by the server is not supported.")
	}
	if class := c.r.Header.Get("X-Amz-Storage-Class"); class != "" && class != "STANDARD" {
		return fail("InvalidStorageClass", "The storage class you specified is not valid: there is only STANDARD.")
	}
	f := of[c.r.Method+" "+what]
	c.op = "s3." + strings.ToLower(c.r.Method)
	if what != "" {
		c.op += "." + what
	}
	switch {
	case f != nil:
		return f(c)
	case what != "":
		return fail("NotImplemented", "A header or query you provided implies functionality that is not implemented: %s.", what)
	case c.r.Method == http.MethodPost && c.key == "" && c.bucket != "":
		return fail("NotImplemented", "Uploads by forms of browsers are not supported.")
	}
	return fail("MethodNotAllowed", "The specified method is not allowed against this resource.")
}

const (
	mostXML         = 1 << 20
	mostCompleteXML = 2 << 20
)

// decode reads the body as XML.
func (c *call) decode(most int64, into any) error {
	b, err := c.openBody(most)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(b)
	if err != nil {
		return err
	}
	return decodeXML(text, into)
}

func decodeXML(text []byte, into any) error {
	if err := xml.Unmarshal(text, into); err != nil {
		return fail("MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema.")
	}
	return nil
}

// version returns the version that a request names. "null" is that of a bucket that keeps none.
func (c *call) version() (holt.ArtifactID, error) {
	text := c.query.Get("versionId")
	if text == "null" {
		if on, err := c.versioned(); err == nil && on {
			return "", fail("NoSuchVersion", "The specified version does not exist.")
		}
	}
	if text == "" || text == "null" {
		return "", nil
	}
	id, err := holt.ParseArtifactID(text)
	if err != nil {
		return "", fail("InvalidArgument", "Invalid version id specified")
	}
	return id, nil
}

// versioned reports whether the bucket keeps versions.
func (c *call) versioned() (bool, error) {
	b, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket)
	return !b.Replace, err
}

// owner is who owns everything, as far as S3 asks.
type owner struct{ ID, DisplayName string }

func (c *call) owner() owner {
	tenant := holt.TenantOf(c.ctx)
	return owner{tenant, tenant}
}

type grantee struct {
	XMLName xml.Name `xml:"Grantee"`
	NS      string   `xml:"xmlns:xsi,attr"`
	Type    string   `xml:"xsi:type,attr"`
	owner
}

// acl says that the tenant alone has access.
func (c *call) acl() error {
	if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); err != nil {
		return err
	}
	if c.key != "" {
		if _, err := c.object(); err != nil {
			return err
		}
	}
	type grant struct {
		Grantee    grantee
		Permission string
	}
	c.xml(http.StatusOK, struct {
		XMLName xml.Name `xml:"AccessControlPolicy"`
		Owner   owner
		Grants  []grant `xml:"AccessControlList>Grant"`
	}{Owner: c.owner(), Grants: []grant{{grantee{NS: "http://www.w3.org/2001/XMLSchema-instance", Type: "CanonicalUser", owner: c.owner()}, "FULL_CONTROL"}}})
	return nil
}

// kept reports whether an object keeps a header of its request.
func kept(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, metaPrefix) || slices.Contains(contentHeaders, name)
}
