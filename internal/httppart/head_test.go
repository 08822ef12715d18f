package httppart

import (
	"net/http"
	"testing"
	"time"

	"holt"
)

// TestHead: the headers and the part for each kind of request.
func TestHead(t *testing.T) {
	f := File{ETag: `"a"`, Size: 10, MediaType: "text/plain", Modified: time.Unix(0, 0)}
	for _, c := range []struct {
		asked  Asked
		status int
		part   Part
		ranged string
	}{
		{Asked{}, 200, Part{0, 10}, ""},
		{Asked{Range: "bytes=2-4"}, 206, Part{2, 3}, "bytes 2-4/10"},
		{Asked{Range: "bytes=-3", IfRange: `"a"`}, 206, Part{7, 3}, "bytes 7-9/10"},
		{Asked{Range: "bytes=2-4", IfRange: `"b"`}, 200, Part{0, 10}, ""},
		{Asked{Range: "bytes=2-4,6-"}, 200, Part{0, 10}, ""},
		{Asked{Range: "bytes=10-"}, 416, Part{0, 10}, "bytes */10"},
		{Asked{IfNoneMatch: `"b", W/"a"`, Range: "bytes=2-4"}, 304, Part{}, ""},
		{Asked{IfNoneMatch: `"b"`}, 200, Part{0, 10}, ""},
	} {
		header := http.Header{}
		part, status, err := f.Head(c.asked, header)
		if status != c.status || part != c.part || header.Get("Content-Range") != c.ranged || (holt.CodeOf(err) == holt.InvalidArgument) != (status == 416) {
			t.Errorf("%+v: %d %+v %v %v", c.asked, status, part, header, err)
		}
		if status == 200 && (header.Get("Content-Length") != "10" || header.Get("Last-Modified") != "Thu, 01 Jan 1970 00:00:00 GMT") {
			t.Errorf("%+v: %v", c.asked, header)
		}
	}
}
