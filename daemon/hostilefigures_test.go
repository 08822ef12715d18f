package daemon_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// illSlack is how many goroutines and open files more there may be at any time: calls, connections of the
// database that are kept.
const illSlack = 12

// logged counts the lines that daemons of this process's tests have logged.
var logged atomic.Int64

// figures are what a daemon has at some time.
type figures struct {
	Goroutines int
	Heap       int64  // bytes in use, after a collection
	Stacks     string // of the goroutines
	Resident   int64  // bytes of memory
	FDs        int    // open files
}

const figuresFile = "figures.json"

// tellFigures has a daemon process write its figures into its directory when it gets SIGUSR1.
func tellFigures(dir string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		for range asked {
			var stacks strings.Builder
			pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b, err := json.Marshal(figures{Goroutines: runtime.NumGoroutine(), Heap: int64(m.HeapAlloc), Stacks: stacks.String()})
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
	return f
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
