package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"holt"
	"holt/internal/store/db"
)

// CheckpointID numbers a checkpoint of a workspace. It is never reused.
type CheckpointID uint64

// Checkpoint is a state of the workspace that can be looked at, compared and
// gone back to.
type Checkpoint struct {
	ID     CheckpointID
	Name   string       // unique; "auto-ID" if none was given
	Parent CheckpointID // what it descends from; 0: nothing. After a restore of X the next one descends from X.
	CheckpointNote
	CreatedAt  time.Time
	Generation uint64 // that it closed
	Files      int64  // regular files
	Bytes      int64  // sum of their sizes
	Mounts     bool   // it holds what the mounts of guests had: a fork can continue them

	version uint64 // the last one that it sees
	nextIno Ino    // what was made later has this number or a higher one
}

// CheckpointNote is what the one who asks for a checkpoint says about it.
type CheckpointNote struct {
	Auto    bool   `json:"auto,omitempty"`    // not asked for by name
	Reason  string `json:"reason,omitempty"`  // "after run …", "before restore of …", or what a person wrote
	Run     string `json:"run,omitempty"`     // that it was taken for
	Flushed bool   `json:"flushed,omitempty"` // pages that a guest had not written were flushed first
}

// CheckpointOptions say what checkpoint to take.
type CheckpointOptions struct {
	Name string // empty: an automatic name
	CheckpointNote
	// IfChanged returns the checkpoint that the present is equal to, if it is.
	// With Mounts it counts for nothing.
	IfChanged bool
	// Mounts holds what the guests that have the workspace mounted need to continue
	// in a fork (see [ForkOptions]): which mounts those are, their terms, and the
	// answers that they may ask for again. Take it while the guest stands still,
	// so that its memory is from the same instant.
	Mounts bool
	// Synced makes it survive power loss, and all before it.
	Synced bool
}

// mostReason bounds what is said about a checkpoint, bytes.
const mostReason = 1000

// Live names the present wherever a checkpoint's name may stand.
const Live = "live"

// Checkpoint closes the generation: whatever changes from now on leaves the
// state as it is now for this checkpoint. It costs one record of the journal,
// whatever the size of the workspace, and waits for nothing but who changes
// something at the snapshot; Synced one fsync, of what was not synced before (so
// Sync first, where time counts). Errors: InvalidArgument, AlreadyExists; TooMany
// with Mounts, if several guests together have more answers than can be held.
func (w *Workspace) Checkpoint(opt CheckpointOptions) (Checkpoint, error) {
	if err := opt.valid(); err != nil {
		return Checkpoint{}, err
	}
	c, err := w.tree.lockedCheckpoint(opt)
	if err == nil && opt.Synced {
		if err = w.tree.Sync(); err != nil {
			return c, diskError("checkpoint workspace", err)
		}
	}
	return c, err
}

// lockedCheckpoint takes one. It adds no rows to what is to be written, so it
// does not wait for room there as other operations do.
func (t *Tree) lockedCheckpoint(opt CheckpointOptions) (Checkpoint, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.writable(); err != nil {
		return Checkpoint{}, diskError("checkpoint workspace", err)
	}
	return t.checkpoint(opt)
}

func (opt *CheckpointOptions) valid() error {
	bad := func(why string) error {
		return holt.Errorf(holt.InvalidArgument, "checkpoint %q: %s", opt.Name, why).
			WithHint("choose a name such as before-upgrade; \"live\" and names that begin with # or auto- are reserved")
	}
	if opt.Name != "" {
		unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
		switch {
		case validName(opt.Name) != nil || !utf8.ValidString(opt.Name) || strings.ContainsFunc(opt.Name, unprintable):
			return bad("a name is 1 to 255 bytes of printable text without /")
		case opt.Name == Live || opt.Name[0] == '#' || strings.HasPrefix(opt.Name, "auto-"):
			return bad("the name is reserved")
		}
	}
	if len(opt.Reason) > mostReason || len(opt.Run) > mostWriterField {
		return bad("the reason or the run's id is too long")
	}
	opt.Reason, opt.Run = strings.ToValidUTF8(opt.Reason, "?"), strings.ToValidUTF8(opt.Run, "?")
	return nil
}

