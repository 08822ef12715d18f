package workspace

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// ChangeKind says what happened to a path.
type ChangeKind string

// The kinds of changes, in the order in which Diff reports them: done in this
// order they make the one state from the other.
const (
	ChangeDeleted  ChangeKind = "deleted"
	ChangeRenamed  ChangeKind = "renamed"
	ChangeCreated  ChangeKind = "created"
	ChangeContent  ChangeKind = "changed"
	ChangeMetadata ChangeKind = "metadata"
)

func (k ChangeKind) rank() int {
	return slices.Index([]ChangeKind{ChangeDeleted, ChangeRenamed, ChangeCreated, ChangeContent, ChangeMetadata}, k)
}

// Change is one path that differs between two states. What is below a renamed
// directory has not changed for that.
type Change struct {
	Kind       ChangeKind
	Path       string
	From       string // the path before, of what was renamed
	Type       string // file, dir, symlink, fifo, socket, char, block
	Ino        Ino
	Content    bool // bytes or target differ
	Metadata   bool // mode, owner, time of change or extended attributes differ
	SizeBefore int64
	SizeAfter  int64
	By         Writer // who did it; of what is deleted or renamed too
}

// DiffOptions narrow a diff.
type DiffOptions struct {
	Paths []string // only what is, or was, at or below one of these absolute paths
}

// Diff calls fn for every path that differs between two states, until it
// fails: from and to are checkpoints (see [Workspace.FindCheckpoint]) or
// [Live]. Deletions come first, what is in a directory before the directory
// itself. It costs what changed, not what there is. NotFound for a path that
// neither state has; TooMany if more than [mostDifferent] files differ: none is left out.
func (w *Workspace) Diff(ctx context.Context, from, to string, opt DiffOptions, fn func(Change) error) error {
	paths, err := cleanPaths(opt.Paths)
	if err != nil {
		return err
	}
	var all []Change
	err = w.compare(ctx, from, to, func(d *delta) error {
		if err := requirePaths(paths, from, d.before, to, d.after); err != nil {
			return err
		}
		all, err = d.changes(paths)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}

// cleanPaths brings paths to the form in which Change has them.
func cleanPaths(paths []string) ([]string, error) {
	out := make([]string, len(paths))
	for i, p := range paths {
		if p == "" || strings.ContainsRune(p, 0) {
			return nil, holt.Errorf(holt.InvalidArgument, "invalid path %q", p).WithHint("paths are absolute in the workspace, for example /src/main.go")
		}
		out[i] = path.Clean("/" + p)
	}
	return out, nil
}

// requirePaths refuses a path that neither of two states has: who mistyped it would be
// told that nothing changed.
func requirePaths(paths []string, from string, before point, to string, after point) error {
	when := func(ref string) string {
		if ref == "" || ref == Live {
			return "now"
		}
		return "at " + ref
	}
	for _, path := range paths {
		e, err := before.walk(path)
		if err == nil && e.ino == 0 {
			e, err = after.walk(path)
		}
		if err != nil {
			return err
		}
		if e.ino == 0 {
			return holt.Errorf(holt.NotFound, "there is no %s %s or %s", strings.ToValidUTF8(path, "\uFFFD"), when(from), when(to)).
				WithHint("list its parent directory; symbolic links in the path are not followed")
		}
	}
	return nil
}

// snapshot finds a point of the history by its name; the index must be flushed.
func (t *Tree) snapshot(ref string) (snapshot, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if ref == "" || ref == Live {
		return snapshot{nowVersion, 1 << 62}, nil
	}
	c, err := t.checkpoints.find(ref)
	return snapshot{int64(c.version), c.nextIno}, err
}

// between runs fn on the index with two states in it. what names the work in
// the error of a disk.
func (w *Workspace) between(ctx context.Context, what, from, to string, fn func(tx *db.Tx, a, b snapshot) error) error {
	a, err := w.tree.snapshot(from)
	if err != nil {
		return err
	}
	b, err := w.tree.snapshot(to)
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return diskError(what, err)
	}
	return w.tree.index.db.Read(ctx, func(tx *db.Tx) error { return fn(tx, a, b) })
}

// compare runs fn on what differs between two states.
func (w *Workspace) compare(ctx context.Context, from, to string, fn func(*delta) error) error {
	return w.between(ctx, "compare", from, to, func(tx *db.Tx, a, b snapshot) error {
		d, err := difference(tx, a, b, w.tree.opt.mostDifferent)
		if err != nil {
			return err
		}
		return fn(d)
	})
}

// changes says a delta in paths, in order.
func (d *delta) changes(paths []string) ([]Change, error) {
	l := changeList{d: d, paths: paths, all: make([]Change, 0, len(d.gone)+len(d.came)), named: map[Ino]bool{}, writers: map[uint32]Writer{}}
	if err := d.compare(); err != nil {
		return nil, err
	}
	if err := d.learn(d.gone, d.came); err != nil {
		return nil, err
	}
	if err := l.names(); err != nil {
		return nil, err
	}
	if err := l.inPlace(); err != nil {
		return nil, err
	}
	return sortChanges(l.all), nil
}

// sortChanges brings changes into the order in which they are reported. A
// Change is long: what is moved while sorting are their places.
func sortChanges(all []Change) []Change {
	type place struct{ rank, at int }
	places := make([]place, len(all))
	for i := range all {
		places[i] = place{all[i].Kind.rank(), i}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		if all[a.at].Kind == ChangeDeleted {
			return cmp.Compare(all[b.at].Path, all[a.at].Path)
		}
		return cmp.Compare(all[a.at].Path, all[b.at].Path)
	})
	sorted := make([]Change, len(all))
	for i, p := range places {
		sorted[i] = all[p.at]
	}
	return sorted
}

