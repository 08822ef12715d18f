package workspace

import (
	"slices"
	"syscall"
)

// walk resolves names for a caller who cannot leave a directory ([Files.Beneath]): its own path must be
// walked by its names, none of them a link, and below it neither .. nor a link leads above it.
func (f Files) walk(names []string, follow bool) ([]Ino, error) {
	at, rest, err := f.floor(names)
	if err != nil {
		return nil, err
	}
	return resolveFrom(f.state(), at, len(at), rest, follow)
}

// floor returns the inodes down to where the caller may begin, and what is left of the names.
func (f Files) floor(names []string) ([]Ino, []string, error) {
	top := pathNames(f.Beneath)
	if len(names) < len(top) || !slices.Equal(names[:len(top)], top) {
		return nil, nil, ErrEscapes
	}
	at := []Ino{Root}
	for _, name := range top {
		a, err := f.state().lookup(at[len(at)-1], name)
		if err != nil {
			return nil, nil, err
		}
		if a.Mode&syscall.S_IFMT == syscall.S_IFLNK {
			return nil, nil, ErrEscapes
		}
		at = append(at, a.Ino)
	}
	return at, names[len(top):], nil
}
