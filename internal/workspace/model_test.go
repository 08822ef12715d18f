package workspace

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt/internal/store/journal"
)

// TestModel does random operations on a workspace and on a plain tree, with
// every kind of end in between: for 20 seconds beside the package's other tests,
// and in a soak for a minute (see runsOf). -seed repeats a round.
func TestModel(t *testing.T) {
	t.Parallel()
	const calls = 3000  // of a round
	const long = 60_000 // calls of a run that meets everything
	runs, total, did := runsOf(t, 10*time.Second, time.Minute), map[string]int{}, 0
	for seed := runs.seed; seed == runs.seed || !runs.one && !runs.over(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := newModelRun(t, seed)
			for r.did < calls && !t.Failed() && !runs.over() {
				r.step()
			}
			r.compare()
			for k, n := range r.count {
				total[k] += n
			}
			did += r.did
		})
		if t.Failed() {
			t.Fatalf("repeat with -run TestModel -seed %d", seed)
		}
	}
	for _, kind := range everyKind {
		if did > long && total[kind] == 0 {
			t.Errorf("%d calls, and no %s", did, kind)
		}
	}
	t.Logf("seeds from %d: %v", runs.seed, total)
}

// everyKind is what a long run does: more than the calls of a tree.
var everyKind = []string{"checkpoint", "drop", "restore", "restore paths", "undo", "undo after others", "undo with conflicts",
	"fork", "fork with mounts", "go on as a fork", "collect", "fault", "wreck", "wreck, power"}

// call is one operation with all its arguments.
type call struct {
	kind         string
	c            Caller
	now          int64
	ino, ino2    Ino
	name, name2  string
	mode, flags  uint32
	off, n, from int64
	data         []byte
	set          SetAttrs
	id           byte
	answers      map[Epoch][]*call  // of a checkpoint with mounts (flags 1): what guests may ask for again
	cookies      map[Ino]dirCookies // of a restore: which ones it gives is the workspace's business
	times        map[Ino][3]int64   // of an undo: likewise atime, those of directories, and ctime
	paths        []string           // of a restore of paths
	mayRefuse    bool               // because of directories that moved
	report       Report             // of an undo
	left         *model             // the tree after a call of which the model only says what must hold
}

// result is what a call answers, as far as it is compared.
type result struct {
	ino Ino
	n   int64
	err error
}

// answer is a result, and the segment that the journal was in then.
type answer struct {
	result
	segment uint32
}

// on does the call on a workspace.
func (k *call) on(w *Workspace) (r result) {
	t := w.Tree()
	var a Attr
	switch k.kind {
	case "make":
		switch k.mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			a, r.err = t.Create(k.c, k.ino, k.name, k.mode)
		case syscall.S_IFDIR:
			a, r.err = t.Mkdir(k.c, k.ino, k.name, k.mode&07777)
		case syscall.S_IFLNK:
			a, r.err = t.Symlink(k.c, k.ino, k.name, k.name2)
		default:
			a, r.err = t.Mknod(k.c, k.ino, k.name, k.mode, k.flags)
		}
	case "tmpfile":
		a, r.err = t.Tmpfile(k.c, k.ino, k.mode)
	case "link":
		a, r.err = t.Link(k.c, k.ino2, k.ino, k.name)
	case "unlink":
		r.err = t.Unlink(k.c, k.ino, k.name)
	case "rmdir":
		r.err = t.Rmdir(k.c, k.ino, k.name)
	case "rename":
		r.err = t.Rename(k.c, k.ino, k.name, k.ino2, k.name2, k.flags)
	case "setattr":
		a, r.err = t.SetAttr(k.c, k.ino, k.set)
	case "write":
		var n int
		n, r.err = t.Write(k.c, k.ino, k.off, k.data)
		r.n = int64(n)
	case "fallocate":
		r.err = t.Fallocate(k.c, k.ino, k.off, k.n, k.flags)
	case "copy":
		r.n, r.err = t.CopyRange(k.c, k.ino, k.off, k.ino2, k.from, k.n)
	case "setxattr":
		r.err = t.SetXattr(k.c, k.ino, k.name, k.data, k.flags)
	case "delxattr":
		r.err = t.RemoveXattr(k.c, k.ino, k.name)
	case "lookup":
		a, r.err = t.Lookup(k.c, k.ino, k.name)
	case "forget":
		t.Forget(k.c, k.ino, uint64(k.n))
	case "begin":
		var e Epoch
		e, _, r.err = w.BeginEpoch([16]byte{k.id}, []MountKind{HostMount, GuestMount}[k.id%2])
		r.n = int64(e)
	case "end":
		r.err = w.EndEpoch(k.c.Epoch)
	case "checkpoint", "drop", "restore", "restore paths", "undo", "undo after others":
		r = k.onHistory(w)
	}
	r.ino = a.Ino
	return r
}

