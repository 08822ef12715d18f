package s3

import (
	"encoding/xml"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"holt"
)

type corsRule struct {
	ID             string   `xml:",omitempty"`
	AllowedHeaders []string `xml:"AllowedHeader"`
	AllowedMethods []string `xml:"AllowedMethod"`
	AllowedOrigins []string `xml:"AllowedOrigin"`
	ExposeHeaders  []string `xml:"ExposeHeader"`
	MaxAge         int      `xml:"MaxAgeSeconds,omitempty"`
}

type corsXML struct {
	XMLName xml.Name   `xml:"CORSConfiguration"`
	Rules   []corsRule `xml:"CORSRule"`
}

func (c *call) cors() error {
	s, err := c.settings()
	if err == nil && len(s.CORS) == 0 {
		err = fail("NoSuchCORSConfiguration", "The CORS configuration does not exist")
	}
	if err != nil {
		return err
	}
	c.xml(http.StatusOK, corsXML{Rules: s.CORS})
	return nil
}

func (c *call) setCORS() error {
	var in corsXML
	if err := c.decode(64<<10, &in); err != nil {
		return err
	}
	if len(in.Rules) == 0 || len(in.Rules) > 100 {
		return fail("MalformedXML", "There must be 1 to 100 rules.")
	}
	for _, r := range in.Rules {
		if len(r.ID) > mostRuleID {
			return errRuleID
		}
		if len(r.AllowedMethods) == 0 || len(r.AllowedOrigins) == 0 {
			return fail("MalformedXML", "A rule must have AllowedMethod and AllowedOrigin.")
		}
		for _, m := range r.AllowedMethods {
			if !slices.Contains([]string{"GET", "PUT", "HEAD", "POST", "DELETE"}, m) {
				return fail("InvalidRequest", "Found unsupported HTTP method in CORS config. Unsupported method is %s", m)
			}
		}
		for _, o := range slices.Concat(r.AllowedOrigins, r.AllowedHeaders) {
			if strings.Count(o, "*") > 1 {
				return fail("InvalidRequest", "%s can not have more than one wildcard.", o)
			}
		}
	}
	return c.done(http.StatusOK, c.setSettings(func(s *settings) { s.CORS = in.Rules }))
}

func (c *call) deleteCORS() error {
	return c.done(http.StatusNoContent, c.setSettings(func(s *settings) { s.CORS = nil }))
}

// like reports whether a text matches a pattern with at most one *.
func like(pattern, text string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	return len(text) >= len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

// share adds the headers by which a browser lets a page of an origin use the answer. It reports whether a rule permits it.
func (c *call) share(rules []corsRule, method string, headers []string) bool {
	origin := c.r.Header.Get("Origin")
	for _, r := range rules {
		i := slices.IndexFunc(r.AllowedOrigins, func(p string) bool { return like(p, origin) })
		allowed := !slices.ContainsFunc(headers, func(h string) bool {
			return !slices.ContainsFunc(r.AllowedHeaders, func(p string) bool { return like(strings.ToLower(p), h) })
		})
		if i < 0 || !slices.Contains(r.AllowedMethods, method) || !allowed {
			continue
		}
		h := c.Header()
		if h.Add("Vary", "Origin"); r.AllowedOrigins[i] == "*" {
			origin = "*"
		} else {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Methods", strings.Join(r.AllowedMethods, ", "))
		if len(headers) > 0 {
			h.Set("Access-Control-Allow-Headers", strings.Join(headers, ", "))
		}
		if len(r.ExposeHeaders) > 0 {
			h.Set("Access-Control-Expose-Headers", strings.Join(r.ExposeHeaders, ", "))
		}
		if r.MaxAge > 0 {
			h.Set("Access-Control-Max-Age", strconv.Itoa(r.MaxAge))
		}
		return true
	}
	return false
}

// preflight answers what a browser asks before a request of a page. It is not signed: the key of a presigned URL says whose
// bucket it is about.
func (c *call) preflight() error {
	denied := fail("AccessDenied", "CORSResponse: This CORS request is not allowed. Pages use presigned URLs, as the bucket's CORS rules permit.")
	method := c.r.Header.Get("Access-Control-Request-Method")
	if method == "" || c.r.Header.Get("Origin") == "" {
		return fail("BadRequest", "Insufficient information. Origin request header needed.")
	}
	id, _, _ := strings.Cut(c.query.Get("X-Amz-Credential"), "/")
	token, _, err := c.d.opt.Keys.Of(c.ctx, id)
	if err != nil {
		return denied
	}
	of := *c // the caller has not proved to be the token
	of.ctx = holt.WithActor(c.ctx, token.Actor())
	s, err := of.settings()
	if err != nil {
		return denied
	}
	var headers []string
	for name := range strings.SplitSeq(c.r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			headers = append(headers, name)
		}
	}
	if !c.share(s.CORS, method, headers) {
		return denied
	}
	c.WriteHeader(http.StatusOK)
	return nil
}
