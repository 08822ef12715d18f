package workspace

import (
	"fmt"

	"holt"
	"holt/internal/store/db"
)

// bases say what both sides last had in common, inode by inode: where they
// parted, what was merged of the other then, or what was merged into it from
// here.
type bases struct {
	common CheckpointID         // of the other
	there  map[Ino]CheckpointID // by the other's number: its checkpoint; 0: all that are not named
	back   map[Ino]mergedBack   // by the number here, likewise
	oldest CheckpointID         // of the other: what it has changed before is no difference
}

// mergedBack says that what was here at a checkpoint is in the other since one
// of its own.
type mergedBack struct{ there, here CheckpointID }

// of returns the other's checkpoint since which its inode is looked at.
func (b *bases) of(ino Ino) CheckpointID {
	c, ok := b.there[ino]
	if !ok {
		c = b.there[0]
	}
	return max(b.common, c)
}

// findBases looks at what earlier merges remember, as long as the present of
// the side that remembers still descends from them.
func (m *merge) findBases() error {
	m.base = bases{common: m.common, there: map[Ino]CheckpointID{}, back: map[Ino]mergedBack{}}
	err := m.n.merges(m.f.lineage, m.past[0], func(r merged) {
		if r.ino == 0 {
			clear(m.base.there) // it looked at what was left by those before
		}
		m.base.there[r.ino] = m.known(r.theirs)
	})
	if err == nil {
		err = m.f.merges(m.n.lineage, m.past[1], func(r merged) {
			if r.ino == 0 {
				clear(m.base.back)
			}
			m.base.back[r.ino] = mergedBack{r.mine, r.theirs}
		})
	}
	if err != nil {
		return err
	}
	m.base.oldest = m.base.of(0)
	for ino := range m.base.there {
		m.base.oldest = min(m.base.oldest, m.base.of(ino))
	}
	if len(m.base.back) > 0 { // what it kept of its own then differs from here, and may be older than any of these
		m.base.oldest = m.common
	}
	if m.known(m.base.oldest) == 0 {
		return holt.Errorf(holt.Conflict, "the workspaces no longer share a checkpoint").
			WithHint("to copy paths instead, export them from one workspace and import them into the other")
	}
	return nil
}

// baseOf returns the state of an inode of the other that both sides had last,
// and the names that it had then, by the other's directories.
func (m *merge) baseOf(ino Ino) (b state, names, theirs []placedEntry, err error) {
	b = state{s: m.f, p: m.at(m.base.of(ino))}
	ours, err := m.n.twinOf(m.f, ino)
	if err != nil {
		return b, nil, nil, err
	}
	back, ok := m.base.back[ours]
	if !ok {
		back = m.base.back[0]
	}
	here, ok := m.here.byID(back.here)
	at := ino
	if ours != 0 && back.there > m.base.of(ino) && ok { // it came from here later
		b, at = state{s: m.n, p: point{m.n.p.tx, int64(here.version)}}, ours
	}
	if b.row, err = b.p.named(at); err != nil || b.row == nil {
		return b, nil, nil, err
	}
	if names, err = b.p.names(at); err != nil || b.s == m.f {
		return b, names, names, err
	}
	for _, e := range names {
		if e.parent, err = m.f.twinOf(m.n, e.parent); err != nil {
			return b, nil, nil, err
		}
		theirs = append(theirs, e)
	}
	return b, names, theirs, nil
}

// known returns id if it is a checkpoint that the other still has, or 0.
func (m *merge) known(id CheckpointID) CheckpointID {
	if _, ok := m.checkpoint(id); ok {
		return id
	}
	return 0
}

// merges calls fn for what a side remembers of another and of those that the
// other came from, as far as it has their history: the oldest first, and of each
// what holds for all inodes first. What was merged into a state that the
// present does not descend from is not merged.
func (s *side) merges(lineage []Ancestor, past map[CheckpointID]bool, fn func(merged)) error {
	for i, a := range lineage {
		err := s.p.tx.Query("SELECT ino, mine, theirs FROM merged WHERE other = ? ORDER BY ino", []any{a.ID[:]}, func(r *db.Row) error {
			one := merged{a.ID, Ino(r.Int64(0)), CheckpointID(r.Int64(1)), CheckpointID(r.Int64(2))}
			if (one.mine == 0 || past[one.mine]) && (i == len(lineage)-1 || one.theirs <= a.Checkpoint) {
				fn(one)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// applyMerged notes what a merge says about an inode.
func (t *memory) applyMerged(o *op) error {
	if len(o.blob) != len(ID{}) {
		return fmt.Errorf("%w: merge of no workspace", errApply)
	}
	if o.kind == opTwin {
		t.batch.twins = append(t.batch.twins, twin{ID(o.blob), o.other, o.ino})
	} else {
		t.batch.merged = append(t.batch.merged, merged{ID(o.blob), o.ino, CheckpointID(o.n), CheckpointID(o.from)})
	}
	return nil
}
