package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

// guestMemory is the state of a mount in a machine's memory: what its processes
// did, which answers they wait for, and which results they expect. A copy of it
// is the guest in a fork of the machine.
type guestMemory struct {
	t       testing.TB
	id      [16]byte
	ready   bool // INIT was answered
	rng     rand.PCG
	next    uint64 // unique
	asked   map[uint64]request
	workers []worker
	done    int // answers
	again   int // requests that were sent to a second host
}

// request is an unanswered request.
type request struct {
	m       message
	worker  int
	kind    string
	file, b int // what it is about: of files, or of open
	name    string
}

// worker is a process. It does one operation after another in its own directory.
type worker struct {
	name  string
	dir   uint64
	named int
	files []guestFile
	open  []guestFile // without a name
}

type guestFile struct {
	name, second string
	ino          uint64
	content      string
	tagged       bool
	lookups      uint64
}

func newGuestMemory(t testing.TB, seed uint64, workers int) *guestMemory {
	g := &guestMemory{t: t, id: [16]byte{byte(seed), 1}, rng: *rand.NewPCG(seed, 1), next: 1, asked: map[uint64]request{}}
	for i := range workers {
		g.workers = append(g.workers, worker{name: fmt.Sprint("w", i)})
	}
	return g
}

func (g *guestMemory) dice(n int) int { return rand.New(&g.rng).IntN(n) }

// fork copies the memory, with another random seed.
func (g *guestMemory) fork(seed uint64) *guestMemory {
	c := *g
	c.rng, c.asked, c.workers = *rand.NewPCG(seed, 2), map[uint64]request{}, slices.Clone(g.workers)
	for unique, r := range g.asked {
		r.m = slices.Clone(r.m)
		c.asked[unique] = r
	}
	for i := range c.workers {
		c.workers[i].files, c.workers[i].open = slices.Clone(c.workers[i].files), slices.Clone(c.workers[i].open)
	}
	return &c
}

// lowest returns the watermark.
func (g *guestMemory) lowest() uint64 {
	low := g.next
	for unique := range g.asked {
		low = min(low, unique)
	}
	return low
}

// session serves the guest from ws: it sends hello, resends unanswered requests, and calls fn.
func (g *guestMemory) session(ws *workspace.Workspace, fn func(conn net.Conn, frames *channel.FrameReader)) {
	g.t.Helper()
	host, guest := socketPair(g.t)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := Guest(ctx, ws, host, GuestOptions{Log: testLog(g.t)}); err != nil {
			g.t.Errorf("guest session: %v", err)
		}
	})
	defer serving.Wait()
	defer cancel()
	defer guest.Close()
	frames := channel.NewFrameReader(guest)
	hello := channel.Hello{Mount: g.id, Version: channel.FrameVersion, Fresh: !g.ready}
	g.must(channel.NewFrameWriter(guest).Write(channel.FrameHello, hello.Append(nil)))
	kind, payload, err := frames.Next(nil)
	g.must(err)
	if id, err := channel.ParseWelcome(payload); kind != channel.FrameWelcome || err != nil || id != g.id {
		g.t.Fatalf("the mount cannot go on: %d %x %v", kind, id, err)
	}
	if !g.ready {
		g.send(guest, request{m: askInit(31), worker: -1})
		for !g.ready {
			g.receive(frames)
		}
	}
	g.ack(guest)
	for _, unique := range slices.Sorted(func(yield func(uint64) bool) {
		for u := range g.asked {
			if !yield(u) {
				return
			}
		}
	}) {
		g.again++
		g.write(guest, g.asked[unique].m)
	}
	fn(guest, frames)
}

func (g *guestMemory) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guestMemory) write(conn net.Conn, m message) {
	g.t.Helper()
	_, err := conn.Write(append(channel.RequestHeader(nil, 0, "", len(m)), m...))
	g.must(err)
}

func (g *guestMemory) ack(conn net.Conn) {
	g.t.Helper()
	frame := append(binary.LittleEndian.AppendUint32(nil, 9), byte(channel.FrameAck))
	_, err := conn.Write(binary.LittleEndian.AppendUint64(frame, g.lowest()))
	g.must(err)
}

// send numbers a request and sends it.
func (g *guestMemory) send(conn net.Conn, r request) {
	g.t.Helper()
	binary.LittleEndian.PutUint64(r.m[8:], g.next)
	if r.m.opcode() != opForget {
		g.asked[g.next] = r
	}
	g.next++
	g.write(conn, r.m)
}

