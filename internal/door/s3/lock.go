package s3

import (
	"cmp"
	"encoding/xml"
	"net/http"
	"strings"
	"time"

	"holt"
)

const governance = "GOVERNANCE"

// lockMode is the mode of an object's retention.
func lockMode(o holt.Object) string { return cmp.Or(o.Headers[holt.LockMode], governance) }

func validMode(mode string) error {
	if mode != governance && mode != holt.LockCompliance {
		return fail("InvalidArgument", "Unknown wormMode directive.")
	}
	return nil
}

// bypass reports whether an admin deletes or changes what is retained in the mode GOVERNANCE.
func (c *call) bypass() bool {
	a, _ := holt.ActorOf(c.ctx)
	return a.Admin() && strings.EqualFold(c.r.Header.Get("X-Amz-Bypass-Governance-Retention"), "true")
}

// lock sets the retention and the hold of a new object from its headers and its bucket.
func (c *call) lock(p *holt.ObjectPut) error {
	h := c.r.Header
	mode, until := h.Get("X-Amz-Object-Lock-Mode"), h.Get("X-Amz-Object-Lock-Retain-Until-Date")
	hold := h.Get("X-Amz-Object-Lock-Legal-Hold")
	if hold != "" && hold != "ON" && hold != "OFF" {
		return fail("InvalidArgument", "Legal Hold must be either of 'ON' or 'OFF'")
	}
	p.Hold = hold == "ON"
	if (mode == "") != (until == "") {
		return fail("InvalidArgument", "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied")
	}
	if mode == "" {
		s, err := c.settings()
		if s.LockMode == holt.LockCompliance {
			p.Headers[holt.LockMode] = s.LockMode // the bucket's retention is in this mode
		}
		if holt.CodeOf(err) == holt.NotFound { // a computer's bucket is made when it is first used
			return nil
		}
		return err
	}
	t, err := c.future(until)
	if err == nil {
		err = validMode(mode)
	}
	if err != nil {
		return err
	}
	p.Until, p.Headers[holt.LockMode] = &t, mode
	return nil
}

// future reads a time that must be in the future, at most 100 years.
func (c *call) future(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fail("InvalidArgument", "The retain until date must be provided in ISO 8601 format")
	}
	if !t.After(c.d.now()) {
		return t, fail("InvalidArgument", "The retain until date must be in the future!")
	}
	if t.After(c.d.now().AddDate(100, 0, 0)) {
		return t, fail("InvalidArgument", "The retain until date must be at most 100 years in the future!")
	}
	return t.Truncate(time.Millisecond), nil // as it is shown
}

type retentionXML struct {
	XMLName xml.Name `xml:"Retention"`
	Mode    string   `xml:",omitempty"`
	Until   string   `xml:"RetainUntilDate,omitempty"`
}

func (c *call) retention() error {
	o, err := c.object()
	if err == nil && o.RetainUntil == nil {
		err = fail("NoSuchObjectLockConfiguration", "The specified object does not have a ObjectLock configuration")
	}
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, retentionXML{Mode: lockMode(o), Until: at(*o.RetainUntil)})
	return nil
}

func (c *call) setRetention() error {
	var in retentionXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	if (in.Mode == "") != (in.Until == "") {
		return fail("MalformedXML", "Mode and RetainUntilDate belong together.")
	}
	var until *time.Time
	if in.Mode != "" {
		t, err := c.future(in.Until)
		if err == nil {
			err = validMode(in.Mode)
		}
		if err != nil {
			return err
		}
		until = &t
	}
	bypass, now := c.bypass(), c.d.now()
	err := c.change(func(o *holt.Object) error {
		if was := o.RetainUntil; was != nil && was.After(now) {
			shorter := until == nil || until.Before(*was) || lockMode(*o) == holt.LockCompliance && in.Mode == governance
			if shorter && (lockMode(*o) == holt.LockCompliance || !bypass) {
				return fail("AccessDenied", "Access Denied because object protected by object lock: only an admin's key can shorten a retention, with x-amz-bypass-governance-retention, and none in the mode COMPLIANCE.")
			}
		}
		if o.RetainUntil = until; until == nil {
			delete(o.Headers, holt.LockMode)
		} else {
			o.Headers[holt.LockMode] = in.Mode
		}
		return nil
	})
	return c.done(http.StatusOK, err)
}

type holdXML struct {
	XMLName xml.Name `xml:"LegalHold"`
	Status  string
}

func (c *call) legalHold() error {
	o, err := c.object()
	if err != nil {
		return err
	}
	out := holdXML{Status: "OFF"}
	if o.Hold {
		out.Status = "ON"
	}
	c.xml(http.StatusOK, out)
	return nil
}

func (c *call) setLegalHold() error {
	var in holdXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	if in.Status != "ON" && in.Status != "OFF" {
		return fail("MalformedXML", "The status must be ON or OFF.")
	}
	return c.done(http.StatusOK, c.change(func(o *holt.Object) error { o.Hold = in.Status == "ON"; return nil }))
}

type defaultRetention struct {
	Mode  string
	Days  int `xml:",omitempty"`
	Years int `xml:",omitempty"`
}

type lockRule struct {
	Default defaultRetention `xml:"DefaultRetention"`
}

type lockXML struct {
	XMLName xml.Name  `xml:"ObjectLockConfiguration"`
	Enabled string    `xml:"ObjectLockEnabled,omitempty"`
	Rule    *lockRule `xml:",omitempty"`
}

func (c *call) lockConfiguration() error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	b, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket)
	if err == nil && !s.Lock && b.RetainMS == 0 {
		err = fail("ObjectLockConfigurationNotFoundError", "Object Lock configuration does not exist for this bucket")
	}
	if err != nil {
		return err
	}
	out := lockXML{Enabled: "Enabled"}
	if b.RetainMS > 0 {
		out.Rule = &lockRule{defaultRetention{Mode: cmp.Or(s.LockMode, governance), Days: int((b.RetainMS + day - 1) / day)}}
	}
	c.xml(http.StatusOK, out)
	return nil
}

func (c *call) setLockConfiguration() error {
	var in lockXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	on, err := c.versioned()
	switch {
	case err != nil:
		return err
	case in.Enabled != "Enabled":
		return fail("MalformedXML", "ObjectLockEnabled must be Enabled.")
	case !on:
		return fail("InvalidBucketState", "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration")
	}
	retain, mode := int64(0), ""
	if in.Rule != nil {
		r := in.Rule.Default
		if (r.Days > 0) == (r.Years > 0) || r.Days < 0 || r.Years < 0 || r.Days > 36500 || r.Years > 100 {
			return fail("MalformedXML", "Give either Days or Years.")
		}
		if err := validMode(r.Mode); err != nil {
			return err
		}
		retain, mode = int64(r.Days+365*r.Years)*day, r.Mode
	}
	if _, err := c.d.opt.Objects.UpdateBucket(c.ctx, c.bucket, holt.BucketChange{RetainMS: &retain}, ""); err != nil {
		return err
	}
	return c.done(http.StatusOK, c.setSettings(func(s *settings) { s.Lock, s.LockMode = true, mode }))
}
