package workspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"holt"
)

// modelCheckpoint is a whole copy of the tree.
type modelCheckpoint struct {
	id, parent CheckpointID
	name       string
	nodes      map[Ino]*modelNode
	next       Ino // no inode of it has this number or a higher one

	all     map[Ino]*modelNode   // with what is open and has no name; nil: it holds no mounts
	epochs  map[Epoch]modelEpoch // of guests
	answers map[Epoch][]*call    // that they may ask for again
}

// reader is what Tree and View have in common.
type reader interface {
	GetAttr(Ino) (Attr, error)
	ListXattr(Ino) ([]string, error)
	GetXattr(Ino, string) ([]byte, error)
	Readlink(Ino) (string, error)
	Read(Ino, int64, []byte) (int, error)
	ReadDir(Ino, uint64, bool, func(DirEntry) bool) error
}

type treeReader struct{ *Tree }

func (t treeReader) ReadDir(ino Ino, cookie uint64, plus bool, fn func(DirEntry) bool) error {
	return t.Tree.ReadDir(Caller{}, ino, cookie, plus, fn)
}

// nodes reads all that can be reached.
func (r *modelRun) nodes(t reader, todo []Ino) map[Ino]*modelNode {
	r.Helper()
	nodes := map[Ino]*modelNode{}
	for len(todo) > 0 {
		ino := todo[0]
		todo = todo[1:]
		if nodes[ino] != nil {
			continue
		}
		n := r.node(t, ino)
		nodes[ino] = n
		for _, e := range n.entries {
			todo = append(todo, e.ino)
		}
	}
	return nodes
}

// history reads the checkpoints of the workspace into m.
func (r *modelRun) history(m *model) {
	r.Helper()
	for _, c := range r.w.Checkpoints() {
		v, err := r.w.At(c.Name)
		r.ok(err)
		m.checkpoints = append(m.checkpoints, modelCheckpoint{c.ID, c.Parent, c.Name, r.nodes(v, []Ino{Root}), c.nextIno, nil, nil, nil})
		if c.Mounts {
			m.checkpoints[len(m.checkpoints)-1].all = map[Ino]*modelNode{}
		}
	}
}

// errnoOfCode says an error of the history's as the model does.
func errnoOfCode(err error) error {
	switch holt.CodeOf(err) {
	case holt.AlreadyExists:
		return syscall.EEXIST
	case holt.NotFound:
		return syscall.ENOENT
	}
	return err
}

func (k *call) onHistory(w *Workspace) (r result) {
	switch k.kind {
	case "checkpoint":
		c, err := w.Checkpoint(CheckpointOptions{Name: k.name, Mounts: k.flags != 0})
		r.n, r.err = int64(c.ID), err
	case "drop":
		_, r.err = w.DeleteCheckpoint(context.Background(), k.name, false)
	case "restore":
		_, r.err = w.Restore(context.Background(), k.c, k.name, RestoreOptions{})
		k.cookies = cookiesOf(w.Tree())
	case "restore paths":
		_, r.err = w.Restore(context.Background(), k.c, k.name, RestoreOptions{Paths: k.paths})
	case "undo after others":
		r.err = k.undoOn(w)
	case "undo":
		var report Report
		if report, r.err = w.Undo(context.Background(), k.c, k.name, RestoreOptions{}); r.err == nil && len(report.Conflicts) > 0 {
			r.err = fmt.Errorf("conflicts: %v", report.Conflicts)
		}
		k.cookies, k.times = cookiesOf(w.Tree()), timesOf(w.Tree())
	}
	if r.err != nil {
		r.err = errnoOfCode(r.err)
	}
	return r
}

