package s3

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"

	"holt"
)

// failure is an error with a code of S3.
type failure struct{ code, message string }

func (f *failure) Error() string { return f.message }

func fail(code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// statuses are the HTTP status of each code that is not 400.
var statuses = map[string]int{
	"AccessDenied": 403, "SignatureDoesNotMatch": 403, "InvalidAccessKeyId": 403, "RequestTimeTooSkewed": 403, "QuotaExceeded": 403,
	"NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchUpload": 404, "NoSuchVersion": 404, "NoSuchLifecycleConfiguration": 404, "NoSuchTagSet": 404,
	"NoSuchCORSConfiguration": 404, "ObjectLockConfigurationNotFoundError": 404, "NoSuchObjectLockConfiguration": 404, "NoSuchBucketPolicy": 404,
	"ServerSideEncryptionConfigurationNotFoundError": 404, "NoSuchPublicAccessBlockConfiguration": 404, "OwnershipControlsNotFoundError": 404,
	"NoSuchWebsiteConfiguration": 404, "ReplicationConfigurationNotFoundError": 404,
	"MethodNotAllowed": 405, "BucketAlreadyExists": 409, "BucketAlreadyOwnedByYou": 409, "BucketNotEmpty": 409, "OperationAborted": 409, "InvalidBucketState": 409,
	"MissingContentLength": 411, "PreconditionFailed": 412, "InvalidRange": 416, "InvalidPartNumber": 416, "NotModified": 304,
	"InternalError": 500, "NotImplemented": 501, "ServiceUnavailable": 503, "SlowDown": 503, "InsufficientStorage": 507,
}

func statusOf(code string) int {
	if status := statuses[code]; status != 0 {
		return status
	}
	return http.StatusBadRequest
}

// failureOf says an error in the words of S3.
func (c *call) failureOf(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, holt.ErrCondition):
		return &failure{"PreconditionFailed", "At least one of the pre-conditions you specified did not hold."}
	case errors.Is(err, holt.ErrNoUpload):
		return &failure{"NoSuchUpload", "The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."}
	case errors.Is(err, holt.ErrPart):
		return &failure{"InvalidPart", err.Error()}
	case errors.Is(err, holt.ErrPartSmall):
		return &failure{"EntityTooSmall", err.Error()}
	}
	e := holt.AsError(err)
	said := e.Message
	if e.Hint != "" {
		said += " (" + e.Hint + ")"
	}
	code := map[holt.Code]string{
		holt.InvalidArgument: "InvalidArgument", holt.AlreadyExists: "BucketAlreadyOwnedByYou", holt.Conflict: "AccessDenied", holt.Unauthenticated: "InvalidAccessKeyId",
		holt.Forbidden: "AccessDenied", holt.OutOfSpace: "InsufficientStorage", holt.TooMany: "QuotaExceeded", holt.Unsupported: "NotImplemented",
		holt.Unavailable: "ServiceUnavailable", holt.Timeout: "ServiceUnavailable", holt.NotFound: c.missing(),
	}[e.Code]
	if e.Code == holt.NotFound {
		said = map[string]string{"NoSuchBucket": "The specified bucket does not exist.", "NoSuchKey": "The specified key does not exist.", "NoSuchVersion": "The specified version does not exist."}[code]
	}
	switch {
	case code == "":
		return &failure{"InternalError", "internal error; the daemon's log has details under request " + c.id}
	case e.Code == holt.Conflict && c.key == "":
		code = "BucketNotEmpty"
	case e.Code == holt.TooMany && c.key == "" && c.r.Method == http.MethodPut:
		code = "TooManyBuckets"
	}
	return &failure{code, said}
}

// missing is the code of what a request did not find.
func (c *call) missing() string {
	if _, err := c.d.opt.Objects.Bucket(c.ctx, c.bucket); c.key == "" || holt.CodeOf(err) == holt.NotFound {
		return "NoSuchBucket"
	}
	if c.query.Get("versionId") != "" {
		return "NoSuchVersion"
	}
	return "NoSuchKey"
}

type errorXML struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	Resource  string
	RequestID string `xml:"RequestId"`
}

// refuse answers with an error, unless the answer has begun.
func (c *call) refuse(err error) {
	c.err = err
	if c.status != 0 {
		panic(http.ErrAbortHandler) // the client must not take it for the whole
	}
	f := c.failureOf(err)
	status := statusOf(f.code)
	c.code = f.code
	if f.code == "InternalError" {
		c.d.log.Error("s3 request failed", "request", c.id, "err", holt.Redact(err.Error()))
	}
	if !c.bodyEnded() {
		c.Header().Set("Connection", "close") // what is left of the body is not read
	}
	c.Header().Del("Content-Length")
	if c.r.Method == http.MethodHead || status == http.StatusNotModified {
		c.WriteHeader(status)
		return
	}
	c.xml(status, errorXML{Code: f.code, Message: f.message, Resource: c.r.URL.Path, RequestID: c.id})
}
