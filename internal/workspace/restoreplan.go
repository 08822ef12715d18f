package workspace

import (
	"cmp"
	"fmt"

	"holt"
)

// restorePlanner turns what differs between the present and a checkpoint into a plan,
// filtered by paths.
type restorePlanner struct {
	d      *delta // from the present to the checkpoint
	paths  []string
	g      *plan
	erased map[dirName]bool
	own    map[Ino]bool // see itself
	next   Ino          // the next number for a copy
}

func (s *restorePlanner) plan() (*plan, error) {
	s.g = &plan{now: s.d.before, inodes: map[Ino]wantedInode{}}
	s.erased, s.own = map[dirName]bool{}, map[Ino]bool{}
	if len(s.paths) == 0 {
		s.g.erase, s.g.enter = s.d.gone, s.d.came
		named := s.named()
		for ino, p := range s.d.inodes {
			if p.after != nil && (!p.same() || named[ino]) {
				s.g.inodes[ino] = wantedInode{row: p.after, at: s.d.after}
			}
		}
		return s.g, nil
	}
	for _, path := range s.paths {
		if err := s.above(path); err != nil {
			return nil, err
		}
	}
	for _, step := range []func() error{s.erase, s.enter, s.inPlace} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s.g, nil
}

// named are the directories that lose or get names, and what has those: that gives all of them
// other times, also where they have those of then, since a restore of paths gave them back.
func (s *restorePlanner) named() map[Ino]bool {
	all := map[Ino]bool{}
	for _, list := range [][]placedEntry{s.g.erase, s.g.enter} {
		for _, e := range list {
			all[e.parent], all[e.ino] = true, true
		}
	}
	return all
}

// same tells whether an inode is on both sides the same, but for what follows
// from names. What was taken away and put back has another version, and is.
func (p *pair) same() bool {
	if p.before == nil || p.after == nil {
		return false
	}
	a, b := p.before.node, p.after.node
	if p.compared && !p.bytes && !p.attrs {
		a.born = b.born
	}
	return a == b
}