// work lets the processes work until that many more answers have arrived; other
// requests stay unanswered.
func (g *guestMemory) work(conn net.Conn, frames *channel.FrameReader, answers int) {
	g.t.Helper()
	for until := g.done + answers; g.done < until; {
		busy := map[int]bool{}
		for _, r := range g.asked {
			busy[r.worker] = true
		}
		for i := range g.workers {
			if !busy[i] && (len(g.asked) == 0 || g.dice(3) > 0) {
				g.begin(conn, i)
			}
		}
		if g.dice(20) == 0 {
			g.ack(conn)
		}
		if len(g.asked) > 0 {
			g.receive(frames)
		}
	}
}

// finish waits for all answers.
func (g *guestMemory) finish(_ net.Conn, frames *channel.FrameReader) {
	for len(g.asked) > 0 {
		g.receive(frames)
	}
}

// begin makes a process send a request that would fail, or leave a trace, if it
// were executed twice or not at all.
func (g *guestMemory) begin(conn net.Conn, i int) {
	g.t.Helper()
	w := &g.workers[i]
	if w.dir == 0 {
		g.send(conn, request{m: ask(opMkdir, 1, uint32(0o755), 4, w.name+"\x00"), worker: i, kind: "dir"})
		return
	}
	fresh := fmt.Sprint("n", w.named)
	if len(w.files) < 2 || len(w.files) < 10 && g.dice(6) == 0 {
		w.named++
		g.send(conn, request{m: ask(opCreate, w.dir, uint32(unix.O_CREAT|unix.O_EXCL), uint32(0o644), 8, fresh+"\x00"), worker: i, kind: "create", name: fresh})
		return
	}
	r := request{worker: i, file: g.dice(len(w.files)), b: g.dice(len(w.files))}
	f := w.files[r.file]
	switch n := g.dice(11); {
	case n == 0:
		r.kind, r.name = "write", fmt.Sprint(" ", g.next)
		r.m = ask(opWrite, f.ino, 8, uint64(len(f.content)), uint32(len(r.name)), 20, r.name)
	case n == 1:
		r.kind, r.m = "unlink", ask(opUnlink, w.dir, f.name+"\x00")
	case n == 2:
		w.named++
		r.kind, r.name, r.m = "rename", fresh, ask(opRename2, w.dir, w.dir, uint32(unix.RENAME_NOREPLACE), 4, f.name+"\x00"+fresh+"\x00")
	case n == 3 && r.file != r.b:
		r.kind, r.m = "exchange", ask(opRename2, w.dir, w.dir, uint32(unix.RENAME_EXCHANGE), 4, f.name+"\x00"+w.files[r.b].name+"\x00")
	case n == 4 && f.tagged:
		r.kind, r.m = "untag", ask(opRemovexattr, f.ino, "user.tag\x00")
	case n == 4:
		r.kind, r.m = "tag", ask(opSetxattr, f.ino, uint32(1), uint32(unix.XATTR_CREATE), uint64(0), "user.tag\x00x")
	case n == 5 && f.second == "":
		w.named++
		r.kind, r.name, r.m = "link", fresh, ask(opLink, w.dir, f.ino, fresh+"\x00")
	case n == 5:
		r.kind, r.m = "unlink second", ask(opUnlink, w.dir, f.second+"\x00")
	case n == 6:
		r.kind, r.m = "lookup", ask(opLookup, w.dir, f.name+"\x00")
	case n == 7:
		r.kind, r.m = "stat", ask(opGetattr, f.ino, 16)
	case n == 8 && len(w.open) > 2:
		o := w.open[0]
		w.open = w.open[1:]
		g.send(conn, request{m: ask(opForget, o.ino, o.lookups)})
		return
	case n >= 8 && len(w.open) > 0:
		r.file = g.dice(len(w.open))
		r.kind, r.m = "read open", ask(opRead, w.open[r.file].ino, 8, uint64(0), uint32(4096), 20)
	default:
		r.kind, r.m = "read", ask(opRead, f.ino, 8, uint64(0), uint32(4096), 20)
	}
	g.send(conn, r)
}

// receive handles one answer.
func (g *guestMemory) receive(frames *channel.FrameReader) {
	g.t.Helper()
	kind, b, err := frames.Next(nil)
	g.must(err)
	if kind != channel.FrameReply {
		g.t.Fatalf("a frame of kind %d", kind)
	}
	unique := binary.LittleEndian.Uint64(b[8:])
	r, ok := g.asked[unique]
	if !ok {
		g.t.Fatalf("an answer to request %d, which nobody waits for", unique)
	}
	delete(g.asked, unique)
	g.done++
	if errno := -int32(binary.LittleEndian.Uint32(b[4:])); errno != 0 {
		g.t.Fatalf("%s %q of request %d: %v", r.kind, r.name, unique, syscall.Errno(errno))
	}
	if r.worker < 0 {
		g.ready = true
		return
	}
	g.learn(&g.workers[r.worker], r, b[outHeaderSize:])
}

