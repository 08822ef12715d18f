package s3

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"time"

	"holt"
)

const xmlTime = "2006-01-02T15:04:05.000Z"

func at(t time.Time) string { return t.UTC().Format(xmlTime) }

func (c *call) listBuckets() error {
	all, err := c.d.opt.Objects.Buckets(c.ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b holt.Bucket) int { return strings.Compare(a.Name, b.Name) })
	type bucket struct{ Name, CreationDate string }
	out := struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
		Owner   owner
		Buckets []bucket `xml:"Buckets>Bucket"`
	}{Owner: c.owner()}
	for _, b := range all {
		if strings.HasPrefix(b.Name, c.query.Get("prefix")) {
			out.Buckets = append(out.Buckets, bucket{b.Name, at(b.CreatedAt)})
		}
	}
	c.xml(http.StatusOK, out)
	return nil
}

// settings are what only clients of S3 see of a bucket.
type settings struct {
	Lock     bool              `json:"lock,omitempty"` // versions can be locked
	LockMode string            `json:"lock_mode,omitempty"`
	CORS     []corsRule        `json:"cors,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	Rule     *lifecycleRule    `json:"rule,omitempty"`
}

func (c *call) settings() (s settings, err error) {
	text, err := c.d.opt.Objects.BucketSettings(c.ctx, c.bucket)
	if err == nil {
		_ = json.Unmarshal([]byte(text), &s) // only this package writes it
	}
	return s, err
}

const (
	mostSettings = 128 << 10 // bytes
	mostRuleID   = 255
)

var errRuleID = fail("InvalidArgument", "ID length should not exceed allowed limit of %d", mostRuleID)

func (c *call) setSettings(change func(*settings)) error {
	return c.d.opt.Objects.ChangeBucketSettings(c.ctx, c.bucket, func(was string) (string, error) {
		var s settings
		_ = json.Unmarshal([]byte(was), &s) // only this package writes it
		change(&s)
		text, err := json.Marshal(s)
		if err == nil && len(text) > mostSettings {
			err = fail("InvalidArgument", "The settings of the bucket exceed %d bytes.", mostSettings)
		}
		return string(text), err
	})
}

func (c *call) createBucket() error {
	if _, err := holt.ParseName(c.bucket); err != nil {
		return fail("InvalidBucketName", "The specified bucket is not valid: use 1 to 63 characters a-z, 0-9 and -, not starting or ending with -.")
	}
	if c.r.ContentLength != 0 {
		var in struct{ LocationConstraint string }
		if err := c.decode(mostXML, &in); err != nil {
			return err
		}
	}
	lock := strings.EqualFold(c.r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled"), "true")
	if _, err := c.d.opt.Objects.CreateBucket(c.ctx, holt.BucketSpec{Name: c.bucket, Replace: !lock}, ""); err != nil {
		return err
	}
	if lock {
		if err := c.setSettings(func(s *settings) { s.Lock = true }); err != nil {
			return err
		}
	}
	c.Header().Set("Location", "/"+c.bucket)
	c.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) headBucket() error {
	if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); err != nil {
		return err
	}
	c.Header().Set("X-Amz-Bucket-Region", "us-east-1")
	c.WriteHeader(http.StatusOK)
	return nil
}

func (c *call) deleteBucket() error {
	if err := c.d.opt.Objects.RemoveBucket(c.ctx, c.bucket); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) location() error {
	if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); err != nil {
		return err
	}
	c.xml(http.StatusOK, struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ LocationConstraint"`
	}{})
	return nil
}

type versioningXML struct {
	XMLName xml.Name `xml:"VersioningConfiguration"`
	Status  string   `xml:",omitempty"`
}

func (c *call) versioning() error {
	on, err := c.versioned()
	if err != nil {
		return err
	}
	out := versioningXML{XMLName: xml.Name{Space: "http://s3.amazonaws.com/doc/2006-03-01/"}}
	if on {
		out.Status = "Enabled"
	}
	c.xml(http.StatusOK, out)
	return nil
}

