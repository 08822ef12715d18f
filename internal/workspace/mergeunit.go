package workspace

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
)

// mergeUnit is what changed of one inode of the other. It is taken as a whole
// or not at all.
type mergeUnit struct {
	ino       Ino   // the other's number
	b, f      state // the base, and the other as it is merged
	n         state // here
	gone      []placedEntry
	came      []placedEntry      // the other's names
	old       Ino                // the one whose place it took; 0: none
	paths     map[dirName]string // of gone and came
	path      string
	depth     int // of its place in the other
	in        bool
	ours      Ino // here; a new one if n is nothing
	erase     []placedEntry
	enter     []placedEntry // names here
	result    *wantedInode
	rewritten bool // with bytes of the other
	merged    bool
	text      []extent // of what is merged by lines
	twin      bool     // to be known as the other's
	conflict  holt.ConflictCode
	attribute string // that the conflict is about
	resolved  bool   // there was one, and the other's was taken
}

// toConflict says the unit's conflict.
func (u *mergeUnit) toConflict() Conflict {
	c := Conflict{u.path, u.conflict, u.conflict.Sentence()}
	if u.attribute != "" {
		c.Reason = "its attribute " + u.attribute + " was changed on both sides"
	}
	return c
}

// does tells whether it changes anything.
func (u *mergeUnit) does() bool { return len(u.erase) > 0 || len(u.enter) > 0 || u.result != nil }

// numbers are those of the other that it is about.
func (u *mergeUnit) numbers() []Ino {
	if u.old != 0 {
		return []Ino{u.ino, u.old}
	}
	return []Ino{u.ino}
}

func (m *merge) sorted() []*mergeUnit {
	return slices.SortedFunc(maps.Values(m.units), func(a, b *mergeUnit) int { return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.ino, b.ino)) })
}

// gather makes the units of what changed since the base.
func (m *merge) gather(d *delta) error {
	all := map[Ino]bool{}
	for ino := range d.inodes {
		all[ino] = true
	}
	for _, list := range [][]placedEntry{d.gone, d.came} {
		for _, e := range list {
			all[e.ino] = true
		}
	}
	for ino := range all {
		if err := m.gatherUnit(ino); err != nil {
			return err
		}
	}
	m.replacements()
	return nil
}

func (m *merge) gatherUnit(ino Ino) error {
	u := &mergeUnit{ino: ino, f: state{s: m.f, p: m.f.p}}
	b, names, before, err := m.baseOf(ino)
	if err != nil {
		return err
	}
	var after []placedEntry
	u.b = b
	if u.f.row, err = m.f.p.named(ino); err == nil && u.f.row != nil {
		after, err = m.f.p.names(ino)
	}
	if err != nil || u.b.row == nil && u.f.row == nil {
		return err
	}
	if u.f.row == nil {
		if replaced, err := m.replacedThere(ino); err != nil || replaced {
			return err
		}
	}
	u.gone, u.came = without(before, after), without(after, before)
	if u.b.row != nil && u.f.row != nil && len(u.gone)+len(u.came) == 0 {
		if same, err := m.same(u.b, u.f); err != nil || same {
			return err
		}
	}
	m.units[ino] = u
	return m.place(u, names, before, after)
}

// replacedThere tells whether one that is gone from the other was replaced
// there: then another of the other's speaks for it, by its number or as what
// stands here for both.
func (m *merge) replacedThere(ino Ino) (bool, error) {
	if replaced, err := m.f.replaced(ino); err != nil || replaced {
		return replaced, err
	}
	ours, err := m.n.twinOf(m.f, ino)
	if err != nil || ours == 0 {
		return false, err
	}
	last, err := m.f.twinOf(m.n, ours)
	if err != nil || last == 0 || last == ino {
		return false, err
	}
	if row, err := m.f.p.named(last); err != nil || row != nil {
		return err == nil, err
	}
	b, _, _, err := m.baseOf(last) // if it was there, it is gone as well
	return b.row != nil, err
}

// without returns the names in a that are not in b.
func without(a, b []placedEntry) []placedEntry {
	return slices.DeleteFunc(slices.Clone(a), func(e placedEntry) bool {
		return slices.ContainsFunc(b, func(o placedEntry) bool { return e.parent == o.parent && e.name == o.name })
	})
}

// place finds the paths of a unit, and whether it is to be merged. names and
// before are those of the base, by its directories and by the other's.
func (m *merge) place(u *mergeUnit, names, before, after []placedEntry) error {
	u.paths = map[dirName]string{}
	if u.ino == Root {
		u.path, u.in = "/", within("/", m.paths)
		return nil
	}
	note := func(p point, e placedEntry, as dirName) error {
		path, err := p.path(e)
		if err != nil {
			return err
		}
		if u.path == "" {
			u.path, u.depth = path, strings.Count(path, "/")
		}
		u.paths[as], u.in = path, u.in || within(path, m.paths)
		return nil
	}
	slices.SortFunc(after, func(a, b placedEntry) int { return cmp.Compare(a.name, b.name) })
	for _, e := range after {
		if err := note(u.f.p, e, dirName{e.parent, e.name}); err != nil {
			return err
		}
	}
	for i, e := range names {
		if _, ok := u.paths[dirName{before[i].parent, e.name}]; ok {
			continue
		}
		if err := note(u.b.p, e, dirName{before[i].parent, e.name}); err != nil {
			return err
		}
	}
	return nil
}

