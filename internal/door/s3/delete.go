package s3

import (
	"encoding/xml"
	"net/http"
	"net/url"

	"holt"
)

func (c *call) deleteObject() error {
	id, err := c.version()
	if err != nil {
		return err
	}
	match := unquoted(c.r.Header.Get("If-Match"))
	o, err := c.d.opt.Objects.DeleteObject(c.ctx, holt.ObjectDelete{Bucket: c.bucket, Name: c.key, Version: id, If: holt.ObjectCondition{Match: match}, Bypass: c.bypass()})
	if err != nil {
		return err
	}
	if o.ID != "" {
		c.Header().Set("X-Amz-Version-Id", string(o.ID))
	}
	if o.Marker {
		c.Header().Set("X-Amz-Delete-Marker", "true")
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

type deleteXML struct {
	XMLName xml.Name `xml:"Delete"`
	Quiet   bool
	Objects []struct {
		Key       string
		VersionID string `xml:"VersionId"`
		ETag      string
		Other     []struct{ XMLName xml.Name } `xml:",any"`
	} `xml:"Object"`
}

type deletedXML struct {
	Key             string
	VersionID       string `xml:"VersionId,omitempty"`
	DeleteMarker    bool   `xml:",omitempty"`
	MarkerVersionID string `xml:"DeleteMarkerVersionId,omitempty"`
}

type deleteErrorXML struct {
	Key       string
	VersionID string `xml:"VersionId,omitempty"`
	Code      string
	Message   string
}

func (c *call) deleteObjects() error {
	var in deleteXML
	if err := c.decode(mostXML, &in); err != nil {
		return err
	}
	if len(in.Objects) == 0 || len(in.Objects) > 1000 {
		return fail("MalformedXML", "There must be 1 to 1000 objects.")
	}
	if _, err := c.d.opt.Objects.BucketSettings(c.ctx, c.bucket); err != nil {
		return err
	}
	out := struct {
		XMLName xml.Name         `xml:"http://s3.amazonaws.com/doc/2006-03-01/ DeleteResult"`
		Deleted []deletedXML     `xml:"Deleted"`
		Errors  []deleteErrorXML `xml:"Error"`
	}{}
	for _, one := range in.Objects {
		of := *c
		of.key, of.query = one.Key, url.Values{}
		if one.VersionID != "" {
			of.query.Set("versionId", one.VersionID)
		}
		id, err := of.version()
		if len(one.Other) > 0 {
			err = fail("NotImplemented", "The condition %s is not supported.", holt.Clip(one.Other[0].XMLName.Local, 40))
		}
		var o holt.Object
		if err == nil {
			o, err = c.d.opt.Objects.DeleteObject(c.ctx, holt.ObjectDelete{Bucket: c.bucket, Name: one.Key, Version: id, If: holt.ObjectCondition{Match: unquoted(one.ETag)}, Bypass: c.bypass()})
		}
		if err != nil {
			f := of.failureOf(err)
			out.Errors = append(out.Errors, deleteErrorXML{one.Key, one.VersionID, f.code, f.message})
			continue
		}
		if in.Quiet {
			continue
		}
		d := deletedXML{Key: one.Key, VersionID: one.VersionID}
		if o.Marker {
			d.DeleteMarker, d.MarkerVersionID = true, string(o.ID)
		}
		out.Deleted = append(out.Deleted, d)
	}
	c.xml(http.StatusOK, out)
	return nil
}
