package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/db"
)

// Across returns what must change in a state of this workspace to make it that
// of another of its family, in the order of [Workspace.Diff]; each state is a
// checkpoint or [Live]. It looks at what either changed since they were the
// same. What both changed to the same is no difference, and times are none. Who
// did it is known of what the other did.
//
// Errors: InvalidArgument if the two have nothing in common, Conflict if no
// checkpoint is left that both have.
func (w *Workspace) Across(ctx context.Context, at string, other *Workspace, otherAt string) ([]Change, error) {
	if w.tree == other.tree {
		return w.allChanges(ctx, at, otherAt)
	}
	x := &twoStates{moved: [2]map[Ino]bool{{}, {}}, known: map[[2]string]bool{}, by: map[string]Writer{}}
	base, err := lastCommon(w, other)
	if err != nil {
		return nil, err
	}
	var sides [2][]Change
	for i, one := range []struct {
		w  *Workspace
		at string
	}{{w, at}, {other, otherAt}} {
		if sides[i], err = one.w.allChanges(ctx, base, one.at); err != nil {
			return nil, err
		}
	}
	end, err := acquireBoth(ctx, w.tree, other.tree, w.Lineage(), other.Lineage())
	if err != nil {
		return nil, err
	}
	defer end()
	for _, t := range []*Tree{w.tree, other.tree} {
		t.holdSegments(+1)
		defer t.holdSegments(-1)
	}
	err = w.between(ctx, "compare workspaces", at, at, func(tx *db.Tx, a, _ snapshot) error {
		return other.between(ctx, "compare workspaces", otherAt, otherAt, func(theirs *db.Tx, b, _ snapshot) error {
			if x.a, err = newSide(w.tree, tx, w.Lineage()); err != nil {
				return err
			}
			if x.b, err = newSide(other.tree, theirs, other.Lineage()); err != nil {
				return err
			}
			x.a.p.version, x.b.p.version = a.version, b.version
			return x.compare(ctx, sides)
		})
	})
	if err != nil {
		return nil, diskError("compare workspaces", err)
	}
	return sortChanges(x.all), nil
}

func (w *Workspace) allChanges(ctx context.Context, from, to string) (all []Change, err error) {
	err = w.Diff(ctx, from, to, DiffOptions{}, func(c Change) error {
		all = append(all, c)
		return nil
	})
	return all, err
}

// lastCommon names the newest checkpoint that two workspaces have from before
// they parted.
func lastCommon(w, other *Workspace) (string, error) {
	theirs := other.Checkpoints()
	both := slices.DeleteFunc(w.Checkpoints(), func(c Checkpoint) bool {
		return !slices.ContainsFunc(theirs, func(o Checkpoint) bool { return o.ID == c.ID })
	})
	c, err := common(w.Lineage(), other.Lineage(), both)
	if err == nil && c == 0 {
		err = holt.Errorf(holt.Conflict, "the workspaces no longer share a checkpoint").
			WithHint("named checkpoints are never removed automatically")
	}
	return fmt.Sprint("#", uint64(c)), err
}

// twoStates is one comparison of states of two workspaces, a and b.
type twoStates struct {
	a, b  *side
	base  [2]renames      // directories: from their paths when both were the same to those in a, and in b
	dirs  renames         // directories that have another path in b than in a
	moved [2]map[Ino]bool // inodes of a, and of b, that were reported under either path
	known map[[2]string]bool
	by    map[string]Writer // by path in b
	all   []Change
}

// renames say what became of the paths of directories.
type renames [][2]string

// path says what becomes of a path, as those above it were renamed, in the
// direction from column from (0 or 1) to the other one.
func (r renames) path(p string, from int) string {
	best, out := -1, p
	for _, d := range r {
		if rest, ok := strings.CutPrefix(p, d[from]); ok && (rest == "" || rest[0] == '/') && len(d[from]) > best {
			best, out = len(d[from]), d[1-from]+rest
		}
	}
	return out
}

