package chunk

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holt"
)

var modelSeed = flag.Uint64("seed", 0, "of TestModel; 0: of the clock")

var errDead = errors.New("the process is dead")

// modelRun applies random changes to an archive and a plain map, with crashes,
// power losses, a lost index and a failing store in between.
type modelRun struct {
	*testing.T
	rng   *rand.Rand
	dir   string
	store *Memory
	fault *Fault
	a     *Archive
	pool  [][]byte
	now   time.Time
	want  map[string]map[string][]int // space, part, numbers of contents

	fuse   int  // failpoints until the crash
	dead   bool // nothing reaches the disk any more
	images int
	synced string // the index as power loss leaves it
	crash  string // the index as the crash left it
	count  map[string]int
}

// HOLT_SOAK=1 makes it take 1,000 steps; -seed repeats a run.
func TestModel(t *testing.T) {
	seed, steps := *modelSeed, 50
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	if os.Getenv("HOLT_SOAK") != "" {
		steps = 1000
	}
	t.Log("seed", seed, "steps", steps)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := &modelRun{T: t, rng: rng, dir: t.TempDir(), store: &Memory{}, now: time.Unix(1, 0),
		want: map[string]map[string][]int{}, count: map[string]int{}}
	r.fault = &Fault{Under: r.store}
	for i := range 60 {
		if i%3 == 0 {
			r.pool = append(r.pool, noise(uint64(i), 1+rng.IntN(120_000)))
		} else {
			r.pool = append(r.pool, text(uint64(i), 1+rng.IntN(30_000)))
		}
	}
	r.open()
	for range steps {
		r.step()
	}
	ok(t, r.a.Close())
	t.Log(r.count)
}

func (r *modelRun) open() {
	r.dead, r.fuse, r.crash = false, 0, ""
	a, err := Open(lazy, r.dir, Options{Store: r.fault, Fail: r.failpoint, Now: func() time.Time { return r.now }, packBytes: 100_000, HotBytes: 1})
	ok(r.T, err)
	r.a = a
	r.image(&r.synced)
}

// image copies the index as it is on the disk now.
func (r *modelRun) image(to *string) {
	if *to != "" {
		ok(r.T, os.RemoveAll(*to))
	}
	r.images++
	*to = filepath.Join(r.TempDir(), fmt.Sprint("image", r.images))
	copyDir(r.T, r.dir, *to)
}

func (r *modelRun) failpoint(point string) error {
	if r.dead {
		return errDead
	}
	if point == "index.committed" || point == "gc.swept" || point == "space.taken" {
		r.image(&r.synced)
	}
	if r.fuse > 0 {
		if r.fuse--; r.fuse == 0 {
			r.dead = true
			r.image(&r.crash)
			return errDead
		}
	}
	return nil
}

// change is one operation: on the archive, and on the map.
type change struct {
	name  string
	real  func() error
	model func(map[string]map[string][]int)
}

func (r *modelRun) pick() change {
	space := fmt.Sprint("s", r.rng.IntN(4))
	part := partName(r.rng.IntN(4))
	switch n := r.rng.IntN(100); {
	case n < 45:
		var numbers []int
		var contents [][]byte
		for range r.rng.IntN(12) {
			i := r.rng.IntN(len(r.pool))
			numbers, contents = append(numbers, i), append(contents, r.pool[i])
		}
		return change{"put", func() error { _, err := put(r.T, r.a, space, part, contents...); return err },
			func(m map[string]map[string][]int) {
				if m[space] == nil {
					m[space] = map[string][]int{}
				}
				m[space][part] = numbers
			}}
	case n < 55:
		return change{"remove", func() error { return r.a.Remove(lazy, space, part) },
			func(m map[string]map[string][]int) { delete(m[space], part) }}
	case n < 62:
		return change{"drop", func() error { return r.a.Drop(lazy, space) },
			func(m map[string]map[string][]int) { delete(m, space) }}
	case n < 72:
		to := fmt.Sprint("s", r.rng.IntN(4))
		return change{"fork", func() error { return r.a.Fork(lazy, space, to) },
			func(m map[string]map[string][]int) { m[to] = maps.Clone(m[space]) }}
	case n < 90:
		horizon := r.now.Add(-time.Duration(r.rng.IntN(3)) * time.Second)
		return change{"collect", func() error { _, err := r.a.Collect(lazy, horizon); return err }, func(map[string]map[string][]int) {}}
	case n < 95:
		return change{"reopen", func() error { err := r.a.Close(); r.open(); return err }, func(map[string]map[string][]int) {}}
	}
	return change{"rebuild", func() error { return r.a.rebuild(lazy) }, func(map[string]map[string][]int) {}}
}

