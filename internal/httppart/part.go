// Package httppart has what doors need to answer GET and HEAD for immutable bytes, as RFC 9110 says: which part a request asks for,
// and whether it has an ETag. It does not read the bytes and writes no answer.
package httppart

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"holt"
)

// Part is a part of a file: N bytes from Off on.
type Part struct{ Off, N int64 }

// File describes immutable bytes as headers of an answer do.
type File struct {
	ETag      string // in quotation marks
	Size      int64
	MediaType string
	Modified  time.Time
}

// Asked is the headers of a request that say what of a file it asks for.
type Asked struct{ Range, IfRange, IfNoneMatch string }

// Head sets the headers of an answer about a file, and returns the part that is asked for and the status. With status 304 no
// bytes follow.
//
// Errors: those of [Of].
func (f File) Head(asked Asked, header http.Header) (part Part, status int, err error) {
	header.Set("ETag", f.ETag)
	if asked.IfNoneMatch != "" && Matches(asked.IfNoneMatch, f.ETag) {
		return Part{}, http.StatusNotModified, nil
	}
	if asked.IfRange != "" && asked.IfRange != f.ETag {
		asked.Range = ""
	}
	if part, err = Of(asked.Range, f.Size, header); err != nil {
		header.Del("ETag")
		return part, http.StatusRequestedRangeNotSatisfiable, err
	}
	header.Set("Accept-Ranges", "bytes")
	header.Set("Content-Length", strconv.FormatInt(part.N, 10))
	header.Set("Content-Type", f.MediaType)
	header.Set("Last-Modified", f.Modified.UTC().Format(http.TimeFormat))
	return part, Status(header), nil
}

// Of returns the part of a file of the given size that the header Range asks for, "": all, and sets Content-Range if that is not
// all of it.
//
// Errors: InvalidArgument (no byte of it exists), which is answered with status 416.
func Of(asked string, size int64, header http.Header) (Part, error) {
	all := Part{0, size}
	if asked == "" || size == 0 {
		return all, nil
	}
	part, ok, err := parse(asked, size)
	if err != nil {
		header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return all, err
	}
	if !ok {
		return all, nil
	}
	header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.Off, part.Off+part.N-1, size))
	return part, nil
}

// Status is that of an answer whose range is set.
func Status(header http.Header) int {
	if header.Get("Content-Range") != "" {
		return http.StatusPartialContent
	}
	return http.StatusOK
}

// Matches says whether an ETag is in a list of them, or * stands for any; "": there is nothing.
func Matches(list, etag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); etag != "" && (one == "*" || strings.TrimPrefix(one, "W/") == etag) {
			return true
		}
	}
	return false
}

// parse parses the Range header of RFC 9110, section 14.2, for a file of
// the given size > 0. Not ok: a unit or a list of ranges that is better
// answered with the whole. An error: no byte of it exists.
func parse(s string, size int64) (part Part, ok bool, err error) {
	set, found := strings.CutPrefix(s, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(set), "-")
	if !found || !dash || strings.Contains(set, ",") {
		return Part{}, false, nil
	}
	from, errFrom := strconv.ParseUint(first, 10, 63)
	to, errTo := strconv.ParseUint(last, 10, 63)
	switch {
	case first == "" && errTo == nil: // the last so many bytes
		if to == 0 {
			return Part{}, false, holt.Errorf(holt.InvalidArgument, "the range %s is empty", holt.Clip(s, 128))
		}
		n := min(int64(to), size)
		return Part{size - n, n}, true, nil
	case errFrom != nil || (last != "" && (errTo != nil || to < from)):
		return Part{}, false, nil
	case int64(from) >= size:
		return Part{}, false, holt.Errorf(holt.InvalidArgument, "the range %s starts after the end of the file (%d bytes)", holt.Clip(s, 128), size)
	case last == "":
		return Part{int64(from), size - int64(from)}, true, nil
	}
	return Part{int64(from), min(int64(to)+1, size) - int64(from)}, true, nil
}