// learn records and checks the content of an answer.
func (g *guestMemory) learn(w *worker, r request, body []byte) {
	g.t.Helper()
	node := func() uint64 { return binary.LittleEndian.Uint64(body) }
	want := func(got, want any) {
		g.t.Helper()
		if got != want {
			g.t.Fatalf("%s of %s, request %d: got %v, want %v", r.kind, w.name, r.m.unique(), got, want)
		}
	}
	switch r.kind {
	case "dir":
		w.dir = node()
		return
	case "create":
		w.files = append(w.files, guestFile{name: r.name, ino: node(), lookups: 1})
		return
	case "read open":
		want(string(body), w.open[r.file].content)
		return
	}
	f := &w.files[r.file]
	switch r.kind {
	case "write":
		want(int(binary.LittleEndian.Uint32(body)), len(r.name))
		f.content += r.name
	case "unlink":
		if f.second != "" {
			f.name, f.second = f.second, ""
			return
		}
		w.open = append(w.open, *f)
		w.files = slices.Delete(w.files, r.file, r.file+1)
	case "rename":
		f.name = r.name
	case "exchange":
		f.name, w.files[r.b].name = w.files[r.b].name, f.name
	case "tag", "untag":
		f.tagged = !f.tagged
	case "link":
		want(node(), f.ino)
		f.second = r.name
		f.lookups++
	case "unlink second":
		f.second = ""
	case "lookup":
		want(node(), f.ino)
		f.lookups++
	case "stat":
		links := uint32(1)
		if f.second != "" {
			links = 2
		}
		want(binary.LittleEndian.Uint32(body[80:]), links)
	case "read":
		want(string(body), f.content)
	}
}

// inspect checks that a workspace has the state that its guest expects. No
// request may be unanswered.
func (g *guestMemory) inspect(ws *workspace.Workspace) {
	g.t.Helper()
	t := ws.Tree()
	read := func(ino uint64, content string) {
		g.t.Helper()
		b := make([]byte, len(content)+1)
		if n, err := t.Read(workspace.Ino(ino), 0, b); err != nil || string(b[:n]) != content {
			g.t.Fatalf("inode %d holds %q, want %q: %v", ino, b[:n], content, err)
		}
	}
	for _, w := range g.workers {
		var want, got []string
		for _, f := range w.files {
			want = append(want, fmt.Sprint(f.name, " ", f.ino))
			if f.second != "" {
				want = append(want, fmt.Sprint(f.second, " ", f.ino))
			}
			read(f.ino, f.content)
			if _, err := t.GetXattr(workspace.Ino(f.ino), "user.tag"); (err == nil) != f.tagged {
				g.t.Fatalf("tag of %s/%s: %v", w.name, f.name, err)
			}
		}
		for _, f := range w.open {
			read(f.ino, f.content)
		}
		g.must(t.ReadDir(workspace.Caller{}, workspace.Ino(w.dir), 2, false, func(e workspace.DirEntry) bool {
			got = append(got, fmt.Sprint(e.Name, " ", e.Ino))
			return true
		}))
		slices.Sort(want)
		if slices.Sort(got); !slices.Equal(got, want) {
			g.t.Fatalf("%s holds %q, want %q", w.name, got, want)
		}
	}
}

// snapshot is a guest's memory and the checkpoint of its workspace at the same instant.
type snapshot struct {
	memory     *guestMemory
	checkpoint string
}

// life is a workspace and its guest, through forks and crashes.
type life struct {
	t         *testing.T
	ws        *workspace.Workspace
	dir       string
	guest     *guestMemory
	snapshots []snapshot // that can be gone back to
	dice      *rand.Rand
	made      int
}

// lifeOptions keep everything in the journal, so that the directory is what a crash would leave.
func lifeOptions(t testing.TB) workspace.Options {
	return workspace.Options{Log: testLog(t), FlushInterval: time.Hour, FlushOps: 1 << 30, SegmentSize: 1 << 20}
}

func (l *life) fresh() string {
	l.made++
	return filepath.Join(l.t.TempDir(), fmt.Sprint("ws", l.made))
}

// fork makes a workspace from a snapshot and continues its guest there.
func (l *life) fork(m snapshot) (*workspace.Workspace, string, *guestMemory) {
	l.t.Helper()
	dir := l.fresh()
	if _, err := l.ws.Fork(context.Background(), dir, workspace.ForkOptions{At: m.checkpoint, Mounts: true}); err != nil {
		l.t.Fatal(err)
	}
	ws, err := workspace.Open(dir, lifeOptions(l.t))
	if err != nil {
		l.t.Fatal(err)
	}
	g := m.memory.fork(l.dice.Uint64())
	g.session(ws, func(conn net.Conn, frames *channel.FrameReader) {
		g.work(conn, frames, 5+l.dice.IntN(60))
		if l.dice.IntN(2) == 0 {
			g.finish(conn, frames)
		}
	})
	return ws, dir, g
}

