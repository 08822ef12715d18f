package computer

import (
	"cmp"
	"slices"
	"strings"

	"holt"
)

// diffRootFiles says what differs in the files of two root disks.
func diffRootFiles(d *holt.ComputerDiff, a, b holt.Inventory) {
	out := &d.RootFiles
	out.Changes = []holt.Change{}
	if d.Unlisted {
		return
	}
	for i, inv := range []holt.Inventory{a, b} {
		if len(inv.RootFiles) == 0 {
			name := []string{d.From.Computer, d.To.Computer}[i]
			out.Unlisted = name + ": " + cmp.Or(inv.NoFiles, "the guest did not list them")
			return
		}
	}
	before, after := rootFiles(a), rootFiles(b)
	for p, was := range before.files {
		is, there := after.files[p]
		switch {
		case there && is.Kind == was.Kind:
			if c, differs := rootChange(was, is); differs {
				out.Changes = append(out.Changes, c)
			}
		case there || after.lacks(p):
			out.Changes = append(out.Changes, holt.Change{Kind: holt.ChangeDeleted, Path: p, Type: was.Kind, SizeBefore: sizeOf(was)})
		}
	}
	for p, is := range after.files {
		if was, there := before.files[p]; there && is.Kind != was.Kind || !there && before.lacks(p) {
			out.Changes = append(out.Changes, holt.Change{Kind: holt.ChangeCreated, Path: p, Type: is.Kind, SizeAfter: sizeOf(is)})
		}
	}
	for _, c := range out.Changes {
		out.Counts.Add(c)
	}
	slices.SortFunc(out.Changes, inOrder)
	out.Changes, out.Omitted = firstOf(out.Changes)
	if unread := slices.Concat(a.Unread, b.Unread); len(unread) > 0 {
		slices.Sort(unread)
		out.Unread, _ = firstOf(slices.Compact(unread))
	}
}

// rootListing is what an inventory says of a root disk.
type rootListing struct {
	files  map[holt.OSString]holt.FileInfo
	unread map[string]bool
}

func rootFiles(inv holt.Inventory) rootListing {
	l := rootListing{map[holt.OSString]holt.FileInfo{}, map[string]bool{}}
	for _, f := range inv.RootFiles {
		l.files[f.Path] = f
	}
	for _, dir := range inv.Unread {
		l.unread[dir] = true
	}
	return l
}

// lacks says whether a path that is not listed is not there: all directories above it
// were read to their end.
func (l rootListing) lacks(p holt.OSString) bool {
	for dir := string(p); len(dir) > 1; {
		dir = dir[:max(1, strings.LastIndexByte(dir, '/'))]
		if l.unread[dir] {
			return false
		}
	}
	return true
}

// rootChange compares two files of one kind. Forks keep the time of a file to the
// nanosecond, so one with another time was written. A directory has its own from what is in it,
// which tells itself.
func rootChange(was, is holt.FileInfo) (c holt.Change, differs bool) {
	touched := is.Kind != "dir" && !is.ModTime.Equal(was.ModTime)
	c = holt.Change{
		Kind: holt.ChangeMetadata, Path: is.Path, Type: is.Kind, SizeBefore: sizeOf(was), SizeAfter: sizeOf(is),
		Content:  is.Target != was.Target || is.Kind == "file" && (is.Size != was.Size || touched),
		Metadata: is.Mode != was.Mode || is.UID != was.UID || is.GID != was.GID || touched,
	}
	if c.Content {
		c.Kind = holt.ChangeContent
	}
	return c, c.Content || c.Metadata
}

// sizeOf is the size of what a file holds, bytes.
func sizeOf(f holt.FileInfo) int64 {
	if f.Kind != "file" {
		return 0
	}
	return f.Size
}

// changeKinds are the kinds of changes in the order in which they are told.
var changeKinds = []holt.ChangeKind{holt.ChangeDeleted, holt.ChangeCreated, holt.ChangeContent, holt.ChangeMetadata}

// inOrder is the order of a workspace's changes: what is in a directory that is
// deleted before that.
func inOrder(x, y holt.Change) int {
	byPath := cmp.Compare(x.Path, y.Path)
	if x.Kind == holt.ChangeDeleted {
		byPath = -byPath
	}
	return cmp.Or(cmp.Compare(slices.Index(changeKinds, x.Kind), slices.Index(changeKinds, y.Kind)), byPath)
}
