package workspace

import (
	"maps"
	"slices"
	"strings"

	"holt"
)

// Conflicts can be resolved for one side: ours is this workspace, theirs the
// other's. Who asks names paths of the other, and the longest one counts.

// mergeSide is the side that a conflict is resolved for.
type mergeSide int

const (
	noSide mergeSide = iota
	ours
	theirs
)

// setSides reads the paths to resolve.
func (m *merge) setSides() error {
	m.sides = map[string]mergeSide{}
	for side, paths := range map[mergeSide][]string{ours: m.opt.Ours, theirs: m.opt.Theirs} {
		clean, err := cleanPaths(paths)
		if err != nil {
			return err
		}
		for _, path := range clean {
			path = strings.TrimSuffix(path, "/")
			if m.sides[path] != noSide && m.sides[path] != side {
				return holt.Errorf(holt.InvalidArgument, "%q is given under both ours and theirs", path+"/").WithHint("list a path under ours or theirs, not both")
			}
			m.sides[path] = side
		}
	}
	return nil
}

// side returns the side that a conflict of u is resolved for.
func (m *merge) side(u *mergeUnit) (side mergeSide) {
	longest := -1
	paths := append(slices.Collect(maps.Values(u.paths)), u.path) // that it has in the other, or had
	for path, s := range m.sides {
		if len(path) > longest && slices.ContainsFunc(paths, func(p string) bool { return within(p, []string{path}) }) {
			longest, side = len(path), s
		}
	}
	return side
}

// resolveTheirs makes the unit here like the other's, if the conflict is resolved
// so. What would also need another inode to go, or a directory that is gone
// here, stays a conflict: propagate finds those.
func (m *merge) resolveTheirs(u *mergeUnit) error {
	if u.conflict == "" || m.side(u) != theirs {
		return nil
	}
	u.conflict, u.attribute, u.erase, u.result, u.rewritten, u.merged, u.text = "", "", nil, nil, false, false, nil
	u.resolved = true
	var names []placedEntry
	if u.f.row != nil {
		var err error
		if names, err = u.f.p.names(u.ino); err != nil {
			return err
		}
	}
	if u.n.row == nil {
		u.gone, u.came = nil, names
		m.create(u)
		return nil
	}
	if err := m.resolveNames(u, names); err != nil || u.f.row == nil {
		return err
	}
	u.b = u.n // as if nothing was changed here: all that differs is taken
	return m.classifyInode(u)
}

// resolveNames gives what stands here the other's names, and no more.
func (m *merge) resolveNames(u *mergeUnit, names []placedEntry) error {
	here, err := m.n.p.names(u.ours)
	if err != nil {
		return err
	}
	stays := map[dirName]bool{}
	u.came = nil
	for _, e := range names {
		now, err := m.entryHere(e)
		if err != nil {
			return err
		}
		if now.ino == u.ours {
			stays[dirName{now.parent, now.name}] = true
		} else {
			u.came = append(u.came, e)
		}
	}
	u.erase = slices.DeleteFunc(here, func(e placedEntry) bool { return stays[dirName{e.parent, e.name}] })
	if len(u.came) == 0 && u.f.row != nil {
		u.gone = nil
	}
	return nil
}