// checkpoint takes one; mu is held.
func (t *Tree) checkpoint(opt CheckpointOptions) (Checkpoint, error) {
	if opt.IfChanged && !opt.Mounts && t.count.Changed <= t.count.Sealed {
		if c, ok := t.checkpoints.byID(CheckpointID(t.count.Head)); ok && c.version == t.count.Sealed {
			return c, nil
		}
	}
	if opt.Name == "" {
		opt.Name = fmt.Sprint("auto-", t.count.NextCheck) // unused: a look-up costs more the more there are
	} else if c, ok := t.checkpoints.byName(opt.Name); ok {
		return Checkpoint{}, holt.Errorf(holt.AlreadyExists, "checkpoint %q already exists: it was taken at %s", c.Name, c.CreatedAt.Format(time.RFC3339)).
			WithHint("choose another name, or delete the existing checkpoint first")
	}
	note, err := json.Marshal(opt.CheckpointNote)
	if err != nil {
		return Checkpoint{}, err
	}
	o := op{kind: opCheckpoint, time: t.now(), n: int64(t.count.NextCheck), name: opt.Name, blob: note}
	if opt.Mounts {
		if o.blob2, err = t.holdMounts(); err != nil {
			return Checkpoint{}, err
		}
	}
	if err := t.commit(&o, nil, nil); err != nil {
		return Checkpoint{}, diskError("checkpoint workspace", err)
	}
	c := t.checkpoints[len(t.checkpoints)-1]
	t.notifyCheckpoint(c, false)
	return c, nil
}

// notifyCheckpoint tells who wants to know of a checkpoint; mu is held.
func (t *Tree) notifyCheckpoint(c Checkpoint, deleted bool) {
	if t.opt.OnCheckpoint != nil {
		t.opt.OnCheckpoint(c, deleted)
	}
}

func (t *memory) applyCheckpoint(o *op) error {
	c := Checkpoint{ID: CheckpointID(o.n), Name: o.name, Parent: CheckpointID(t.count.Head), CreatedAt: time.Unix(0, o.time).UTC(),
		Generation: t.count.Generation, Files: int64(t.count.Files), Bytes: int64(t.count.Bytes), Mounts: len(o.blob2) > 0,
		version: t.count.Version, nextIno: Ino(t.count.NextIno)}
	if err := json.Unmarshal(o.blob, &c.CheckpointNote); err != nil || uint64(o.n) != t.count.NextCheck {
		return fmt.Errorf("%w: checkpoint %d", errApply, o.n)
	}
	t.checkpoints = append(t.checkpoints, c)
	t.batch.checkpoints = append(t.batch.checkpoints, newCheckpoint{c, o.blob2})
	t.count.NextCheck, t.count.Head = uint64(c.ID)+1, uint64(c.ID)
	t.count.Generation++
	t.count.Sealed, t.count.Interleaved = t.count.Version, 0
	clear(t.version)
	return nil
}

// Checkpoints lists the checkpoints, oldest first.
func (w *Workspace) Checkpoints() []Checkpoint { return w.tree.Checkpoints() }

// Present tells what checkpoint the present descends from (0: none), and
// whether anything changed since.
func (w *Workspace) Present() (parent CheckpointID, changed bool) {
	w.tree.mu.RLock()
	defer w.tree.mu.RUnlock()
	return CheckpointID(w.tree.count.Head), w.tree.count.Changed > w.tree.count.Sealed
}

// FindCheckpoint returns the checkpoint with a name, or with a number written
// as "#12". NotFound if there is none.
func (w *Workspace) FindCheckpoint(ref string) (Checkpoint, error) {
	w.tree.mu.RLock()
	defer w.tree.mu.RUnlock()
	return w.tree.checkpoints.find(ref)
}

// checkpointList is a workspace's checkpoints, by ID.
type checkpointList []Checkpoint

// find returns the checkpoint with a name, or with a number written as "#12".
func (l checkpointList) find(ref string) (Checkpoint, error) {
	c, ok := l.byName(ref)
	if id, is := checkpointNumber(ref); is {
		c, ok = l.byID(id)
	}
	if !ok {
		return Checkpoint{}, noCheckpoint(ref)
	}
	return c, nil
}

// checkpointNumber reads "#12"; what is no number stands for none.
func checkpointNumber(ref string) (id CheckpointID, is bool) {
	number, is := strings.CutPrefix(ref, "#")
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		n = 0
	}
	return CheckpointID(n), is
}

func noCheckpoint(ref string) error {
	return holt.Errorf(holt.NotFound, "there is no checkpoint %q", ref).
		WithHint("list checkpoints with holt workspace checkpoints; refer to one by its name or as #NUMBER")
}

func (l checkpointList) byID(id CheckpointID) (Checkpoint, bool) {
	i, ok := slices.BinarySearchFunc(l, id, func(c Checkpoint, id CheckpointID) int { return cmp.Compare(c.ID, id) })
	if !ok {
		return Checkpoint{}, false
	}
	return l[i], true
}

