package workspace

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// undo lets one run do some things, and now and then others some more, of
// which many meet those; and takes back what the run did.
func (r *modelRun) undo() {
	r.Helper()
	r.call(&call{kind: "checkpoint"})
	if _, changed := r.w.Present(); changed {
		return // it failed, or was lost in a crash
	}
	r.undos++
	w, before := r.w, r.m.head
	by := Writer{Kind: "run", Name: "agent", Run: fmt.Sprint("undone", r.undos)}
	name := fmt.Sprint("undone", r.undos)
	did := []*call{{kind: "make", c: Caller{Writer: by}, ino: Root, name: name, mode: 0o100644}}
	r.call(did[0])
	for range r.rng.IntN(12) {
		k := r.random()
		k.c.Writer = by
		if !r.work(k) {
			return
		}
		did = append(did, k)
	}
	r.call(&call{kind: "checkpoint"})
	_, made := r.m.nodes[Root].entries[name]
	if _, changed := r.w.Present(); changed || !made || r.w != w {
		return
	}
	undo := &call{kind: "undo", name: by.Run, n: int64(before)}
	if r.rng.IntN(2) == 0 {
		undo.kind, undo.from, undo.mayRefuse = "undo after others", int64(r.m.head), true
		if !r.meddle(did) {
			return
		}
	}
	r.clock.Add(1)
	r.call(undo)
	if undo.left != nil && len(undo.report.Conflicts) > 0 {
		r.count["undo with conflicts"]++
	}
}

// work does a call that is none of the history's, and tells whether the
// workspace is still the same then.
func (r *modelRun) work(k *call) bool {
	r.Helper()
	switch k.kind {
	case "begin", "end", "checkpoint", "drop", "restore":
		return true
	}
	w := r.w
	r.clock.Add(1)
	r.call(k)
	return r.w == w
}

// meddle does other things after a run, many of them the same again.
func (r *modelRun) meddle(did []*call) bool {
	r.Helper()
	for range 1 + r.rng.IntN(8) {
		k := r.random()
		if again := did[r.rng.IntN(len(did))]; r.rng.IntN(2) == 0 {
			c := k.c
			*k = *again
			k.c = c
		}
		if k.kind == "lookup" || k.kind == "forget" {
			k.c.Unique = 0
		}
		k.c.Writer = []Writer{{}, {Kind: "run", Name: "agent", Run: "meddler"}}[r.rng.IntN(2)]
		if !r.work(k) {
			return false
		}
	}
	w := r.w
	r.call(&call{kind: "checkpoint"})
	_, changed := r.w.Present()
	return !changed && r.w == w
}

// undoOn undoes a run, first dry.
func (k *call) undoOn(w *Workspace) error {
	dry, err := w.Undo(context.Background(), k.c, k.name, RestoreOptions{DryRun: true})
	if err != nil {
		return err
	}
	if k.report, err = w.Undo(context.Background(), k.c, k.name, RestoreOptions{}); err != nil {
		return err
	}
	if dry.Before = k.report.Before; !reflect.DeepEqual(dry, k.report) {
		return fmt.Errorf("dry: %v, then %v", dry, k.report)
	}
	return nil
}

// names returns where each inode has its names, and its paths.
func (m *model) names() (names map[Ino]map[dirName]bool, paths map[Ino][]string) {
	names, paths = map[Ino]map[dirName]bool{}, map[Ino][]string{}
	for path, n := range m.paths() {
		paths[n.Ino] = append(paths[n.Ino], path)
		for name, e := range n.entries {
			if names[e.ino] == nil {
				names[e.ino] = map[dirName]bool{}
			}
			names[e.ino][dirName{n.Ino, name}] = true
		}
	}
	return names, paths
}

// undoAfter checks what an undo left: each inode that the run changed is what
// it was before, or is said to be a conflict and is as it is now; all others
// are as they are now.
func (m *model) undoAfter(k *call, b, a modelCheckpoint) error {
	before, after := &model{nodes: b.nodes}, &model{nodes: a.nodes}
	hadNames, hadPaths := before.names()
	leftNames, leftPaths := after.names()
	nowNames, _ := m.names()
	gotNames, _ := k.left.names()
	all := maps.Clone(m.nodes)
	maps.Copy(all, a.nodes)
	maps.Copy(all, b.nodes)
	for ino := range all {
		had, left, now, got := before.nodes[ino], after.nodes[ino], m.nodes[ino], k.left.nodes[ino]
		if had == nil && left == nil && (now == nil || now.Nlink == 0) || ino == Root {
			continue // never had a name that counts
		}
		attrs := had != nil && left != nil && had.differs(left) != ""
		same := maps.Equal(gotNames[ino], nowNames[ino]) && (len(nowNames[ino]) == 0 || got.differs(now) == "")
		if !attrs && (had == nil) == (left == nil) && maps.Equal(hadNames[ino], leftNames[ino]) {
			if !same {
				return fmt.Errorf("inode %d, at %q, which the run did not change, is another", ino, leftPaths[ino])
			}
			continue
		}
		if wrong := undone(had, now, got, hadNames[ino], leftNames[ino], gotNames[ino], attrs); wrong != "" {
			said := slices.ContainsFunc(k.report.Conflicts, func(c Conflict) bool {
				return slices.Contains(hadPaths[ino], c.Path) || slices.Contains(leftPaths[ino], c.Path)
			})
			if !said || !same {
				return fmt.Errorf("inode %d, %q, then %q: %s; conflicts: %v", ino, hadPaths[ino], leftPaths[ino], wrong, k.report.Conflicts)
			}
		}
	}
	return nil
}

// undone says what of an inode that a run changed is not as it was.
func undone(had, now, got *modelNode, hadNames, leftNames, gotNames map[dirName]bool, attrs bool) string {
	for name := range hadNames {
		if !leftNames[name] && !gotNames[name] {
			return fmt.Sprintf("name %v did not come back", name)
		}
	}
	for name := range leftNames {
		if !hadNames[name] && gotNames[name] {
			return fmt.Sprintf("name %v is still there", name)
		}
	}
	if had == nil || len(gotNames) == 0 {
		return ""
	}
	if had.IsDir() && !attrs && now != nil && now.Nlink > 0 {
		return strings.TrimSpace(got.differs(now))
	}
	return got.differs(had)
}