// changeList gathers the changes of a delta.
type changeList struct {
	d       *delta
	paths   []string
	all     []Change
	named   map[Ino]bool // a change of its names was reported, with what else changed
	writers map[uint32]Writer
}

// names reports the entries that are gone or came.
func (l *changeList) names() error {
	came := map[Ino][]placedEntry{}
	at := map[dirName]placedEntry{}
	for _, e := range l.d.came {
		came[e.ino] = append(came[e.ino], e)
		at[dirName{e.parent, e.name}] = e
	}
	taken := map[dirName]bool{}
	for _, e := range l.d.gone {
		p := l.d.inodes[e.ino]
		other, replaced := at[dirName{e.parent, e.name}]
		var err error
		switch moves := came[e.ino]; {
		case len(moves) > 0:
			came[e.ino] = moves[1:]
			taken[dirName{moves[0].parent, moves[0].name}] = true
			err = l.add(ChangeRenamed, e, moves[0], p)
		case replaced && p.after == nil && l.d.inodes[other.ino].before == nil && l.d.inodes[other.ino].after.sameType(p.before):
			taken[dirName{e.parent, e.name}] = true
			err = l.add(ChangeContent, e, other, &pair{before: p.before, after: l.d.inodes[other.ino].after})
		default:
			err = l.add(ChangeDeleted, e, placedEntry{}, p)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range l.d.came {
		if !taken[dirName{e.parent, e.name}] {
			if err := l.add(ChangeCreated, placedEntry{}, e, l.d.inodes[e.ino]); err != nil {
				return err
			}
		}
	}
	return nil
}

type dirName struct {
	dir  Ino
	name string
}

func (in *inodeRow) sameType(o *inodeRow) bool {
	return o != nil && in.mode&syscall.S_IFMT == o.mode&syscall.S_IFMT && !in.isDir()
}

// inPlace reports the inodes that changed under names that did not.
func (l *changeList) inPlace() error {
	var changed []Ino
	for ino, p := range l.d.inodes {
		if p.before != nil && p.after != nil && !l.named[ino] && (p.bytes || p.attrs) {
			changed = append(changed, ino)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	names, err := l.d.after.namesOf(changed)
	if err != nil {
		return err
	}
	if p := l.d.inodes[Root]; p != nil && p.after != nil {
		names[Root] = []placedEntry{{ino: Root, parent: Root, born: p.after.born}}
	}
	if err := l.d.learn(slices.Collect(maps.Values(names))...); err != nil {
		return err
	}
	came := make(map[dirName]bool, len(l.d.came))
	for _, e := range l.d.came {
		came[dirName{e.parent, e.name}] = true
	}
	for _, ino := range changed {
		p, kind := l.d.inodes[ino], ChangeMetadata
		if p.bytes {
			kind = ChangeContent
		}
		for _, e := range names[ino] {
			if came[dirName{e.parent, e.name}] {
				continue // it was reported as such, and its directory may not have been there
			}
			if err := l.add(kind, e, e, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// add reports one change: of the entry before to that after.
func (l *changeList) add(kind ChangeKind, before, after placedEntry, p *pair) (err error) {
	c := Change{Kind: kind}
	in, version := p.after, after.born
	if before.ino != 0 {
		if c.From, err = l.d.path(before, false); err != nil {
			return err
		}
	}
	if after.ino == 0 {
		in, version, c.Path, c.From = p.before, before.died, c.From, ""
	} else if c.Path, err = l.d.path(after, true); err != nil {
		return err
	}
	if !within(c.Path, l.paths) && (c.From == "" || !within(c.From, l.paths)) {
		return nil
	}
	if p.before != nil {
		c.SizeBefore = p.before.bytes()
	}
	if p.after != nil && after.ino != 0 {
		c.SizeAfter = p.after.bytes()
	}
	if kind != ChangeRenamed {
		c.From = ""
	}
	if p.before != nil && p.after != nil && before.ino != 0 && after.ino != 0 {
		if !p.compared {
			if err := l.d.settle([]*pair{p}); err != nil {
				return err
			}
		}
		c.Content, c.Metadata = p.bytes, p.attrs
		if kind != ChangeRenamed {
			version = p.after.born
		}
		l.named[after.ino] = true
	}
	c.Ino, c.Type = in.ino, KindName(in.mode)
	c.By, err = l.writer(version)
	l.all = append(l.all, c)
	return err
}

// bytes is the size of what has one.
func (in *inodeRow) bytes() int64 {
	if in.isDir() {
		return 0
	}
	return in.size
}

// writer returns who a version is of.
func (l *changeList) writer(version uint32) (Writer, error) {
	if w, ok := l.writers[version]; ok {
		return w, nil
	}
	w, err := l.d.after.writerOf(version)
	l.writers[version] = w
	return w, err
}

func (p point) writerOf(version uint32) (w Writer, err error) {
	err = p.tx.Query("SELECT w.kind, w.name, w.run, w.terminal, w.token FROM version v JOIN writer w ON w.id = v.writer WHERE v.id = ?1",
		[]any{int64(version)}, func(r *db.Row) error {
			w = Writer{r.Text(0), r.Text(1), r.Text(2), r.Text(3), r.Text(4)}
			return nil
		})
	return w, err
}

// String says a change on one line.
func (c Change) String() string {
	if c.From != "" {
		return string(c.Kind) + " " + c.From + " -> " + c.Path
	}
	return string(c.Kind) + " " + c.Path
}