// model does the call on a model.
func (m *model) do(k *call) (r result) {
	switch k.kind {
	case "make":
		r.ino, r.err = m.make(k)
	case "tmpfile":
		r.ino, r.err = m.tmpfile(k)
	case "link":
		r.ino, r.err = m.link(k)
	case "unlink", "rmdir":
		r.err = m.unlink(k, k.kind == "rmdir")
	case "rename":
		r.err = m.rename(k)
	case "setattr":
		r.ino, r.err = m.setAttr(k)
	case "write":
		r.n, r.err = m.write(k)
	case "fallocate":
		r.err = m.fallocate(k)
	case "copy":
		r.n, r.err = m.copyRange(k)
	case "setxattr":
		r.err = m.setXattr(k)
	case "delxattr":
		r.err = m.delXattr(k)
	case "lookup":
		d, err := m.dir(k.ino)
		if r.err = err; err != nil {
			break
		}
		e, ok := d.entries[k.name]
		if !ok {
			r.err = syscall.ENOENT
			break
		}
		r.ino = e.ino
		m.hold(k.c, e.ino)
	case "forget":
		m.forget(k.ino, uint64(k.n))
	case "begin":
		for number, e := range m.epochs {
			if e.id == k.id {
				return result{n: int64(number)}
			}
		}
		r.n = int64(m.nextEpoch)
		m.epochs[m.nextEpoch] = modelEpoch{id: k.id, kind: []MountKind{HostMount, GuestMount}[k.id%2]}
		m.nextEpoch++
	case "end":
		m.endEpoch(k.c.Epoch)
	case "checkpoint", "drop", "restore", "restore paths", "undo", "undo after others":
		r = m.doHistory(k)
	}
	return r
}

// crash is what a crash would leave.
type crash struct {
	dir   string
	power bool
	rest  bool   // between two calls; else at a failpoint
	base  *model // a state that must not be lost
	since []*call
}

// modelRun is a workspace and the model of it.
type modelRun struct {
	*fixture
	rng   *rand.Rand
	m     *model
	disk  *journal.FaultDisk
	hash  func([]byte) uint64
	clock atomic.Int64
	base  *model  // the state that is known to be synced
	since []*call // what was answered since

	unique  uint64
	unacked map[Epoch][]*call // answered, with a record
	answers map[*call]answer
	armed   bool // faults may happen
	wreck   int  // failpoints until an image is taken; 0: none
	power   bool // of that image
	image   *crash
	faulted bool
	did     int
	count   map[string]int
	last    []string // what was done
	images  int
	undos   int
}

func newModelRun(t *testing.T, seed uint64) *modelRun {
	r := &modelRun{rng: rand.New(rand.NewPCG(seed, 7)), hash: hasher(), disk: journal.NewFaultDisk(), count: map[string]int{},
		unacked: map[Epoch][]*call{}, answers: map[*call]answer{}}
	r.clock.Store(1e18)
	opt := quiet(Options{Disk: r.disk, Fail: r.fail, SegmentSize: 1 << uint(16+r.rng.IntN(6)),
		Now: func() time.Time { return time.Unix(0, r.clock.Load()) }})
	if r.rng.IntN(2) == 0 {
		opt.CacheInodes, opt.CacheEntries, opt.CacheExtents, opt.CacheValues = 8, 16, 16, 300
	}
	r.fixture = newFixture(t, opt)
	r.disk.SetHook(r.hook)
	r.m = newModel(r.clock.Load())
	r.base = r.m.clone()
	return r
}