// changes says what a unit changes.
func (u *mergeUnit) changes() (all []Change) {
	row := u.f.row
	if row == nil {
		row = u.b.row
	}
	c := Change{Ino: u.ours, Type: KindName(row.mode), Content: u.rewritten || u.merged, Metadata: u.result != nil}
	if u.n.row != nil {
		c.SizeBefore = u.n.row.bytes()
	}
	if u.f.row != nil {
		c.SizeAfter = row.bytes()
	}
	if u.result != nil {
		c.SizeAfter = u.result.row.bytes()
	}
	path := func(e placedEntry) string { return u.paths[dirName{e.parent, e.name}] }
	for i, e := range u.came {
		c.Kind, c.Path, c.From = ChangeCreated, path(e), ""
		if i < len(u.gone) {
			c.Kind, c.From = ChangeRenamed, path(u.gone[i])
		}
		all = append(all, c)
	}
	c.From = ""
	for _, e := range u.gone[min(len(u.came), len(u.gone)):] {
		c.Kind, c.Path = ChangeDeleted, path(e)
		all = append(all, c)
	}
	if len(all) == 0 {
		if c.Kind, c.Path = ChangeMetadata, u.path; c.Content {
			c.Kind = ChangeContent
		}
		all = append(all, c)
	}
	return all
}

// replacements makes one unit of a file that took the place of another, as
// programs do that write a new file and rename it: that is a change of its
// bytes.
func (m *merge) replacements() {
	gone := map[dirName]*mergeUnit{}
	for _, u := range m.units {
		if u.f.row == nil && u.b.row.isFile() && u.b.row.nlink == 1 && len(u.gone) == 1 {
			gone[dirName{u.gone[0].parent, u.gone[0].name}] = u
		}
	}
	for _, u := range m.sorted() {
		if u.b.row != nil || !u.f.row.isFile() {
			continue
		}
		for i, e := range u.came {
			if o := gone[dirName{e.parent, e.name}]; o != nil {
				u.b, u.came, u.in = o.b, slices.Delete(slices.Clone(u.came), i, i+1), u.in || o.in
				u.old, m.replacedBy[o.ino] = o.ino, u.ino
				delete(m.units, o.ino)
				break
			}
		}
	}
}

// requirePaths refuses a path at which nothing is, in either, nor was when both were the same, or parted: who
// mistyped it would be told that nothing changed.
func (m *merge) requirePaths() error {
	for _, path := range m.paths {
		found := false
		for _, p := range []point{m.f.p, m.n.p, m.at(m.base.oldest), m.at(m.common)} {
			e, err := p.walk(path)
			if err != nil {
				return err
			}
			found = found || e.ino != 0
		}
		for _, u := range m.units { // what was merged before, and is gone
			for _, one := range u.paths {
				found = found || within(one, []string{path})
			}
		}
		if !found {
			return holt.Errorf(holt.NotFound, "there is no %s in %s", strings.ToValidUTF8(path, "\uFFFD"), cmp.Or(m.opt.Name, "the workspace to merge")).
				WithHint("list its parent directory; symbolic links in the path are not followed")
		}
	}
	return nil
}

// filter drops what is out of the paths, but for the new directories that what
// is in them lies in.
func (m *merge) filter() error {
	for _, u := range m.units {
		for x := u; x != nil && u.in && len(x.came) > 0; {
			x = m.units[x.came[0].parent]
			if x == nil || x.b.row != nil || x.in {
				break
			}
			x.in = true
		}
	}
	maps.DeleteFunc(m.units, func(_ Ino, u *mergeUnit) bool { return !u.in })
	return nil
}

// classify compares each unit with what is here: those that are higher in the
// tree first, so that it is known what their directories are.
func (m *merge) classify() error {
	for _, u := range m.sorted() {
		if err := m.findHere(u); err != nil {
			return err
		}
		var err error
		switch {
		case u.f.row == nil && u.n.row == nil: // gone on both sides
		case u.f.row == nil:
			err = m.classifyGone(u)
		case u.n.row == nil && u.b.row != nil:
			u.conflict = holt.RemovedHere
		case u.n.row == nil:
			m.create(u)
		default:
			if err = m.classifyInode(u); err == nil && u.conflict == "" {
				err = m.classifyNames(u)
			}
		}
		if err == nil {
			err = m.resolveTheirs(u)
		}
		if err != nil {
			return err
		}
	}
	for _, u := range m.units {
		for _, e := range u.erase {
			m.taken[dirName{e.parent, e.name}] = u.ino
		}
	}
	return nil
}