// erase takes away the names within the paths that were not there then, and what is in
// a directory that was elsewhere then.
func (s *restorePlanner) erase() error {
	for _, e := range s.d.gone {
		path, err := s.d.path(e, false)
		if err != nil {
			return err
		}
		if within(path, s.paths) {
			if err := s.eraseTree(e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *restorePlanner) eraseTree(e placedEntry) error {
	if s.erased[dirName{e.parent, e.name}] {
		return nil
	}
	s.erased[dirName{e.parent, e.name}] = true
	s.g.erase = append(s.g.erase, e)
	in, err := s.d.before.inode(e.ino)
	if err != nil || in == nil || !in.isDir() {
		return err
	}
	was, err := s.cameInScope(e.ino)
	if err != nil || was {
		return err // it only moves
	}
	var below []placedEntry
	if err := s.d.before.entries(e.ino, 0, func(b placedEntry) error { below = append(below, b); return nil }); err != nil {
		return err
	}
	for _, b := range below {
		if err := s.eraseTree(b); err != nil {
			return err
		}
	}
	return nil
}

// cameInScope tells whether an inode gets a name within the paths.
func (s *restorePlanner) cameInScope(ino Ino) (bool, error) {
	for _, e := range s.d.came {
		if e.ino != ino {
			continue
		}
		path, err := s.d.path(e, true)
		if err != nil || !within(path, s.paths) {
			return false, err
		}
		return s.itself(e.parent)
	}
	return false, nil
}

// enter gives the names within the paths that were there then.
func (s *restorePlanner) enter() error {
	for _, e := range s.d.came {
		path, err := s.d.path(e, true)
		if err != nil {
			return err
		}
		if !within(path, s.paths) {
			continue
		}
		if yes, err := s.itself(e.parent); err != nil || !yes {
			if err != nil {
				return err
			}
			continue // it comes with the copy
		}
		if err := s.enterTree(e, e.parent); err != nil {
			return err
		}
	}
	return nil
}

// above refuses a path whose directory is not there now or has moved since, as
// long as that is not restored as well: what comes back would lie elsewhere,
// and what lies there now is what was elsewhere.
func (s *restorePlanner) above(path string) error {
	for _, side := range []struct {
		walked, other point
		then          bool
	}{{s.d.after, s.d.before, true}, {s.d.before, s.d.after, false}} {
		e, err := side.walked.walk(path)
		if err != nil || e.ino == Root {
			return err
		}
		if e.ino == 0 {
			continue
		}
		dir, err := side.walked.dirPath(e.parent)
		if err != nil {
			return err
		}
		other, err := side.other.dirPath(e.parent)
		switch {
		case err != nil:
			return err
		case within(dir, s.paths) || dir == other:
		case side.then:
			now, err := side.other.walk(dir)
			if err == nil && now.ino != 0 {
				err = holt.Errorf(holt.Conflict, "restore %s: directory %s has been replaced by a different directory since the checkpoint", path, dir).
					WithHint("copy the path from .holt/checkpoints, or restore %s as a whole", dir)
			} else if err == nil {
				err = holt.Errorf(holt.Conflict, "restore %s: directory %s no longer exists", path, dir).WithHint("restore %s too", dir)
			}
			return err
		case other != "":
			return holt.Errorf(holt.Conflict, "restore %s: directory %s was at %s when the checkpoint was taken", path, dir, other).
				WithHint("restore %s and %s", dir, other)
		}
	}
	return nil
}

// itself tells whether a directory that was within the paths, or above it, comes back
// itself: not as a copy, as does one that has moved out, with all below it.
func (s *restorePlanner) itself(dir Ino) (yes bool, err error) {
	if yes, ok := s.own[dir]; ok || dir == Root {
		return yes || dir == Root, nil
	}
	defer func() { s.own[dir] = yes }()
	then, err := s.d.after.dirPath(dir)
	if err != nil || !within(then, s.paths) {
		return err == nil, err
	}
	names, err := s.d.after.names(dir)
	if err != nil || len(names) != 1 {
		return false, cmp.Or(err, fmt.Errorf("directory %d has %d names", dir, len(names)))
	}
	if yes, err = s.itself(names[0].parent); err != nil || !yes {
		return false, err
	}
	here, err := s.d.before.entry(names[0].parent, names[0].name)
	if err != nil || here.ino == dir {
		return err == nil, err
	}
	now, err := s.d.before.dirPath(dir)
	return err == nil && (now == "" || within(now, s.paths)), err
}

// enterTree enters e in a directory: as it was, or as a copy if it has a name
// outside the paths now.
func (s *restorePlanner) enterTree(e placedEntry, parent Ino) error {
	if parent == e.parent {
		elsewhere, err := s.elsewhere(e.ino)
		if err != nil {
			return err
		}
		if !elsewhere {
			s.g.enter = append(s.g.enter, e)
			return s.want(e.ino, e.ino)
		}
	}
	ino := s.next
	s.next++
	if err := s.want(ino, e.ino); err != nil {
		return err
	}
	s.g.enter = append(s.g.enter, placedEntry{parent: parent, name: e.name, ino: ino})
	if !s.g.inodes[ino].row.isDir() {
		return nil
	}
	var below []placedEntry
	if err := s.d.after.entries(e.ino, 0, func(b placedEntry) error { below = append(below, b); return nil }); err != nil {
		return err
	}
	for _, b := range below {
		if err := s.enterTree(b, ino); err != nil {
			return err
		}
	}
	return nil
}

// elsewhere tells whether an inode has a name now that it keeps and did not
// have then.
func (s *restorePlanner) elsewhere(ino Ino) (bool, error) {
	now, err := s.d.before.names(ino)
	if err != nil {
		return false, err
	}
	for _, e := range now {
		if s.erased[dirName{e.parent, e.name}] {
			continue
		}
		then, err := s.d.after.entry(e.parent, e.name)
		if err != nil || then.ino != ino {
			return true, err
		}
	}
	return false, nil
}

// want makes ino what another was then.
func (s *restorePlanner) want(ino, like Ino) error {
	row, err := s.d.after.inode(like)
	if err != nil || row == nil {
		return fmt.Errorf("inode %d is not there: %w", like, err)
	}
	s.g.inodes[ino] = wantedInode{row: row, at: s.d.after}
	return nil
}

// inPlace wants what changed under names that did not, within the paths.
func (s *restorePlanner) inPlace() error {
	named := s.named()
	for ino, p := range s.d.inodes {
		if p.before == nil || p.after == nil || p.same() && !named[ino] || s.g.inodes[ino].row != nil {
			continue
		}
		names, err := s.d.after.names(ino)
		if err != nil {
			return err
		}
		for _, e := range names {
			now, err := s.d.before.entry(e.parent, e.name)
			if err != nil {
				return err
			}
			if now.ino != ino {
				continue
			}
			path, err := s.d.path(e, true)
			if err != nil {
				return err
			}
			here, err := s.itself(e.parent) // it may have moved outside the paths, or into it
			if err != nil {
				return err
			}
			if here && within(path, s.paths) {
				s.g.inodes[ino] = wantedInode{row: p.after, at: s.d.after}
			}
		}
	}
	return nil
}