// step does one random thing.
func (r *modelRun) step() {
	r.did++
	r.clock.Add(1 + r.rng.Int64N(1e6))
	switch n := r.rng.IntN(1000); {
	case n < 12:
		r.count["flush"]++
		r.faulty(r.w.Flush)
	case n < 24:
		r.count["sync"]++
		r.faulty(r.t.Sync)
	case n < 28:
		r.count["collect"]++
		r.faulty(func() error { r.t.collected = 0; return r.t.collect() })
	case n < 31:
		r.restart("close", r.reopen)
	case n < 36:
		r.restart("kill", r.kill)
	case n < 41:
		r.image = r.now(true)
		r.takeImage()
		r.crash(nil, result{})
	case n < 50:
		r.wreck, r.power = 1+r.rng.IntN(4), r.rng.IntN(2) == 0
	case n < 100:
		r.count["read"]++
		r.read()
	case n < 130:
		r.count["readdir"]++
		r.readDir()
	case n < 160:
		r.repeat()
	case n < 165:
		r.compare()
	case n < 168:
		r.fork()
	case n < 171:
		r.undo()
	case n < 180:
		r.pathsRestored()
	default:
		k := r.random()
		if k.kind == "restore" {
			// Of its own it would be a restore's first step, and power could go between the two.
			r.call(&call{kind: "checkpoint"})
			if _, changed := r.w.Present(); changed {
				break
			}
		}
		r.call(k)
	}
	if r.t.journal.Synced() == r.t.journal.End() && len(r.since) > 0 {
		r.base, r.since = r.m.clone(), nil
	}
}

// faulty runs what may meet a fault.
func (r *modelRun) faulty(fn func() error) {
	r.Helper()
	r.armed, r.faulted = true, false
	err := fn()
	r.armed = false
	if err != nil && !r.faulted {
		r.Fatal(err)
	}
	if r.image != nil {
		r.crash(nil, result{})
	}
}

// call does one call on both sides.
func (r *modelRun) call(k *call) {
	r.Helper()
	r.count[k.kind]++
	k.now, k.answers = r.clock.Load(), r.kept()
	end := r.t.journal.End()
	r.armed, r.faulted = k.kind != "forget", false
	got := k.on(r.w)
	r.armed = false
	r.say("%+v: %+v, fault %v, crash %v", k.brief(), got, r.faulted, r.image != nil)
	if got.err != nil && r.faulted {
		r.count["fault"]++
		if r.image != nil {
			r.crash(nil, result{})
		}
		return
	}
	if k.refused(got.err) {
		r.count[k.kind+", refused"]++
		if r.image != nil {
			r.crash(nil, result{})
		}
		return
	}
	if k.kind == "restore paths" || k.kind == "undo after others" {
		k.left = r.present()
	}
	want := r.m.do(k)
	if got != want {
		r.Fatalf("%+v: got %+v, want %+v: %v", k.brief(), got, want, want.err)
	}
	r.since = append(r.since, k)
	if got.err == nil && k.c.Unique != 0 && r.t.journal.End() != end {
		r.answers[k] = answer{got, r.t.journal.End().Segment()}
		r.unacked[k.c.Epoch] = append(r.unacked[k.c.Epoch], k)
	}
	if r.image != nil {
		r.crash(k, got)
	}
}

func (k *call) brief() call {
	b := *k
	b.data, b.answers, b.cookies, b.left = b.data[:min(len(b.data), 20)], nil, nil, nil
	return b
}

// say keeps what was done last, for whoever reads of a failure.
func (r *modelRun) say(format string, args ...any) {
	r.last = append(r.last[max(0, len(r.last)-20):], fmt.Sprintf(format, args...))
}

// kept returns the answers that open mounts may ask for again. Old ones may be
// forgotten: see mostSpan.
func (r *modelRun) kept() map[Epoch][]*call {
	now := r.t.journal.End().Segment()
	all := map[Epoch][]*call{}
	for e, calls := range r.unacked {
		if _, open := r.m.epochs[e]; !open {
			continue
		}
		if calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return now-r.answers[c].segment >= mostSpan }); len(calls) > 0 {
			all[e] = calls
		}
	}
	return all
}

// again asks w, which is as m says, for something that was answered.
func (r *modelRun) again(k *call, w *Workspace, m *model) {
	r.Helper()
	got, want := k.on(w), r.answers[k].result
	r.say("repeated %+v: %+v", k.brief(), got)
	if want.ino != 0 && m.nodes[want.ino] == nil {
		want = result{err: syscall.ENOENT}
	}
	if got != want {
		r.Fatalf("repeated %+v: got %+v, want %+v", k.brief(), got, want)
	}
}

// repeat asks something again that was answered.
func (r *modelRun) repeat() {
	r.count["repeat"]++
	r.unacked = r.kept()
	for e, calls := range r.unacked {
		k := calls[r.rng.IntN(len(calls))]
		r.again(k, r.w, r.m)
		if r.rng.IntN(4) == 0 {
			r.w.Acknowledge(e, k.c.Unique+1)
			calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.c.Unique <= k.c.Unique })
			if r.unacked[e] = calls; len(calls) == 0 {
				delete(r.unacked, e)
			}
		}
		return
	}
}