// end checks a workspace, and that it keeps nothing once its guest is gone.
func (l *life) end(ws *workspace.Workspace, dir string, g *guestMemory) {
	l.t.Helper()
	g.session(ws, g.finish)
	g.inspect(ws)
	endEpochs(l.t, ws)
	check(l.t, ws)
	if err := errors.Join(ws.Close(), os.RemoveAll(dir)); err != nil {
		l.t.Fatal(err)
	}
}

// crash continues with what a crash leaves.
func (l *life) crash() {
	l.t.Helper()
	dir := l.fresh()
	if err := os.CopyFS(dir, os.DirFS(l.dir)); err != nil {
		l.t.Fatal(err)
	}
	if l.dice.IntN(3) == 0 { // and the index is gone
		all, err := filepath.Glob(filepath.Join(dir, "index.db*"))
		for _, name := range all {
			err = errors.Join(err, os.Remove(name))
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "unsynced")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	ws, err := workspace.Open(dir, lifeOptions(l.t))
	if err == nil {
		err = errors.Join(l.ws.Close(), os.RemoveAll(l.dir))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.ws, l.dir = ws, dir
}

// TestSnapshotsOfAGuest runs a guest, copies its memory at a random time with a
// checkpoint of the same instant, and continues the copy in a fork, at once or
// after the original has done other work. In both each request must be executed
// exactly once.
func TestSnapshotsOfAGuest(t *testing.T) {
	cycles := 12
	if os.Getenv("HOLT_SOAK") != "" {
		cycles = 100
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	l := &life{t: t, dice: rand.New(rand.NewPCG(seed, 3)), guest: newGuestMemory(t, seed, 8)}
	l.dir = l.fresh()
	var err error
	if l.ws, err = workspace.Create(l.dir, lifeOptions(t)); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for n := range cycles {
		l.guest.session(l.ws, func(conn net.Conn, frames *channel.FrameReader) {
			l.guest.work(conn, frames, 20+l.dice.IntN(150))
			name := fmt.Sprint("snapshot", n)
			if _, err := l.ws.Checkpoint(workspace.CheckpointOptions{Name: name, Mounts: true, Synced: n%2 == 0}); err != nil {
				t.Fatal(err)
			}
			l.snapshots = append(l.snapshots, snapshot{l.guest.fork(seed), name})
			l.guest.work(conn, frames, 1+l.dice.IntN(40))
		})
		m := l.snapshots[len(l.snapshots)-1-l.dice.IntN(min(3, len(l.snapshots)))]
		ws, dir, g := l.fork(m)
		count["requests in flight at the instant"] += len(m.memory.asked)
		switch l.dice.IntN(3) {
		case 0: // the fork is the one to go on with; later snapshots are not in it
			count["go on as the fork"]++
			i := slices.IndexFunc(l.snapshots, func(o snapshot) bool { return o.checkpoint == m.checkpoint })
			l.snapshots = l.snapshots[:i+1]
			l.ws, ws, l.dir, dir, l.guest, g = ws, l.ws, dir, l.dir, g, l.guest
		case 1:
			count["crash"]++
			l.crash()
		}
		l.end(ws, dir, g)
	}
	l.end(l.ws, l.dir, l.guest)
	t.Logf("counts: %d snapshots: %v", cycles, count)
	if count["requests in flight at the instant"] == 0 {
		t.Error("nothing was ever in flight; the test shows nothing")
	}
}

// TestMountUnknownInPlainFork: a fork without mounts has none.
func TestMountUnknownInPlainFork(t *testing.T) {
	ws := newWorkspace(t)
	g := newGuestMemory(t, 1, 2)
	g.session(ws, func(conn net.Conn, frames *channel.FrameReader) { g.work(conn, frames, 20) })
	dir := filepath.Join(t.TempDir(), "fork")
	if _, err := ws.Fork(context.Background(), dir, workspace.ForkOptions{}); err != nil {
		t.Fatal(err)
	}
	child, err := workspace.Open(dir, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	host, guest := socketPair(t)
	defer guest.Close()
	go Guest(t.Context(), child, host, GuestOptions{Log: testLog(t)})
	hello := channel.Hello{Mount: g.id, Version: channel.FrameVersion}
	if err := channel.NewFrameWriter(guest).Write(channel.FrameHello, hello.Append(nil)); err != nil {
		t.Fatal(err)
	}
	_, payload, err := channel.NewFrameReader(guest).Next(nil)
	if err != nil || strings.Trim(string(payload), "\x00") != "" {
		t.Fatalf("welcomed as %x, %v", payload, err)
	}
}