func (m *model) doHistory(k *call) (r result) {
	i := slices.IndexFunc(m.checkpoints, func(c modelCheckpoint) bool {
		if strings.HasPrefix(k.kind, "undo") {
			return int64(c.id) == k.n
		}
		return c.name == k.name
	})
	switch {
	case k.kind == "checkpoint" && i >= 0:
		r.err = syscall.EEXIST
	case k.kind == "checkpoint":
		c := modelCheckpoint{m.nextCheck, m.head, cmp.Or(k.name, fmt.Sprint("auto-", m.nextCheck)), m.clone().nodes, m.next, nil, nil, nil}
		if k.flags != 0 {
			c.all, c.epochs, c.answers = m.clone().nodes, maps.Clone(m.epochs), maps.Clone(k.answers)
			maps.DeleteFunc(c.epochs, func(_ Epoch, e modelEpoch) bool { return e.kind != GuestMount })
			maps.DeleteFunc(c.answers, func(e Epoch, _ []*call) bool { _, held := c.epochs[e]; return !held })
		}
		maps.DeleteFunc(c.nodes, func(_ Ino, n *modelNode) bool { return n.Nlink == 0 })
		m.checkpoints = append(m.checkpoints, c)
		m.head, r.n = c.id, int64(c.id)
		m.nextCheck++
	case i < 0:
		r.err = syscall.ENOENT
	case k.kind == "restore":
		m.restore(k, m.checkpoints[i])
	case k.kind == "restore paths":
		if r.err = m.restorePaths(k, m.checkpoints[i]); r.err == nil {
			m.adopt(k)
		}
	case k.kind == "undo after others":
		after := slices.IndexFunc(m.checkpoints, func(c modelCheckpoint) bool { return int64(c.id) == k.from })
		if r.err = m.undoAfter(k, m.checkpoints[i], m.checkpoints[after]); r.err == nil {
			m.adopt(k)
		}
	case k.kind == "undo":
		m.undo(k, m.checkpoints[i])
	default:
		c := m.checkpoints[i]
		m.checkpoints = slices.Delete(m.checkpoints, i, i+1)
		for i := range m.checkpoints {
			if m.checkpoints[i].parent == c.id {
				m.checkpoints[i].parent = c.parent
			}
		}
		if m.head == c.id {
			m.head = c.parent
		}
	}
	return r
}

// randomHistory makes up a call of the history; few checkpoints are kept.
func (r *modelRun) randomHistory(k *call) *call {
	k.c = Caller{}
	k.name = string(rune('A' + r.rng.IntN(6)))
	k.kind, k.flags = "checkpoint", r.rng.Uint32N(2)
	switch n := len(r.m.checkpoints); {
	case n > 3 && r.rng.IntN(2) == 0:
		k.kind = "drop"
	case n > 0 && r.rng.IntN(2) == 0:
		k.kind = "restore"
	default:
		return k
	}
	if r.rng.IntN(8) > 0 {
		k.name = r.m.checkpoints[r.rng.IntN(len(r.m.checkpoints))].name
	}
	return k
}

// dirCookies are the last cookie of a directory and those of its entries.
type dirCookies struct {
	last    uint64
	entries map[string]uint64
}

func cookiesOf(t *Tree) map[Ino]dirCookies {
	all := map[Ino]dirCookies{}
	for todo := []Ino{Root}; len(todo) > 0; {
		c := dirCookies{entries: map[string]uint64{}}
		_ = t.ReadDir(Caller{}, todo[0], cookieDotDot, false, func(e DirEntry) bool {
			c.entries[e.Name] = e.Cookie - cookieDotDot
			if e.Mode&syscall.S_IFMT == syscall.S_IFDIR {
				todo = append(todo, e.Ino)
			}
			return true
		})
		t.mu.Lock()
		if d, err := t.getDir(todo[0]); err == nil {
			c.last = d.dir.cookie
		}
		t.mu.Unlock()
		all[todo[0]] = c
		todo = todo[1:]
	}
	return all
}

// restore makes the tree what it was; what is not of it and held by a mount
// stays without a name.
func (m *model) restore(k *call, c modelCheckpoint) {
	for ino, n := range m.nodes {
		switch {
		case c.nodes[ino] != nil || n.Nlink == 0:
		case len(m.epochs) == 0 || m.certain(ino) && m.lookups[ino] == 0:
			delete(m.nodes, ino)
		default:
			if n.Nlink, n.Ctime = 0, k.now; len(n.entries) > 0 {
				n.Mtime, n.Size = k.now, 0
				clear(n.entries)
			}
		}
	}
	for ino, n := range (&model{nodes: c.nodes}).clone().nodes {
		m.nodes[ino] = n
		n.cookie = k.cookies[ino].last
		for name, e := range n.entries {
			n.entries[name] = modelEntry{e.ino, k.cookies[ino].entries[name]}
		}
	}
	m.head = c.id
}