// compare compares the whole state.
func (r *modelRun) compare() {
	r.Helper()
	r.count["compare"]++
	if want, got := r.m.dump(r.hash), r.state(); want != got {
		r.Fatalf("after %d steps, the last of them\n%s\n%s", r.did, strings.Join(r.last, "\n"), cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// state describes the workspace as model.dump does.
func (r *modelRun) state() string {
	r.Helper()
	nodes := r.nodes(treeReader{r.t}, append(slices.Collect(maps.Keys(r.t.orphans)), Root))
	m := &model{nodes: nodes, next: Ino(r.t.count.NextIno), nextEpoch: Epoch(r.t.count.NextEpoch), epochs: map[Epoch]modelEpoch{}, head: CheckpointID(r.t.count.Head)}
	for number, e := range r.t.epochs {
		m.epochs[number] = modelEpoch{e.id[0], e.kind, e.since}
	}
	r.history(m)
	return m.dump(r.hash)
}

// node reads one inode whole.
func (r *modelRun) node(t reader, ino Ino) *modelNode {
	r.Helper()
	a, err := t.GetAttr(ino)
	r.ok(err)
	a.Blocks = 0 // how bytes lie in records is no business of the model
	n := &modelNode{Attr: a, xattrs: map[string]string{}}
	names, err := t.ListXattr(ino)
	r.ok(err)
	for _, name := range names {
		v, err := t.GetXattr(ino, name)
		r.ok(err)
		n.xattrs[name] = string(v)
	}
	switch a.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		n.content = make([]byte, a.Size)
		got, err := t.Read(ino, 0, n.content)
		r.ok(err)
		if got < len(n.content) {
			r.Fatalf("read %d of %d bytes of inode %d", got, len(n.content), ino)
		}
	case syscall.S_IFLNK:
		n.target, err = t.Readlink(ino)
		r.ok(err)
	case syscall.S_IFDIR:
		n.entries = map[string]modelEntry{}
		r.ok(t.ReadDir(ino, cookieDotDot, r.rng.IntN(2) == 0, func(e DirEntry) bool {
			n.entries[e.Name] = modelEntry{e.Ino, e.Cookie - cookieDotDot}
			return true
		}))
	}
	return n
}

// read compares a piece of a file, and where its holes are.
func (r *modelRun) read() {
	n := r.m.nodes[r.pick(func(n *modelNode) bool { return n.IsRegular() })]
	if n == nil {
		return
	}
	off := r.rng.Int64N(n.Size + 10)
	p := make([]byte, 1+r.rng.IntN(100_000))
	got, err := r.t.Read(n.Ino, off, p)
	r.ok(err)
	if want := n.content[min(off, n.Size):min(off+int64(len(p)), n.Size)]; !bytes.Equal(p[:got], want) {
		r.Fatalf("read %d bytes at %d of inode %d: %d bytes differ from %d", len(p), off, n.Ino, got, len(want))
	}
	data, err := r.t.Lseek(n.Ino, off, SeekData)
	if err == syscall.ENXIO {
		data, err = n.Size, nil
	}
	r.ok(err)
	if off < n.Size && (data < off || len(bytes.Trim(n.content[off:data], "\x00")) > 0) {
		r.Fatalf("inode %d has data between %d and %d", n.Ino, off, data)
	}
	hole, err := r.t.Lseek(n.Ino, off, SeekHole)
	if off < n.Size && (err != nil || hole < off || hole > n.Size || hole < n.Size && n.content[hole] != 0) {
		r.Fatalf("inode %d has no hole at %d: %v", n.Ino, hole, err)
	}
}

// readDir compares a piece of a directory, from any cookie on.
func (r *modelRun) readDir() {
	d := r.m.nodes[r.pick(func(n *modelNode) bool { return n.IsDir() })]
	from, most, k := r.rng.Uint64N(d.cookie+2), 1+r.rng.IntN(20), &call{kind: "lookup"}
	c := r.caller()
	c.Unique = 0
	var got []string
	r.ok(r.t.ReadDir(c, d.Ino, from+cookieDotDot, true, func(e DirEntry) bool {
		if len(got) == most {
			return false
		}
		got = append(got, e.Name)
		return true
	}))
	var want []string
	for _, name := range d.sorted() {
		if e := d.entries[name]; e.cookie > from && len(want) < most {
			want = append(want, name)
			k = &call{kind: "lookup", c: c, ino: d.Ino, name: name}
			r.m.do(k)
			r.since = append(r.since, k)
		}
	}
	if !slices.Equal(got, want) {
		r.Fatalf("readdir of %d from %d: got %q, want %q", d.Ino, from, got, want)
	}
}
