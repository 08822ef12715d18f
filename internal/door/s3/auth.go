package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"holt"
	"holt/internal/access"
)

const (
	algorithm   = "AWS4-HMAC-SHA256"
	unsigned    = "UNSIGNED-PAYLOAD"
	timeFormat  = "20060102T150405Z"
	mostSkew    = 15 * time.Minute
	mostExpiry  = 7 * 24 * time.Hour
	contentHash = "X-Amz-Content-Sha256"
	emptyHash   = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// claim is what a request says of its signature.
type claim struct {
	id, scope string // of the key; DATE/REGION/s3/aws4_request
	signed    []string
	signature string
	at        time.Time
	payload   string // hash of the body, or what stands for it
	presigned bool
}

// signer makes the signatures of a request's chunks.
type signer struct {
	key   []byte
	scope string
	at    string
	last  string // signature of the chunk before
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// parseClaim reads the signature of a request.
func parseClaim(r *http.Request, query url.Values, now time.Time) (c claim, err error) {
	header := r.Header.Get("Authorization")
	switch {
	case header != "" && query.Get("X-Amz-Algorithm") != "":
		return c, fail("InvalidArgument", "The request is signed both in its header and in its query.")
	case query.Get("X-Amz-Algorithm") != "":
		return parsePresigned(query, now)
	case strings.HasPrefix(header, "AWS ") || query.Get("AWSAccessKeyId") != "":
		return c, fail("InvalidRequest", "Signatures of version 2 are not supported. Please use "+algorithm+".")
	case header == "":
		return c, fail("AccessDenied", "The request has no signature; holt token s3-key makes a key.")
	}
	fields, ok := strings.CutPrefix(header, algorithm)
	if !ok {
		return c, fail("InvalidArgument", "Unsupported Authorization Type")
	}
	var credential string
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			c.signed = strings.Split(value, ";")
		case "Signature":
			c.signature = value
		}
	}
	if c.at, err = time.Parse(timeFormat, r.Header.Get("X-Amz-Date")); err != nil {
		if c.at, err = http.ParseTime(r.Header.Get("Date")); err != nil {
			return c, fail("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header.")
		}
	}
	if c.payload = r.Header.Get(contentHash); c.payload == "" {
		return c, fail("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
	}
	if skew := now.Sub(c.at).Abs(); skew > mostSkew {
		return c, fail("RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	return c, c.setScope(credential, "AuthorizationHeaderMalformed")
}

func parsePresigned(query url.Values, now time.Time) (c claim, err error) {
	malformed := func(why string) error { return fail("AuthorizationQueryParametersError", "%s", why) }
	c.presigned, c.signed, c.signature = true, strings.Split(query.Get("X-Amz-SignedHeaders"), ";"), query.Get("X-Amz-Signature")
	c.payload = unsigned
	if p := query.Get(contentHash); p != "" {
		c.payload = p
	}
	for _, name := range []string{"X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"} {
		if query.Get(name) == "" {
			return c, malformed("Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.")
		}
	}
	if query.Get("X-Amz-Algorithm") != algorithm {
		return c, malformed("X-Amz-Algorithm only supports \"" + algorithm + "\"")
	}
	if c.at, err = time.Parse(timeFormat, query.Get("X-Amz-Date")); err != nil {
		return c, malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
	}
	seconds, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	switch {
	case err != nil:
		return c, malformed("X-Amz-Expires should be a number")
	case seconds < 0:
		return c, malformed("X-Amz-Expires must be non-negative")
	case time.Duration(seconds)*time.Second > mostExpiry || seconds > 1<<30:
		return c, malformed("X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less than 604800 seconds")
	case now.Before(c.at.Add(-mostSkew)):
		return c, fail("AccessDenied", "Request is not valid yet")
	case now.After(c.at.Add(time.Duration(seconds) * time.Second)):
		return c, fail("AccessDenied", "Request has expired")
	}
	return c, c.setScope(query.Get("X-Amz-Credential"), "AuthorizationQueryParametersError")
}

// setScope takes a credential apart: ID/DATE/REGION/s3/aws4_request. Any region will do.
func (c *claim) setScope(credential, code string) error {
	parts := strings.Split(credential, "/")
	if len(parts) != 5 || parts[3] != "s3" || parts[4] != "aws4_request" || parts[1] != c.at.Format("20060102") || c.signature == "" {
		return fail(code, "The authorization is malformed; the credential must be ID/YYYYMMDD/REGION/s3/aws4_request, of the date of the request.")
	}
	c.id, c.scope = parts[0], strings.Join(parts[1:], "/")
	return nil
}

// verify compares the signature of a request.
func (c *claim) verify(r *http.Request, query url.Values, secret string) (*signer, error) {
	if !slices.Contains(c.signed, "host") {
		return nil, fail("AccessDenied", "The header host is not signed.")
	}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(c.signed, name) && (name != "x-amz-content-sha256" || !c.presigned) {
			return nil, fail("AccessDenied", "There were headers present in the request which were not signed: %s", name)
		}
	}
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(c.scope, "/") {
		key = mac(key, part)
	}
	at := c.at.Format(timeFormat)
	text := algorithm + "\n" + at + "\n" + c.scope + "\n" + digest(c.canonical(r, query))
	want := hex.EncodeToString(mac(key, text))
	if !hmac.Equal([]byte(want), []byte(c.signature)) {
		return nil, fail("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your key and signing method.")
	}
	return &signer{key, c.scope, at, want}, nil
}

// canonical is the canonical request.
func (c *claim) canonical(r *http.Request, query url.Values) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + escape(r.URL.Path, true) + "\n")
	var pairs []string
	for name, values := range query {
		for _, value := range values {
			if name != "X-Amz-Signature" || !c.presigned {
				pairs = append(pairs, escape(name, false)+"\x00"+escape(value, false))
			}
		}
	}
	slices.Sort(pairs) // by name, then by value
	b.WriteString(strings.ReplaceAll(strings.Join(pairs, "&"), "\x00", "=") + "\n")
	for _, name := range c.signed {
		b.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	b.WriteString("\n" + strings.Join(c.signed, ";") + "\n" + c.payload)
	return b.String()
}

func headerValue(r *http.Request, name string) string {
	values := r.Header.Values(name)
	switch {
	case name == "host":
		values = []string{r.Host}
	case name == "content-length" && len(values) == 0:
		values = []string{strconv.FormatInt(r.ContentLength, 10)}
	case name == "transfer-encoding" && len(values) == 0:
		values = r.TransferEncoding
	}
	trimmed := make([]string, len(values))
	for i, v := range values {
		trimmed[i] = strings.Join(strings.Fields(v), " ")
	}
	return strings.Join(trimmed, ",")
}

// escape is the URI encoding of signatures.
func escape(s string, path bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		switch ch := s[i]; {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', ch == '-', ch == '_', ch == '.', ch == '~', ch == '/' && path:
			b.WriteByte(ch)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[ch>>4])
			b.WriteByte(digits[ch&15])
		}
	}
	return b.String()
}