func (x *twoStates) compare(ctx context.Context, sides [2][]Change) error {
	for _, c := range sides[1] {
		x.by[c.Path] = c.By
	}
	for i, changes := range sides {
		for _, c := range changes {
			if c.Kind == ChangeRenamed && c.Type == "dir" {
				x.base[i] = append(x.base[i], [2]string{c.From, c.Path})
			}
		}
	}
	for i, changes := range sides {
		for _, c := range changes {
			if c.Kind != ChangeRenamed {
				continue
			}
			paths := [2]string{c.Path, c.Path}
			paths[1-i] = x.base[1-i].path(c.From, 0)
			if err := x.move(paths[0], paths[1]); err != nil {
				return err
			}
		}
	}
	for i, changes := range sides {
		for n, c := range changes {
			if n%1000 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := x.change(i, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// change looks at the paths that a change of one side since the base is about.
func (x *twoStates) change(side int, c Change) error {
	before := c.From
	if c.Kind == ChangeDeleted {
		before = c.Path
	} else if err := x.look(side, c.Path); err != nil {
		return err
	}
	if before == "" {
		return nil
	}
	return errors.Join(x.look(0, x.base[0].path(before, 0)), x.look(1, x.base[1].path(before, 0)))
}

// look compares what is at a path of one side with what is there on the other.
func (x *twoStates) look(side int, p string) error {
	other := x.dirs.path(p, side)
	if x.dirs.path(other, 1-side) != p {
		other = "" // its directory is not on the other side
	}
	if side == 0 {
		return x.path(p, other)
	}
	return x.path(other, p)
}

// move reports what is the same inode under another path.
func (x *twoStates) move(pa, pb string) error {
	at, err := x.a.p.walk(pa)
	if err != nil {
		return err
	}
	to, err := x.b.p.walk(pb)
	if err != nil || pa == pb || at.ino == 0 || at.ino != to.ino || x.moved[0][at.ino] {
		return err // the other moved it too, or it is gone there
	}
	twin, err := x.b.find(x.a.maker(at.ino), at.ino)
	if err != nil || twin != to.ino {
		return err
	}
	sa, sb, err := x.states(at.ino, to.ino)
	if err != nil || sa.row == nil || sb.row == nil {
		return err
	}
	if sa.row.isDir() {
		x.dirs = append(x.dirs, [2]string{pa, pb})
	}
	x.moved[0][at.ino], x.moved[1][to.ino] = true, true
	same, err := sa.sameBytes(sb)
	if err != nil {
		return err
	}
	alike, err := sa.sameMetadata(sb)
	if err == nil {
		x.add(Change{Kind: ChangeRenamed, From: pa, Path: pb, Content: !same && !sa.row.isDir(), Metadata: !alike}, sa.row, sb.row)
	}
	return err
}

func (x *twoStates) states(a, b Ino) (sa, sb state, err error) {
	sa, sb = state{s: x.a, p: x.a.p}, state{s: x.b, p: x.b.p}
	var lost [2]error
	if a != 0 {
		sa.row, lost[0] = x.a.p.inode(a)
	}
	if b != 0 {
		sb.row, lost[1] = x.b.p.inode(b)
	}
	return sa, sb, errors.Join(lost[0], lost[1])
}

// path reports how what is at a path of a differs from what is at one of b.
func (x *twoStates) path(pa, pb string) error {
	if x.known[[2]string{pa, pb}] {
		return nil
	}
	x.known[[2]string{pa, pb}] = true
	var at, to placedEntry
	var err error
	if pa != "" {
		if at, err = x.a.p.walk(pa); err != nil {
			return err
		}
	}
	if pb != "" {
		if to, err = x.b.p.walk(pb); err != nil {
			return err
		}
	}
	if x.moved[0][at.ino] {
		at.ino = 0
	}
	if x.moved[1][to.ino] {
		to.ino = 0
	}
	sa, sb, err := x.states(at.ino, to.ino)
	switch {
	case err != nil || sa.row == nil && sb.row == nil:
		return err
	case sb.row == nil:
		x.add(Change{Kind: ChangeDeleted, Path: pa}, sa.row, nil)
		return nil
	case sa.row == nil:
		x.add(Change{Kind: ChangeCreated, Path: pb}, nil, sb.row)
		return nil
	}
	same := sa.row.isDir() && sb.row.isDir()
	if !same {
		if same, err = sa.sameBytes(sb); err != nil {
			return err
		}
	}
	alike, err := sa.sameMetadata(sb)
	switch {
	case err != nil:
		return err
	case !same:
		x.add(Change{Kind: ChangeContent, Path: pb, Content: true, Metadata: !alike}, sa.row, sb.row)
	case !alike:
		x.add(Change{Kind: ChangeMetadata, Path: pb, Metadata: true}, sa.row, sb.row)
	}
	return nil
}

// sameMetadata tells whether mode, owners and extended attributes are the same.
func (x state) sameMetadata(y state) (same bool, err error) {
	if x.row.mode&^uint32(syscall.S_IFMT) != y.row.mode&^uint32(syscall.S_IFMT) || x.row.uid != y.row.uid || x.row.gid != y.row.gid {
		return false, nil
	}
	same = true
	err = eachXattrs(x.p, y.p, []inoPair{{x.row.ino, y.row.ino}}, func(_ int, a, b map[string]string) error {
		same = maps.Equal(a, b)
		return nil
	})
	return same, err
}

func (x *twoStates) add(c Change, a, b *inodeRow) {
	in := b
	if b == nil {
		in = a
	} else {
		c.SizeAfter, c.By = b.bytes(), x.by[c.Path]
	}
	if a != nil {
		c.SizeBefore = a.bytes()
	}
	c.Ino, c.Type = in.ino, KindName(in.mode)
	x.all = append(x.all, c)
}

// acquireBoth waits until no other merge or comparison has one of two workspaces: two
// that each hold a reading connection of one index and wait for one of the
// other's would do so for ever.
func acquireBoth(ctx context.Context, a, b *Tree, ofA, ofB []Ancestor) (end func(), err error) {
	turns := []chan struct{}{a.mergeSemaphore, b.mergeSemaphore}
	id := func(l []Ancestor) []byte { return l[len(l)-1].ID[:] }
	if bytes.Compare(id(ofB), id(ofA)) < 0 {
		slices.Reverse(turns)
	}
	taken := 0
	end = func() {
		for _, turn := range turns[:taken] {
			<-turn
		}
	}
	for _, turn := range turns {
		select {
		case turn <- struct{}{}:
			taken++
		case <-ctx.Done():
			end()
			return nil, holt.Errorf(holt.Timeout, "%w: another merge or comparison is using one of the two workspaces", ctx.Err())
		}
	}
	return end, nil
}
