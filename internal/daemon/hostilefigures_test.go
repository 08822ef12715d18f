package daemon_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holt/internal/store/db"
)

// figures are what a daemon has at some time.
type figures struct {
	Goroutines int
	Heap       int64          // bytes in use, after a collection
	Stacks     map[string]int // of the goroutines
	Resident   int64          // bytes of memory
	FDs        int            // open files
	Open       map[string]int // what they are, but for those of databases
	Most       int            // times that one file of a database is open
}

// illReaders is how often a file of a database may be open. It keeps the connections that were needed at the same
// time once, up to this many, so theirs are the only files of which there may be more afterwards.
const illReaders = db.Readers + 4 // who writes, two spares and the file itself

// more lists what there is more of than before.
func more(now, before map[string]int) (all []string) {
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if n := now[what] - before[what]; n > 0 {
			all = append(all, fmt.Sprintf("%d more: %s", n, what))
		}
	}
	return all
}

// stacks are where goroutines are, and how many in each place.
func stacks() map[string]int {
	var text strings.Builder
	pprof.Lookup("goroutine").WriteTo(&text, 1)
	all := map[string]int{}
	for one := range strings.SplitSeq(text.String(), "\n\n") {
		head, where, _ := strings.Cut(one, "\n")
		if count, _, ok := strings.Cut(head, " @ "); ok {
			n, _ := strconv.Atoi(count)
			all[where] += n
		}
	}
	return all
}

const figuresFile = "figures.json"

// tellFigures has a daemon process write its figures into its directory when it gets SIGUSR1.
func tellFigures(dir string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b, err := json.Marshal(figures{Goroutines: runtime.NumGoroutine(), Heap: int64(m.HeapAlloc), Stacks: stacks()})
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, figuresFile+".new"), b, 0o600)
			}
			if err == nil {
				err = os.Rename(filepath.Join(dir, figuresFile+".new"), filepath.Join(dir, figuresFile))
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}()
}

// figures asks the daemon for its figures.
func (i *ill) figures() figures {
	i.t.Helper()
	path := filepath.Join(i.dir, figuresFile)
	os.Remove(path)
	if err := i.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		i.t.Fatal(err)
	}
	var b []byte
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if b, err = os.ReadFile(path); err == nil {
			break
		}
		if time.Now().After(end) {
			i.t.Fatal(err)
		}
	}
	os.Remove(path)
	f := i.sizes()
	if err := json.Unmarshal(b, &f); err != nil {
		i.t.Fatal(err)
	}
	now := i.sizes()
	f.Resident, f.FDs = now.Resident, now.FDs
	f.Open, f.Most = openOf(i.cmd.Process.Pid)
	return f
}

// openOf says what files a process has open, paths or kinds, and how often one of a database at most.
func openOf(pid int) (all map[string]int, most int) {
	dir, bases := "/proc/"+strconv.Itoa(pid)+"/fd/", map[string]int{}
	all = map[string]int{}
	list, _ := os.ReadDir(dir)
	for _, one := range list {
		target, err := os.Readlink(dir + one.Name())
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(target, ":[")
		if strings.HasSuffix(strings.TrimRight(kind, "-walshm"), ".db") {
			bases[kind]++
			most = max(most, bases[kind])
		} else {
			all[kind]++
		}
	}
	return all, most
}

// sizes is what the kernel says of the daemon.
func (i *ill) sizes() figures { return sizesOf(i.cmd.Process.Pid) }

func sizesOf(pid int) (f figures) {
	proc := "/proc/" + strconv.Itoa(pid)
	if list, err := os.ReadDir(proc + "/fd"); err == nil {
		f.FDs = len(list)
	}
	b, err := os.ReadFile(proc + "/statm")
	if fields := strings.Fields(string(b)); err == nil && len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		f.Resident = pages * int64(os.Getpagesize())
	}
	return f
}