// setVersioning makes a bucket keep versions. It is not turned off again: new objects would delete the versions that there are.
func (c *call) setVersioning() error {
	var in versioningXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	on, err := c.versioned()
	switch {
	case err != nil:
		return err
	case in.Status == "Suspended" && on:
		return fail("NotImplemented", "Versioning cannot be suspended.")
	case in.Status != "Enabled" && in.Status != "Suspended":
		return fail("MalformedXML", "The status must be Enabled or Suspended.")
	case in.Status == "Enabled":
		replace := false
		if _, err := c.d.opt.Objects.UpdateBucket(c.ctx, c.bucket, holt.BucketChange{Replace: &replace}, ""); err != nil {
			return err
		}
	}
	c.WriteHeader(http.StatusOK)
	return nil
}

type tagXML struct{ Key, Value string }

type taggingXML struct {
	XMLName xml.Name `xml:"Tagging"`
	Tags    []tagXML `xml:"TagSet>Tag"`
}

func (t taggingXML) tags(most int) (map[string]string, error) {
	tags := map[string]string{}
	for _, one := range t.Tags {
		tags[one.Key] = one.Value
	}
	return tags, checkTags(tags, len(t.Tags), most)
}

func checkTags(tags map[string]string, n, most int) error {
	if n > most {
		return fail("BadRequest", "Object tags cannot be greater than %d", most)
	}
	if n != len(tags) {
		return fail("InvalidTag", "Cannot provide multiple Tags with the same key")
	}
	for k, v := range tags {
		if k == "" || len(k) > 128 || len(v) > 256 || strings.Contains(k, "=") {
			return fail("InvalidTag", "The tag %s is not valid: keys have 1 to 128 bytes without =, values at most 256.", holt.Clip(k, 40))
		}
	}
	return nil
}