// authenticate returns whose request it is.
func (c *call) authenticate() (access.Token, error) {
	said, err := parseClaim(c.r, c.query, c.d.now())
	if err != nil {
		return access.Token{}, err
	}
	c.payload = said.payload
	token, secret, err := c.d.opt.Keys.Of(c.r.Context(), said.id)
	if holt.CodeOf(err) == holt.Unauthenticated {
		err = fail("InvalidAccessKeyId", "The key %s does not exist: it is deleted, or its token is revoked or expired.", holt.Clip(said.id, 40))
	}
	if err != nil {
		return access.Token{}, err
	}
	if c.signer, err = said.verify(c.r, c.query, secret); err == nil {
		c.d.opt.Keys.Used(c.r.Context(), token)
	}
	return token, err
}

// hoists are the headers that a presigned URL may have in its query; those with a - at their end are prefixes.
var hoists = []string{sumPrefix, metaPrefix, "x-amz-object-lock-", "x-amz-server-side-encryption-", "x-amz-server-side-encryption", "x-amz-tagging", "x-amz-acl", "x-amz-storage-class",
	"x-amz-sdk-checksum-algorithm", "content-md5"}

// hoisted makes headers of the values in a query that stand for headers, so that they are obeyed or refused like those.
func hoisted(h http.Header, query url.Values) error {
	for name, values := range query {
		lower, value := strings.ToLower(name), strings.Join(values, ",")
		if !slices.ContainsFunc(hoists, func(p string) bool { return lower == p || strings.HasSuffix(p, "-") && strings.HasPrefix(lower, p) }) {
			continue
		}
		if was := h.Get(name); was != "" && was != value || strings.ContainsFunc(name+value, unicode.IsControl) {
			return fail("InvalidRequest", "The query's %s is not valid, or not that of the header.", holt.Clip(lower, 40))
		}
		h.Set(name, value)
	}
	return nil
}
