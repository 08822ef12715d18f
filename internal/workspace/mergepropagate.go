package workspace

import "holt"

// propagate gives names, and finds the units that cannot be merged because others
// are not: names that are taken, directories that are not there or not empty.
// It repeats until nothing more is found.
func (m *merge) propagate() error {
	for again := true; again; {
		again = false
		for _, u := range m.sorted() {
			if u.conflict != "" {
				continue
			}
			why, err := m.blocked(u)
			if err != nil {
				return err
			}
			if why != "" {
				u.conflict, again = why, true
			}
		}
	}
	return nil
}

func (m *merge) blocked(u *mergeUnit) (holt.ConflictCode, error) {
	u.enter = nil
	for _, e := range u.came {
		parent, err := m.parent(e.parent)
		if err != nil {
			return "", err
		}
		if parent == 0 {
			return holt.DirectoryMissing, nil
		}
		now, err := m.n.p.entry(parent, e.name)
		if err != nil {
			return "", err
		}
		switch {
		case now.ino == u.ours && now.ino != 0:
			continue
		case now.ino != 0 && !m.takes(now):
			return holt.NameTaken, nil
		}
		u.enter = append(u.enter, placedEntry{parent: parent, name: e.name, ino: u.ours})
	}
	if u.f.row == nil && u.n.row != nil && u.n.row.isDir() {
		return m.emptied(u.ours)
	}
	if len(u.enter) > 0 && u.f.row.isDir() {
		return m.loop(u)
	}
	return "", nil
}

// parent returns the directory here that one of the other's is, or will be; 0
// if there is none.
func (m *merge) parent(dir Ino) (Ino, error) {
	ours, err := m.dirHere(dir)
	if err != nil || ours == 0 {
		return 0, err
	}
	u := m.units[dir]
	switch {
	case u == nil || u.n.row != nil && u.f.row != nil:
		return ours, nil
	case u.conflict != "" || u.f.row == nil:
		return 0, nil
	}
	return ours, nil
}

// takes tells whether an entry here is taken away.
func (m *merge) takes(e placedEntry) bool {
	u := m.units[m.taken[dirName{e.parent, e.name}]]
	return u != nil && u.conflict == ""
}

// emptied tells what keeps a directory from being removed.
func (m *merge) emptied(dir Ino) (why holt.ConflictCode, err error) {
	err = m.n.p.entries(dir, 0, func(e placedEntry) error {
		if !m.takes(e) {
			why = holt.DirectoryNotEmpty
		}
		return nil
	})
	return why, err
}

// loop finds a directory that would come to lie in itself: what each side moved
// is right, and both together are not.
func (m *merge) loop(u *mergeUnit) (holt.ConflictCode, error) {
	goes := map[Ino]Ino{}
	for _, x := range m.units {
		if x.conflict == "" && x.f.row != nil && x.f.row.isDir() {
			for _, e := range x.enter {
				goes[x.ours] = e.parent
			}
		}
	}
	seen := map[Ino]bool{}
	for dir := u.enter[0].parent; dir != Root && !seen[dir]; {
		if dir == u.ours {
			return holt.InsideItself, nil
		}
		seen[dir] = true
		up, moved := goes[dir]
		if !moved {
			row, err := m.n.p.inode(dir)
			if err != nil || row == nil {
				return "", err
			}
			up = row.parent
		}
		dir = up
	}
	return "", nil
}