func taggingOf(tags map[string]string) taggingXML {
	out := taggingXML{}
	for k, v := range tags {
		out.Tags = append(out.Tags, tagXML{k, v})
	}
	slices.SortFunc(out.Tags, func(a, b tagXML) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func (c *call) bucketTags() error {
	s, err := c.settings()
	if err == nil && len(s.Tags) == 0 {
		err = fail("NoSuchTagSet", "The TagSet does not exist")
	}
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, taggingOf(s.Tags))
	return nil
}

func (c *call) setBucketTags() error {
	var in taggingXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	tags, err := in.tags(50)
	if err == nil {
		err = c.setSettings(func(s *settings) { s.Tags = tags })
	}
	return c.done(http.StatusNoContent, err)
}

func (c *call) deleteBucketTags() error {
	return c.done(http.StatusNoContent, c.setSettings(func(s *settings) { s.Tags = nil }))
}

// done answers without a body.
func (c *call) done(status int, err error) error {
	if err == nil {
		c.WriteHeader(status)
	}
	return err
}

// lifecycleRule is a rule for a whole bucket, which is all that there is.
type lifecycleRule struct {
	XMLName    xml.Name `xml:"Rule" json:"-"`
	ID         string   `xml:",omitempty" json:"id,omitempty"`
	Status     string
	Prefix     *string                      `xml:",omitempty"`
	Filter     *lifecycleFilter             `xml:",omitempty"`
	Expiration *expiration                  `xml:",omitempty"`
	Noncurrent *noncurrent                  `xml:"NoncurrentVersionExpiration,omitempty"`
	Abort      *abort                       `xml:"AbortIncompleteMultipartUpload,omitempty"`
	Other      []struct{ XMLName xml.Name } `xml:",any" json:"-"`
}

type lifecycleFilter struct {
	Prefix string
	Other  []struct{ XMLName xml.Name } `xml:",any" json:"-"`
}

type expiration struct {
	Days                      int    `xml:",omitempty"`
	Date                      string `xml:",omitempty"`
	ExpiredObjectDeleteMarker bool   `xml:",omitempty"`
}

type noncurrent struct {
	NoncurrentDays          int `xml:",omitempty"`
	NewerNoncurrentVersions int `xml:",omitempty"`
}

type abort struct{ DaysAfterInitiation int }

type lifecycleXML struct {
	XMLName xml.Name        `xml:"LifecycleConfiguration"`
	Rules   []lifecycleRule `xml:"Rule"`
}

const day = 24 * 3600_000 // milliseconds

// change is what a rule does to a bucket.
func (r *lifecycleRule) change() (change holt.BucketChange, err error) {
	expire, keep := int64(0), 0
	unsupported := func(what string) error {
		return fail("NotImplemented", "Lifecycle rules for %s are not supported: a bucket has one rule, for all of it, with days of expiration and a number of noncurrent versions.", what)
	}
	if r.Filter != nil && len(r.Filter.Other) > 0 {
		return change, unsupported("tags or sizes")
	}
	if r.Prefix != nil && *r.Prefix != "" || r.Filter != nil && r.Filter.Prefix != "" {
		return change, unsupported("prefixes")
	}
	if len(r.Other) > 0 {
		return change, unsupported(holt.Clip(r.Other[0].XMLName.Local, 40))
	}
	if len(r.ID) > mostRuleID {
		return change, errRuleID
	}
	if r.Status != "Enabled" && r.Status != "Disabled" {
		return change, fail("MalformedXML", "The status must be Enabled or Disabled.")
	}
	if e := r.Expiration; e != nil {
		if e.Date != "" || e.ExpiredObjectDeleteMarker {
			return change, unsupported("dates and delete markers")
		}
		if e.Days <= 0 || e.Days > 36500 {
			return change, fail("InvalidArgument", "'Days' for Expiration action must be a positive integer")
		}
		expire = int64(e.Days) * day
	}
	if n := r.Noncurrent; n != nil {
		if n.NoncurrentDays > 1 || n.NewerNoncurrentVersions <= 0 {
			return change, unsupported("the age of noncurrent versions")
		}
		keep = n.NewerNoncurrentVersions + 1
	}
	if r.Abort != nil && r.Abort.DaysAfterInitiation < int(holt.UploadLife/(24*time.Hour)) {
		return change, unsupported("uploads; they are aborted after 7 days")
	}
	if r.Status != "Enabled" {
		expire, keep = 0, 0
	}
	return holt.BucketChange{ExpireMS: &expire, Keep: &keep}, nil
}

func (c *call) setLifecycle() error {
	var in lifecycleXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	if len(in.Rules) == 0 {
		return fail("MalformedXML", "There is no rule.")
	}
	if len(in.Rules) > 1 {
		return fail("NotImplemented", "A bucket has one lifecycle rule, for all of it.")
	}
	change, err := in.Rules[0].change()
	if err == nil {
		err = c.setSettings(func(s *settings) { s.Rule = &in.Rules[0] }) // it is shown when the bucket has it
	}
	if err == nil {
		_, err = c.d.opt.Objects.UpdateBucket(c.ctx, c.bucket, change, "")
	}
	return c.done(http.StatusOK, err)
}

// lifecycle shows the rule that was set, if the bucket still has it; it can also be changed otherwise.
func (c *call) lifecycle() error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	b, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket)
	if err != nil {
		return err
	}
	rule := s.Rule
	if rule != nil {
		if change, err := rule.change(); err != nil || *change.ExpireMS != b.ExpireMS || *change.Keep != b.Keep {
			rule = nil
		}
	}
	if rule == nil && b.ExpireMS == 0 && b.Keep == 0 {
		return fail("NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
	}
	if rule == nil {
		prefix := ""
		rule = &lifecycleRule{ID: "holt", Status: "Enabled", Prefix: &prefix}
		if b.ExpireMS > 0 {
			rule.Expiration = &expiration{Days: int((b.ExpireMS + day - 1) / day)}
		}
		if b.Keep > 1 {
			rule.Noncurrent = &noncurrent{1, b.Keep - 1}
		}
	}
	c.xml(http.StatusOK, lifecycleXML{Rules: []lifecycleRule{*rule}})
	return nil
}

func (c *call) deleteLifecycle() error {
	expire, keep := int64(0), 0
	_, err := c.d.opt.Objects.UpdateBucket(c.ctx, c.bucket, holt.BucketChange{ExpireMS: &expire, Keep: &keep}, "")
	if err == nil {
		err = c.setSettings(func(s *settings) { s.Rule = nil })
	}
	return c.done(http.StatusNoContent, err)
}