func (l checkpointList) byName(name string) (Checkpoint, bool) {
	for _, c := range slices.Backward(l) { // the newest are asked for most
		if c.Name == name {
			return c, true
		}
	}
	return Checkpoint{}, false
}

// ancestors returns a checkpoint and all that it descends from.
func (l checkpointList) ancestors(id CheckpointID) map[CheckpointID]bool {
	all := map[CheckpointID]bool{}
	for id != 0 && !all[id] {
		all[id] = true
		c, _ := l.byID(id)
		id = c.Parent
	}
	return all
}

// Freed is what deleting a checkpoint frees: what only it can see.
type Freed struct {
	Rows  int64 // of the past: names, attributes, places of bytes; and answers held for mounts
	Bytes int64 // of content that nothing else refers to, each once; the disk gets it back with the segments it lies in
}

// DeleteCheckpoint removes a checkpoint and what only it can see. Those that
// descend from it then descend from its parent. With dryRun it only says what
// that would free.
func (w *Workspace) DeleteCheckpoint(ctx context.Context, ref string, dryRun bool) (Freed, error) {
	if err := w.Flush(); err != nil {
		return Freed{}, diskError("delete checkpoint", err)
	}
	t := w.tree
	t.mu.RLock()
	c, err := t.checkpoints.find(ref)
	gap := t.checkpoints.gap(c, t.count.Version)
	t.mu.RUnlock()
	if err != nil {
		return Freed{}, err
	}
	freed, err := t.measure(ctx, c, gap)
	if err != nil || dryRun {
		return freed, err
	}
	return freed, t.drop(c.ID)
}

// drop removes a checkpoint. One that is gone is no error.
func (t *Tree) drop(id CheckpointID) error {
	if _, err := t.enter(Caller{}); err != nil {
		return diskError("delete checkpoint", err)
	}
	defer t.leave()
	c, ok := t.checkpoints.byID(id)
	if !ok {
		return nil
	}
	o := op{kind: opDropCheckpoint, time: t.now(), n: int64(id)}
	if err := t.commit(&o, nil, nil); err != nil {
		return diskError("delete checkpoint", err)
	}
	t.notifyCheckpoint(c, true)
	return nil
}

// span is a range of versions: from is not in it, to is.
type span struct{ from, to uint64 }

// gap returns the versions between the neighbours of a checkpoint, of which the present (at version now) is one. Only
// this checkpoint sees rows that were born and died in it.
func (l checkpointList) gap(c Checkpoint, now uint64) span {
	s := span{0, now}
	for _, o := range l {
		if o.ID < c.ID {
			s.from = o.version
		} else if o.ID > c.ID {
			s.to = o.version
			break
		}
	}
	return s
}

// measure counts what only a checkpoint needs: what lies in its gap, and what
// it holds of mounts.
func (t *Tree) measure(ctx context.Context, c Checkpoint, s span) (f Freed, err error) {
	if c.Mounts {
		held, err := t.heldMounts(ctx, c)
		if err != nil {
			return f, err
		}
		mounts, err := unpackMounts(held)
		if err != nil {
			return f, err
		}
		for _, m := range mounts {
			f.Rows += int64(1 + len(m.answers))
		}
	}
	args := []any{int64(s.from), int64(s.to)}
	err = t.index.db.Read(ctx, func(tx *db.Tx) error {
		for _, table := range pastTables {
			err := tx.Query("SELECT count(*) FROM "+table+" WHERE "+inGap, args, func(r *db.Row) error { f.Rows += r.Int64(0); return nil })
			if err != nil {
				return err
			}
		}
		f.Bytes, err = onlyInGap(tx, args)
		return err
	})
	return f, err
}

// onlyInGap counts the bytes of content that only rows of a gap refer to, each
// once: files share them, and of a record some parts may live on.
func onlyInGap(tx *db.Tx, gap []any) (bytes int64, err error) {
	const parts = "SELECT e.segment, e.place, e.delta, e.len, "
	const shared = " FROM (SELECT DISTINCT segment, place FROM past_extent WHERE " + inGap + ") g CROSS JOIN "
	const same = " e ON e.segment = g.segment AND e.place = g.place"
	var segment, place, at, dead, live int64 // at, and up to where the rows until now reach
	upTo := func(next int64) {
		bytes += max(0, min(dead, next)-max(live, at))
		at = next
	}
	err = tx.Query(parts+"0 FROM past_extent e WHERE "+inGap+
		" UNION ALL "+parts+"1"+shared+"extent"+same+
		" UNION ALL "+parts+"1"+shared+"past_extent"+same+" AND NOT ("+inGap+") ORDER BY 1, 2, 3", gap, func(r *db.Row) error {
		if s, p := r.Int64(0), r.Int64(1); s != segment || p != place {
			upTo(math.MaxInt64)
			segment, place, at, dead, live = s, p, 0, 0, 0
		}
		upTo(r.Int64(2))
		if end := at + r.Int64(3); r.Int64(4) == 0 {
			dead = max(dead, end)
		} else {
			live = max(live, end)
		}
		return nil
	})
	upTo(math.MaxInt64)
	return bytes, err
}

