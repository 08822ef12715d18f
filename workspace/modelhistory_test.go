package workspace

import (
	"context"
	"maps"
	"slices"
	"syscall"

	"holt"
)

// modelCheckpoint is a whole copy of the tree.
type modelCheckpoint struct {
	id, parent CheckpointID
	name       string
	nodes      map[Ino]*modelNode
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
		m.checkpoints = append(m.checkpoints, modelCheckpoint{c.ID, c.Parent, c.Name, r.nodes(v, []Ino{Root})})
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
		c, err := w.Checkpoint(CheckpointOptions{Name: k.name})
		r.n, r.err = int64(c.ID), err
	case "drop":
		_, r.err = w.DeleteCheckpoint(context.Background(), k.name, false)
	}
	if r.err != nil {
		r.err = errnoOfCode(r.err)
	}
	return r
}

func (m *model) doHistory(k *call) (r result) {
	i := slices.IndexFunc(m.checkpoints, func(c modelCheckpoint) bool { return c.name == k.name })
	switch {
	case k.kind == "checkpoint" && i >= 0:
		r.err = syscall.EEXIST
	case k.kind == "checkpoint":
		c := modelCheckpoint{m.nextCheck, m.head, k.name, m.clone().nodes}
		maps.DeleteFunc(c.nodes, func(_ Ino, n *modelNode) bool { return n.Nlink == 0 })
		m.checkpoints = append(m.checkpoints, c)
		m.head, r.n = c.id, int64(c.id)
		m.nextCheck++
	case i < 0:
		r.err = syscall.ENOENT
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
	k.kind = "checkpoint"
	if len(r.m.checkpoints) > 3 && r.rng.IntN(2) == 0 {
		k.kind = "drop"
	}
	return k
}