func (r *modelRun) step() {
	r.now = r.now.Add(time.Second)
	c := r.pick()
	r.count[c.name]++
	after := map[string]map[string][]int{}
	for name, parts := range r.want {
		after[name] = maps.Clone(parts)
	}
	c.model(after)
	how := "well"
	if c.name != "reopen" {
		how = []string{"well", "well", "crash", "crash", "fault"}[r.rng.IntN(5)]
	}
	switch how {
	case "crash":
		r.fuse = 1 + r.rng.IntN(12)
	case "fault":
		at := r.rng.IntN(10)
		late := r.rng.IntN(2) == 0
		r.fault.SetHook(func(string, string) Failure {
			if at--; at == 0 {
				return Failure{Err: holt.Errorf(holt.Unavailable, "planned"), Late: late}
			}
			return Failure{}
		})
	}
	err := c.real()
	r.fault.SetHook(nil)
	switch {
	case r.crash != "": // also when the operation was done and only its end was not
		r.recover()
	case err == nil:
		r.want = after
		r.fuse = 0
		if how == "fault" && c.name == "drop" { // the store may still have the space, which a lost index would bring back
			_, err := r.a.Collect(lazy, r.now)
			ok(r.T, err)
		}
		r.same("after "+c.name, after)
		return
	case how == "fault":
		r.count["fault"]++
		if c.name == "rebuild" {
			ok(r.T, r.a.rebuild(lazy))
		}
	default:
		r.Fatal(c.name, err)
	}
	r.fuse = 0
	r.same("after broken "+c.name, r.want, after)
	_, err = r.a.Collect(lazy, r.now)
	ok(r.T, err)
	r.want = r.same("after collecting what a broken "+c.name+" left", r.want, after)
	clean(r.T, r.a)
}

// recover continues after a crash with the current index, with the last synced one, or with none.
func (r *modelRun) recover() {
	_ = r.a.Close()
	how := []string{"kill", "power", "index lost"}[r.rng.IntN(3)]
	r.count[how]++
	dir := filepath.Join(r.TempDir(), fmt.Sprint("dir", r.images))
	switch how {
	case "kill":
		copyDir(r.T, r.crash, dir)
	case "power":
		copyDir(r.T, r.synced, dir)
	default:
		ok(r.T, os.MkdirAll(dir, 0o700))
	}
	ok(r.T, os.RemoveAll(r.dir))
	r.dir = dir
	r.open()
}

// same checks that the archive holds one of the wanted states and returns it.
func (r *modelRun) same(when string, wants ...map[string]map[string][]int) map[string]map[string][]int {
	r.Helper()
	var last string
	for _, want := range wants {
		if last = r.differs(want); last == "" {
			return want
		}
	}
	r.Fatalf("%s: %s", when, last)
	return nil
}

func (r *modelRun) differs(want map[string]map[string][]int) string {
	for i := range 4 {
		space := fmt.Sprint("s", i)
		parts, err := r.a.Parts(lazy, space)
		ok(r.T, err)
		var got []string
		for _, p := range parts {
			got = append(got, p.Name)
		}
		if names := slices.Sorted(maps.Keys(want[space])); !slices.Equal(got, names) {
			return fmt.Sprintf("space %s has parts %v, not %v", space, got, names)
		}
		for _, p := range parts {
			off := int64(0)
			size := int64(0)
			for _, n := range want[space][p.Name] {
				content := r.pool[n]
				b := make([]byte, len(content))
				if err := r.a.ReadAt(lazy, space, p.Name, b, off); err != nil {
					if holt.CodeOf(err) != holt.NotFound {
						r.Fatal(err)
					}
					return fmt.Sprintf("%s/%s at %d: %v", space, p.Name, off, err)
				}
				if string(b) != string(content) {
					return fmt.Sprintf("%s/%s at %d: other bytes", space, p.Name, off)
				}
				off, size = off+int64(len(b))+100, size+int64(len(b))
			}
			if size != p.Bytes {
				return fmt.Sprintf("%s/%s has %d bytes, not %d", space, p.Name, p.Bytes, size)
			}
		}
	}
	return ""
}
