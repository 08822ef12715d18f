package workspace

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
)

// tagPrefix begins the extended attributes that are tags.
const tagPrefix = "user."

// Tags returns the tags of a file in the order of their names.
func (f Files) Tags(path string) ([]holt.Tag, error) {
	a, err := f.resolve(path, true)
	if err != nil {
		return nil, fileError("read tags of", path, err)
	}
	names, err := f.Tree.ListXattr(a.Ino)
	if err != nil {
		return nil, fileError("read tags of", path, err)
	}
	tags := []holt.Tag{}
	for _, name := range names {
		tag, ok := strings.CutPrefix(name, tagPrefix)
		if !ok {
			continue
		}
		value, err := f.Tree.GetXattr(a.Ino, name)
		if err == syscall.ENODATA {
			continue
		}
		if err != nil {
			return nil, fileError("read tags of", path, err)
		}
		tags = append(tags, holt.Tag{Path: holt.OSString(path), Name: holt.OSString(tag), Value: holt.OSString(value)})
	}
	return tags, nil
}

// Tag sets and removes tags of a file, one after the other, and returns what
// it has then.
func (f Files) Tag(spec holt.TagSpec) ([]holt.Tag, error) {
	path := string(spec.Path)
	for name := range spec.Set {
		if name == "" || len(tagPrefix+name) > xattrNameMax || strings.ContainsRune(string(name), 0) {
			return nil, holt.Errorf(holt.InvalidArgument, "invalid tag name %q", name).WithHint("a name has 1 to 250 bytes")
		}
	}
	a, err := f.resolve(path, true)
	if err == nil && a.Mode&syscall.S_IFMT == syscall.S_IFLNK {
		err = syscall.EPERM
	}
	for _, name := range spec.Remove {
		if err != nil {
			break
		}
		if err = f.Tree.RemoveXattr(f.Caller, a.Ino, tagPrefix+name); err == syscall.ENODATA {
			err = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Set)) {
		if err != nil {
			break
		}
		err = f.Tree.SetXattr(f.Caller, a.Ino, tagPrefix+string(name), []byte(spec.Set[name]), 0)
	}
	if err == syscall.E2BIG || err == syscall.ENOSPC {
		return nil, holt.Errorf(holt.InvalidArgument, "the tags of %s are too large: %w", spec.Path, err).
			WithHint("a value has at most 64 KiB, all tags of a file together 1 MiB")
	}
	if err != nil {
		return nil, fileError("tag", path, err)
	}
	if f.Changed != nil {
		f.Changed(a.Ino, "")
	}
	return f.Tags(path)
}