// findHere finds what stands here for a unit's inode: its twin, or else the
// file or directory that has its name and is no other's twin.
func (m *merge) findHere(u *mergeUnit) (err error) {
	u.n = state{s: m.n, p: m.n.p}
	for _, ino := range []Ino{u.old, u.ino} { // one that was replaced goes by the number it had
		if ino == 0 || u.n.row != nil {
			continue
		}
		if u.ours, err = m.n.twinOf(m.f, ino); err != nil {
			return err
		}
		if u.ours == 0 {
			continue
		}
		if u.n.row, err = m.n.p.named(u.ours); err != nil {
			return err
		}
	}
	if u.n.row == nil {
		if err := m.findByName(u); err != nil {
			return err
		}
	}
	if u.n.row == nil {
		u.ours = 0
		return nil
	}
	u.ours = u.n.row.ino
	if u.f.row != nil {
		known, err := m.n.twinOf(m.f, u.ino)
		u.twin = known != u.ours
		return err
	}
	return nil
}

// findByName is for what was made on both sides, or replaced here.
func (m *merge) findByName(u *mergeUnit) error {
	like, at := u.f, dirName{}
	if like.row == nil {
		like = u.b
	}
	names := u.gone
	if u.f.row != nil {
		var err error
		if names, err = u.f.p.names(u.ino); err != nil {
			return err
		}
	}
	if len(names) != 1 || u.b.row != nil && (!u.b.row.isFile() || len(u.came) > 0) {
		return nil
	}
	at = dirName{names[0].parent, names[0].name}
	parent, err := m.dirHere(at.dir)
	if err != nil || parent == 0 {
		return err
	}
	e, err := m.n.p.entry(parent, at.name)
	if err != nil || e.ino == 0 {
		return err
	}
	row, err := m.n.p.named(e.ino)
	if err != nil || row == nil || row.mode&syscall.S_IFMT != like.row.mode&syscall.S_IFMT {
		return err
	}
	twin, err := m.f.twinOf(m.n, e.ino)
	if err != nil {
		return err
	}
	if twin != 0 {
		if other, err := m.f.p.named(twin); err != nil || other != nil {
			return err // it is another's
		}
		if m.units[twin] != nil || m.units[m.replacedBy[twin]] != nil { // and is taken away, or rewritten, by this merge
			return nil
		}
	}
	u.n.row = row
	return nil
}

// dirHere returns what stands here for a directory of the other; 0: nothing yet.
func (m *merge) dirHere(dir Ino) (Ino, error) {
	ours, err := m.n.twinOf(m.f, dir)
	if err == nil && ours != 0 {
		row, err := m.n.p.named(ours)
		if err != nil || row != nil && row.isDir() {
			return ours, err
		}
	}
	if u := m.units[dir]; u != nil {
		return u.ours, err // new, or found by its name
	}
	return 0, err
}

func (m *merge) classifyGone(u *mergeUnit) error {
	same, err := m.same(u.b, u.n)
	if err != nil {
		return err
	}
	if !same {
		u.conflict = holt.RemovedThere
		return nil
	}
	if err := m.takeNames(u); err != nil {
		return err
	}
	if len(u.erase) < len(u.gone) {
		u.conflict = holt.RenamedHere
	}
	return nil
}

// entryHere returns what stands here where the other has, or had, an entry.
func (m *merge) entryHere(e placedEntry) (placedEntry, error) {
	parent, err := m.dirHere(e.parent)
	if err != nil {
		return placedEntry{}, err
	}
	return m.n.p.entry(parent, e.name)
}

// takeNames finds the names here that the other took away.
func (m *merge) takeNames(u *mergeUnit) error {
	for _, e := range u.gone {
		now, err := m.entryHere(e)
		if err != nil {
			return err
		}
		if now.ino == u.ours && now.ino != 0 {
			u.erase = append(u.erase, now)
		}
	}
	return nil
}

// create is for what the other made.
func (m *merge) create(u *mergeUnit) {
	u.ours, u.twin = m.next, true
	m.next++
	u.result, u.rewritten = &wantedInode{row: m.copyOf(u.f.row, u.ours)}, true
}

// classifyNames merges names. Those to be given are looked at by propagate.
func (m *merge) classifyNames(u *mergeUnit) error {
	if err := m.takeNames(u); err != nil {
		return err
	}
	missing := 0
	for _, e := range u.came {
		now, err := m.entryHere(e)
		if err != nil {
			return err
		}
		if now.ino != u.ours {
			missing++
		}
	}
	if missing > 0 && (len(u.erase) < len(u.gone) || len(u.erase) == 0 && u.f.row.isDir()) { // a directory never has two names
		u.conflict = holt.BothRenamed
	}
	if missing > 0 || len(u.erase) == 0 {
		return nil
	}
	here, err := m.n.p.names(u.ours)
	if err == nil && len(here) == len(u.erase) { // of several links, neither removed all
		u.conflict = holt.BothUnlinked
	}
	return err
}
