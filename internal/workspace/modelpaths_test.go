package workspace

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holt"
)

// What a restore of paths and an undo that meets what came later make of a
// tree, the model does not work out. It says what must hold of it, and goes on
// with what is.

// adopt makes the tree what a call left.
func (m *model) adopt(k *call) {
	for ino, n := range (&model{nodes: k.left.nodes}).clone().nodes {
		if old := m.nodes[ino]; old != nil && old.cookie > n.cookie {
			n.cookie = old.cookie // it has no name any more
		}
		k.left.nodes[ino] = n
	}
	m.nodes, m.next = (&model{nodes: k.left.nodes}).clone().nodes, k.left.next
}

// present reads the tree as it is.
func (r *modelRun) present() *model {
	r.Helper()
	nodes := r.nodes(treeReader{r.t}, append(slices.Collect(maps.Keys(r.t.orphans)), Root))
	cookies := cookiesOf(r.t)
	for ino, n := range nodes {
		if old := r.m.nodes[ino]; old != nil && bytes.Equal(old.content, n.content) {
			n.content = old.content
		}
		n.cookie = cookies[ino].last
		for _, e := range n.entries {
			if below := nodes[e.ino]; below.IsDir() {
				below.parent = ino
			}
		}
	}
	nodes[Root].parent = Root
	return &model{nodes: nodes, next: Ino(r.t.count.NextIno)}
}

// paths returns what is under each path.
func (m *model) paths() map[string]*modelNode {
	all := map[string]*modelNode{}
	var walk func(string, *modelNode)
	walk = func(path string, n *modelNode) {
		all[path] = n
		for name, e := range n.entries {
			walk(strings.TrimSuffix(path, "/")+"/"+name, m.nodes[e.ino])
		}
	}
	walk("/", m.nodes[Root])
	return all
}

// differs says what two inodes have differently, but for numbers, links, and
// times that follow from names.
func (n *modelNode) differs(o *modelNode) string {
	switch {
	case n.Mode != o.Mode || n.UID != o.UID || n.GID != o.GID || n.Rdev != o.Rdev:
		return fmt.Sprintf("attributes %o %d:%d, not %o %d:%d", n.Mode, n.UID, n.GID, o.Mode, o.UID, o.GID)
	case !maps.Equal(n.xattrs, o.xattrs):
		return fmt.Sprintf("extended attributes %q, not %q", n.xattrs, o.xattrs)
	case n.target != o.target || !bytes.Equal(n.content, o.content):
		return "other bytes"
	case !n.IsDir() && n.Mtime != o.Mtime:
		return "another mtime"
	}
	return ""
}

// randomPaths are one or two that are there now or were at a checkpoint, and
// those below them.
func (r *modelRun) randomPaths(c modelCheckpoint) []string {
	all := (&model{nodes: c.nodes}).paths()
	maps.Copy(all, r.m.paths())
	delete(all, "/")
	list := slices.Sorted(maps.Keys(all))
	var some []string
	for range min(len(list), 1+r.rng.IntN(2)) {
		some = append(some, list[r.rng.IntN(len(list))])
	}
	return some
}

// restorePaths checks what a restore of paths left: below them it is as it was
// then, and elsewhere as it is now.
func (m *model) restorePaths(k *call, c modelCheckpoint) error {
	now, then, got := m.paths(), (&model{nodes: c.nodes}).paths(), k.left.paths()
	shared := map[Ino]bool{} // with a name in the paths: its bytes go back for others too
	for path, n := range then {
		if !within(path, k.paths) {
			continue
		}
		shared[n.Ino] = true
		if got[path] == nil {
			return fmt.Errorf("%s did not come back", path)
		}
		if d := got[path].differs(n); d != "" {
			return fmt.Errorf("%s came back with %s", path, d)
		}
	}
	for path, n := range got {
		if within(path, k.paths) && then[path] == nil {
			return fmt.Errorf("%s was not there then", path)
		}
		if !within(path, k.paths) && (now[path] == nil || now[path].Ino != n.Ino) {
			return fmt.Errorf("%s is none of the paths and something else", path)
		}
	}
	for path, n := range now {
		if within(path, k.paths) {
			continue
		}
		if got[path] == nil {
			return fmt.Errorf("%s is none of the paths and gone", path)
		}
		if d := got[path].differs(n); d != "" && !shared[n.Ino] {
			return fmt.Errorf("%s is none of the paths and has %s", path, d)
		}
	}
	return nil
}

// moved tells whether a directory above some path is not the one of then.
func (m *model) moved(paths []string, c modelCheckpoint) bool {
	now, then := m.paths(), (&model{nodes: c.nodes}).paths()
	for _, p := range paths {
		for up := p; up != "/"; {
			up = up[:max(1, strings.LastIndex(up, "/"))]
			if a, b := now[up], then[up]; (a == nil || b == nil || a.Ino != b.Ino) && !within(up, paths) {
				return true
			}
		}
	}
	return false
}

// pathsRestored restores some paths, from any checkpoint.
func (r *modelRun) pathsRestored() {
	r.Helper()
	r.call(&call{kind: "checkpoint"})
	if _, changed := r.w.Present(); changed || len(r.m.checkpoints) == 0 {
		return // it failed
	}
	r.clock.Add(1)
	c := r.m.checkpoints[r.rng.IntN(len(r.m.checkpoints))]
	if paths := r.randomPaths(c); len(paths) > 0 {
		r.call(&call{kind: "restore paths", name: c.name, paths: paths, mayRefuse: r.m.moved(paths, c)})
	}
}

// refused says whether a call was, where it may be.
func (k *call) refused(err error) bool { return k.mayRefuse && holt.CodeOf(err) == holt.Conflict }
