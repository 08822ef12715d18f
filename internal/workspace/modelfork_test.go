package workspace

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// fork forks the workspace at a checkpoint, and goes on with the child or with
// the parent. Of the other nothing is left: neither needs it.
func (r *modelRun) fork() {
	r.Helper()
	if len(r.m.checkpoints) == 0 || r.rng.IntN(2) == 0 {
		if r.call(&call{kind: "checkpoint", flags: 1}); len(r.m.checkpoints) == 0 {
			return
		}
	}
	c := r.m.checkpoints[r.rng.IntN(len(r.m.checkpoints))]
	if i := slices.IndexFunc(r.m.checkpoints, func(c modelCheckpoint) bool { return len(c.epochs) > 0 }); i >= 0 && r.rng.IntN(2) == 0 {
		c = r.m.checkpoints[i]
	}
	r.images++
	dir := filepath.Join(r.TempDir(), fmt.Sprint("fork", r.images))
	r.count["fork"]++
	mounts := c.all != nil && r.rng.IntN(4) > 0
	if mounts && len(c.epochs) > 0 {
		r.count["fork with mounts"]++
	}
	r.armed, r.faulted = true, false
	_, err := r.w.Fork(context.Background(), dir, ForkOptions{At: c.name, Mounts: mounts})
	r.armed = false
	switch {
	case err != nil && !r.faulted:
		r.Fatal(err)
	case err != nil:
		if _, err := os.Stat(dir); err == nil {
			r.Fatal("a fork that failed left its directory")
		}
	}
	if r.image != nil {
		r.crash(nil, result{})
		return
	}
	if err != nil {
		return
	}
	r.compare() // nothing happened to the parent
	child := r.m.fork(c, mounts)
	parent := r.fixture // it ends with the test
	if r.rng.IntN(3) == 0 {
		g := r.fixture.child(dir)
		r.fixture = g
		r.same(child)
		for _, calls := range child.answers(mounts) {
			for _, k := range calls {
				r.again(k, g.w, child)
			}
		}
		r.same(child)
		g.check()
		r.ok(g.w.Close())
		g.w, r.fixture = nil, parent
		r.ok(os.RemoveAll(dir))
		return
	}
	r.count["go on as a fork"]++
	r.check()
	r.ok(r.w.Close())
	r.ok(os.RemoveAll(r.dir))
	r.dir = dir
	r.open()
	r.ok(r.t.indexSync.wait())
	r.m = child
	r.unacked = maps.Clone(child.answers(mounts))
	for _, calls := range r.unacked {
		for _, k := range calls { // they are kept with the first record of the fork
			r.answers[k] = answer{r.answers[k].result, r.t.journal.End().Segment()}
		}
	}
	r.same(child)
	r.opened()
}

// same compares the workspace with a model.
func (r *modelRun) same(m *model) {
	r.Helper()
	if want, got := m.dump(r.hash), r.state(); want != got {
		r.Fatalf("a fork is not what was forked:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// answers are those that the mounts may ask for again that a fork of the last
// checkpoint goes on with.
func (m *model) answers(mounts bool) map[Epoch][]*call {
	if !mounts {
		return map[Epoch][]*call{}
	}
	return m.checkpoints[len(m.checkpoints)-1].answers
}

// fork returns what a fork of a checkpoint is: that and what came before, with
// no mount open but those that it goes on with.
func (m *model) fork(c modelCheckpoint, mounts bool) *model {
	nodes := c.nodes
	if mounts {
		nodes = c.all
	}
	f := (&model{nodes: nodes, next: c.next, nextEpoch: m.nextEpoch, nextCheck: c.id + 1, head: c.id}).clone()
	f.epochs, f.lookups = map[Epoch]modelEpoch{}, map[Ino]uint64{}
	for _, o := range m.checkpoints {
		if o.id <= c.id {
			f.checkpoints = append(f.checkpoints, o)
		}
	}
	if !mounts {
		return f
	}
	for number, e := range c.epochs {
		e.since = c.next
		f.epochs[number] = e
	}
	if len(f.epochs) == 0 {
		maps.DeleteFunc(f.nodes, func(_ Ino, n *modelNode) bool { return n.Nlink == 0 })
	}
	return f
}

// undo makes the tree what it was before a run, if nobody else did anything
// since. When names changed last is the workspace's business: the times of
// directories, and ctime; and so is atime, which no diff looks at.
func (m *model) undo(k *call, c modelCheckpoint) {
	head := m.head
	m.restore(k, c)
	m.head = head
	for ino, times := range k.times {
		n := m.nodes[ino]
		if n == nil {
			continue
		}
		n.Atime, n.Ctime = times[2], times[1]
		if n.IsDir() {
			n.Mtime = times[0]
		}
	}
}

// timesOf are mtime, ctime and atime of all that has a name.
func timesOf(t *Tree) map[Ino][3]int64 {
	all := []Ino{Root}
	for dir := range cookiesOf(t) {
		_ = t.ReadDir(Caller{}, dir, cookieDotDot, false, func(e DirEntry) bool { all = append(all, e.Ino); return true })
	}
	times := map[Ino][3]int64{}
	for _, ino := range all {
		if a, err := t.GetAttr(ino); err == nil {
			times[ino] = [3]int64{a.Mtime, a.Ctime, a.Atime}
		}
	}
	return times
}