// pastTables hold what checkpoints see and the present does not.
var pastTables = []string{"past_inode", "past_entry", "past_extent", "past_xattr", "past_dir"}

// inGap is true for the rows of the past that were born and died in a gap
// between two checkpoints: ?1 and ?2 are its span.
const inGap = "died > ?1 AND died <= ?2 AND born > ?1"

func (t *memory) applyDropCheckpoint(o *op) error {
	c, ok := t.checkpoints.byID(CheckpointID(o.n))
	if !ok {
		return fmt.Errorf("%w: no checkpoint %d", errApply, o.n)
	}
	t.batch.dropped = append(t.batch.dropped, droppedCheckpoint{c, t.checkpoints.gap(c, t.count.Version)})
	t.checkpoints = slices.DeleteFunc(t.checkpoints, func(o Checkpoint) bool { return o.ID == c.ID })
	for i := range t.checkpoints {
		if t.checkpoints[i].Parent == c.ID {
			t.checkpoints[i].Parent = c.Parent
		}
	}
	if t.count.Head == uint64(c.ID) {
		t.count.Head = uint64(c.Parent)
	}
	if s := t.count.Stale; s > 0 && c.version+1 >= s {
		t.count.Stale = staleLost
	}
	return nil
}

// newCheckpoint is one that a batch adds, with what it holds of mounts.
type newCheckpoint struct {
	Checkpoint
	mounts []byte
}

// droppedCheckpoint is one that a batch removes.
type droppedCheckpoint struct {
	Checkpoint
	gap span
}

// writeCheckpoints comes after the rows of the past, which a dropped
// checkpoint may have been the only one to see.
func (r *rows) writeCheckpoints(tx *db.Tx) error {
	for _, c := range r.batch.checkpoints {
		err := tx.Exec("INSERT OR REPLACE INTO checkpoint(id, name, parent, auto, reason, run, flushed, time, generation, version, next_ino, files, bytes, mounts)"+
			" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", int64(c.ID), c.Name, int64(c.Parent), c.Auto, c.Reason, c.Run, c.Flushed,
			c.CreatedAt.UnixNano(), int64(c.Generation), int64(c.version), int64(c.nextIno), c.Files, c.Bytes, c.mounts)
		if err != nil {
			return err
		}
	}
	for _, c := range r.batch.dropped {
		if err := tx.Exec("DELETE FROM checkpoint WHERE id = ?", int64(c.ID)); err != nil {
			return err
		}
		if err := tx.Exec("UPDATE checkpoint SET parent = ?2 WHERE parent = ?1", int64(c.ID), int64(c.Parent)); err != nil {
			return err
		}
		for _, table := range pastTables {
			if err := tx.Exec("DELETE FROM "+table+" WHERE "+inGap, int64(c.gap.from), int64(c.gap.to)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoints returns the rows, oldest first.
func (x *index) checkpoints() (all []Checkpoint, err error) {
	err = x.rows("SELECT id, name, parent, auto, reason, run, flushed, time, generation, version, next_ino, files, bytes, coalesce(length(mounts), 0) FROM checkpoint ORDER BY id", nil,
		func(s *db.Stmt) bool {
			all = append(all, Checkpoint{ID: CheckpointID(s.ColumnInt64(0)), Name: columnString(s, 1), Parent: CheckpointID(s.ColumnInt64(2)),
				CheckpointNote: CheckpointNote{s.ColumnInt64(3) != 0, columnString(s, 4), columnString(s, 5), s.ColumnInt64(6) != 0},
				CreatedAt:      time.Unix(0, s.ColumnInt64(7)).UTC(), Generation: uint64(s.ColumnInt64(8)), version: uint64(s.ColumnInt64(9)),
				nextIno: Ino(s.ColumnInt64(10)), Files: s.ColumnInt64(11), Bytes: s.ColumnInt64(12), Mounts: s.ColumnInt64(13) > 0})
			return true
		})
	return all, err
}
