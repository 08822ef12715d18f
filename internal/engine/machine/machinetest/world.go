package machinetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

// diskMB is the initial size of the disks under test, MiB, unless they lie over a root.
const diskMB = 64

var checksums = maphash.MakeSeed()

// world is a machine with known content in memory and on disk, and its snapshots.
type world struct {
	*lab
	engine machine.Engine
	m      machine.Machine
	count  int
	diskMB int               // of its disk, MiB
	frozen map[string]uint64 // path → checksum of files that must not change
}

// newWorld boots a machine with a disk.
func newWorld(t *testing.T, l *lab) *world {
	t.Helper()
	w := &world{lab: l, engine: l.Open(t), diskMB: diskMB, frozen: map[string]uint64{}}
	base, err := l.Root, error(nil)
	if base == "" {
		base = filepath.Join(l.root, "base.raw")
		err = errors.Join(os.WriteFile(base, nil, 0o600), os.Truncate(base, diskMB<<20))
	} else {
		w.diskMB, err = l.rootMB()
	}
	if err != nil {
		t.Fatal(err)
	}
	spec := l.diskless()
	spec.Disk = w.path("disk")
	if err := w.engine.CreateDisk(t.Context(), spec.Disk, machine.Base{Path: base}, w.diskMB); err != nil {
		t.Fatal(err)
	}
	w.m = l.launch(t, w.engine, spec)
	w.says(t, w.m, "keep begun", "begun,")
	w.says(t, w.m, "write 1 begun", "begun")
	return w
}

// path returns an unused path.
func (w *world) path(what string) string {
	w.count++
	return filepath.Join(w.root, fmt.Sprint(what, "-", w.count))
}

// ask sends a request to the guest. Stale bytes may precede the answer.
func (w *world) ask(t *testing.T, m machine.Machine, request string) string {
	t.Helper()
	said, err := Ask(t.Context(), m, request)
	if err != nil {
		t.Fatalf("ask %q: %v", request, err)
	}
	return said
}

// Ask sends a request about memory or disk to the stand-in of [Guest]; its file
// state.go lists the requests.
func Ask(ctx context.Context, m machine.Machine, request string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := m.Dial(ctx, machine.PortControl)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	nonce := rand.Text()
	if _, err := fmt.Fprintf(conn, "\n%s\n!%s\n", nonce, request); err != nil {
		return "", err
	}
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line != nonce+"\n" {
			continue
		}
		if line, err = lines.ReadString('\n'); err != nil {
			return "", err
		}
		said, ok := strings.CutPrefix(strings.TrimSpace(line), "ok")
		if !ok {
			return "", errors.New(line)
		}
		return strings.TrimSpace(said), nil
	}
}

// says fails the test unless the guest gives that answer.
func (w *world) says(t *testing.T, m machine.Machine, request, want string) {
	t.Helper()
	if got := w.ask(t, m, request); got != want {
		t.Errorf("%s: %q, want %q", request, got, want)
	}
}

// counts fails the test unless the guest's counter is at least least and grows.
// It returns the counter.
func (w *world) counts(t *testing.T, m machine.Machine, least int64) int64 {
	t.Helper()
	read := func() int64 {
		n, err := strconv.ParseInt(w.ask(t, m, "count"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := read()
	if first < least {
		t.Errorf("the counter went back to %d, it was %d", first, least)
	}
	last := first
	waitFor(t, "the counter", func() bool { last = read(); return last > first })
	return last
}

// snapshot is a snapshot and the disk that was frozen with it.
type snapshot struct {
	dir, disk string
	report    machine.SnapshotReport
}

// snapshot takes a snapshot; change may be nil.
func (w *world) snapshot(t *testing.T, m machine.Machine, change func(*machine.SnapshotSpec)) snapshot {
	t.Helper()
	spec := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
	if change != nil {
		change(&spec)
	}
	before := m.Disk()
	r, err := m.Snapshot(t.Context(), spec)
	if err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	if !ended(m) && m.Disk() != spec.Disk {
		t.Errorf("the machine writes to %s", m.Disk())
	}
	t.Logf("%+v", r)
	w.freeze(t, before, filepath.Join(spec.Dir, machine.StateFile))
	for _, part := range machine.MemoryParts(spec.Dir) {
		w.freeze(t, filepath.Join(spec.Dir, part))
	}
	return snapshot{dir: spec.Dir, disk: before, report: r}
}

// fork returns the spec of a machine that continues from a snapshot.
func (w *world) fork(t *testing.T, at snapshot) machine.Spec {
	t.Helper()
	next := w.diskless()
	spec := machine.Spec{ID: next.ID, Dir: next.Dir, Restore: at.dir, Disk: w.path("disk"), Unserved: next.Unserved}
	if err := w.engine.CreateDisk(t.Context(), spec.Disk, machine.Base{Path: at.disk, Format: "qcow2"}, w.diskMB); err != nil {
		t.Fatal(err)
	}
	return spec
}

// forks starts n machines from a snapshot concurrently.
func (w *world) forks(t *testing.T, at snapshot, n int) []machine.Machine {
	t.Helper()
	specs, machines, errs := make([]machine.Spec, n), make([]machine.Machine, n), make([]error, n)
	for i := range specs {
		specs[i] = w.fork(t, at)
	}
	var wg sync.WaitGroup
	for i, spec := range specs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			machines[i], errs[i] = w.engine.Start(ctx, spec)
		})
	}
	wg.Wait()
	for i, m := range machines {
		if errs[i] != nil {
			t.Fatalf("fork %d: %v", i, errs[i])
		}
		w.own(m)
	}
	return machines
}

// freeze records files that must not change.
func (w *world) freeze(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		w.frozen[path] = checksum(t, path)
	}
}

// unchanged fails the test if a frozen file has changed.
func (w *world) unchanged(t *testing.T) {
	t.Helper()
	for path, sum := range w.frozen {
		if checksum(t, path) != sum {
			t.Errorf("%s was frozen and has changed", strings.TrimPrefix(path, w.root+"/"))
		}
	}
}

// checksum returns a checksum of the non-zero pages of a file. It is valid in this process only.
func checksum(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var h maphash.Hash
	h.SetSeed(checksums)
	maphash.WriteComparable(&h, info.Size())
	const size = 4096
	page, zeros := make([]byte, size), make([]byte, size)
	for at := int64(0); at < info.Size(); {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) { // no more data
			break
		}
		hole, err2 := unix.Seek(int(f.Fd()), at, unix.SEEK_HOLE)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		at &^= size - 1
		for r := bufio.NewReaderSize(io.NewSectionReader(f, at, info.Size()-at), 1<<20); at < hole; at += size {
			n, err := io.ReadFull(r, page)
			if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			if !bytes.Equal(page[:n], zeros[:n]) {
				maphash.WriteComparable(&h, at)
				h.Write(page[:n])
			}
		}
	}
	return h.Sum64()
}
