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

// List returns a page of the entries of a directory, those of one page in the
// order of their names. Which entries a page has: of a running computer, those
// that follow in the order of the directory, since its names cannot be sorted
// without holding all of them; of a stopped one, those that follow by name.
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

// listGuest reads one page of a directory, and one entry more to see whether
// another page follows.
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
		err = holt.Errorf(holt.Unsupported, "the guest agent does not say where %s goes on", path).
			WithHint("stop and start the computer")
	}
	slices.SortFunc(page.Items, func(a, b holt.FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	return page, err
}

// offsetMark begins a cursor that is an offset in a directory. No name has it,
// so a cursor that is a name is told from it.
const offsetMark = "/"

func offsetCursor(offset int64) string { return offsetMark + strconv.FormatInt(offset, 10) }

func parseOffset(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(cursor, offsetMark)
	if !ok {
		return 0, holt.Errorf(holt.Conflict, "the cursor is of a listing that began while the computer was stopped").WithHint("list the directory again from the first page")
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, holt.Errorf(holt.InvalidArgument, "the cursor is none that was given out").WithHint("give next of the page before, as it is")
	}
	return offset, nil
}
