package computer

import (
	"cmp"
	"slices"
	"strings"

	"holt"
)

// diffRootFiles compares the files of two root disks.
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

// rootListing is the root disk's part of an inventory.
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

// lacks reports whether a path that is not listed does not exist: all directories above it were
// read completely.
func (l rootListing) lacks(p holt.OSString) bool {
	for dir := string(p); len(dir) > 1; {
		dir = dir[:max(1, strings.LastIndexByte(dir, '/'))]
		if l.unread[dir] {
			return false
		}
	}
	return true
}

// rootChange compares two files of one kind. Forks keep modification times to the nanosecond, so a
// file with another time was written. Directories are left out: their entries show the change.
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

func sizeOf(f holt.FileInfo) int64 {
	if f.Kind != "file" {
		return 0
	}
	return f.Size
}

// changeKinds is the order of the kinds of changes.
var changeKinds = []holt.ChangeKind{holt.ChangeDeleted, holt.ChangeCreated, holt.ChangeContent, holt.ChangeMetadata}

// inOrder sorts like the changes of a workspace: deleted files before their directory.
func inOrder(x, y holt.Change) int {
	byPath := cmp.Compare(x.Path, y.Path)
	if x.Kind == holt.ChangeDeleted {
		byPath = -byPath
	}
	return cmp.Or(cmp.Compare(slices.Index(changeKinds, x.Kind), slices.Index(changeKinds, y.Kind)), byPath)
}
