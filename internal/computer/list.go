package computer

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/workspace"
)

// List returns a page of the entries of a directory, sorted by name within the page. For a running
// computer pages follow the order of the directory, since sorting it would mean holding all names;
// for a stopped one they follow the names.
func (f *Files) List(ctx context.Context, computer, path string, spec holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	page := holt.Page[holt.FileInfo]{}
	p, err := cleanPath(path)
	if err != nil {
		return page, err
	}
	off, err := f.offline(ctx, computer, p, func(w workspace.Files) (err error) {
		page, err = w.List(p, spec)
		return err
	})
	if off || err != nil {
		return page, err
	}
	offset, err := parseOffset(spec.Cursor)
	if err != nil {
		return page, err
	}
	err = f.stream(ctx, computer, "list "+p, func(ctx context.Context, c *agent.Client, w *watchdog) (err error) {
		page, err = listGuest(ctx, c, p, offset, spec.Most(), w.feed)
		return err
	})
	return page, err
}

// listGuest reads a page, and one more entry to see whether another page follows.
func listGuest(ctx context.Context, c *agent.Client, path string, offset int64, most int, feed func()) (holt.Page[holt.FileInfo], error) {
	page := holt.Page[holt.FileInfo]{Items: []holt.FileInfo{}}
	last, err := offset, error(nil)
	err = c.List(ctx, path, offset, most+1, func(info holt.FileInfo, after int64) error {
		feed()
		if len(page.Items) == most {
			page.Next = offsetCursor(last)
			return nil
		}
		page.Items = append(page.Items, info)
		last = after
		return nil
	})
	if err == nil && page.Next == offsetCursor(offset) { // it would go round for ever
		err = holt.Errorf(holt.Unsupported, "the guest agent returned no cursor for the rest of %s", path).
			WithHint("stop and start the computer")
	}
	slices.SortFunc(page.Items, func(a, b holt.FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	return page, err
}

// offsetMark begins a cursor that is an offset in a directory. No file name contains it.
const offsetMark = "/"

func offsetCursor(offset int64) string { return offsetMark + strconv.FormatInt(offset, 10) }

func parseOffset(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(cursor, offsetMark)
	if !ok {
		return 0, holt.Errorf(holt.Conflict, "the cursor is of a listing that was started while the computer was stopped").WithHint("list the directory again from the first page")
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, holt.Errorf(holt.InvalidArgument, "invalid cursor").WithHint("pass next of the previous page unchanged")
	}
	return offset, nil
}
