// Load is the load generator of the benchmarks: one small static program that
// does a piece of file work and prints how long it took. The same binary runs
// on the host and inside a guest, so that their figures can be compared.
//
// It measures nothing else and knows nothing of holt. As PID 1 of a virtual
// machine it is the bare end of a byte channel instead: see port.go.
//
//	load create -dir D -n N          N files of 4 KiB: open, write, close
//	load stat   -dir D -n N [-cold]  lstat of each of them, once or until it is warm
//	load write  -file F -mb N        sequentially, in pieces of 1 MiB; then fsync
//	load read   -file F [-drop file|host]
//	load random -file F -mb N -n N   4 KiB at random places, each with fsync
//	load drop                        what the kernel caches, all of it; needs root
//	load remove -dir D
//	load hold   -file F -mb N [-rate R] [-compute] [-last D]  see hold.go
//	load serve  -addr A              what the next four ask, see net.go
//	load send   -addr A -mb N        bytes to it
//	load fetch  -addr A -mb N        bytes from it
//	load dial   -addr A -n N         connections, each of which answers once
//	load echo   -addr A -n N         answers on one connection
//
// It prints one line of JSON: a [result].
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	small  = 4 << 10 // bytes of a small file, and of a random write
	piece  = 1 << 20 // bytes of a sequential write or read
	perDir = 1000    // files in a directory
	warmed = 300 * time.Millisecond
)

// result is what a piece of work took.
type result struct {
	Count   int64   `json:"count"`            // operations
	Bytes   int64   `json:"bytes,omitempty"`  // that they moved
	Seconds float64 `json:"seconds"`          // for all of them
	Synced  float64 `json:"synced,omitempty"` // for all of them and an fsync, seconds
}

// work holds the flags of all pieces of work.
type work struct {
	dir, file, drop, addr string
	n, mb, rate           int
	cold, compute         bool
	last                  time.Duration
}

func main() {
	err := error(nil)
	if os.Getpid() == 1 {
		err = serveGuest()
	} else {
		err = run(os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	kinds := map[string]func(work) (result, error){
		"create": create, "stat": stat, "write": write, "read": read, "random": random, "drop": drop, "remove": remove, "hold": hold,
		"serve": serve, "send": send, "fetch": fetch, "dial": dial, "echo": echo,
	}
	if len(args) == 0 || kinds[args[0]] == nil {
		return errors.New("usage: load create|stat|write|read|random|drop|remove|hold|serve|send|fetch|dial|echo [flags]")
	}
	var w work
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.StringVar(&w.dir, "dir", "", "directory to work in")
	f.StringVar(&w.file, "file", "", "file to work on")
	f.StringVar(&w.drop, "drop", "", "read: what to forget before: file (the file's own pages) or host (all that is cached)")
	f.StringVar(&w.addr, "addr", "", "address to listen at, or to connect to")
	f.IntVar(&w.n, "n", 1000, "operations")
	f.IntVar(&w.mb, "mb", 64, "size of the file, or of the memory, MiB")
	f.IntVar(&w.rate, "rate", 0, "hold: memory to change, MiB/s; -1: as fast as it goes")
	f.BoolVar(&w.compute, "compute", false, "hold: compute as well, and count that")
	f.DurationVar(&w.last, "last", time.Hour, "hold: for how long")
	f.BoolVar(&w.cold, "cold", false, "stat: one pass only")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	r, err := kinds[args[0]](w)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

// names returns the paths of n files below dir, and their directories.
func names(dir string, n int) (files, dirs []string) {
	for i := range n {
		if i%perDir == 0 {
			dirs = append(dirs, filepath.Join(dir, fmt.Sprintf("d%03d", i/perDir)))
		}
		files = append(files, filepath.Join(dirs[len(dirs)-1], fmt.Sprintf("f%06d", i)))
	}
	return files, dirs
}

func create(w work) (result, error) {
	files, dirs := names(w.dir, w.n)
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return result{}, err
		}
	}
	content := make([]byte, small)
	rand.New(rand.NewSource(1)).Read(content)
	start := time.Now()
	for i, name := range files {
		binary.LittleEndian.PutUint64(content, uint64(i))
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return result{}, fmt.Errorf("create %s: %w", name, err)
		}
		n, err := unix.Write(fd, content)
		if err == nil && n != small {
			err = io.ErrShortWrite
		}
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return result{}, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return since(start, w.n, w.n*small), nil
}

func stat(w work) (result, error) {
	files, _ := names(w.dir, w.n)
	pass := func() error {
		var st unix.Stat_t
		for _, name := range files {
			if err := unix.Lstat(name, &st); err != nil {
				return fmt.Errorf("stat %s: %w", name, err)
			}
			if st.Size != small {
				return fmt.Errorf("%s has %d bytes", name, st.Size)
			}
		}
		return nil
	}
	if !w.cold {
		if err := pass(); err != nil {
			return result{}, err
		}
	}
	start, passes := time.Now(), 0
	for passes == 0 || !w.cold && time.Since(start) < warmed {
		if err := pass(); err != nil {
			return result{}, err
		}
		passes++
	}
	return since(start, passes*w.n, 0), nil
}

func write(w work) (result, error) {
	f, err := os.OpenFile(w.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	content := make([]byte, piece)
	rand.New(rand.NewSource(2)).Read(content)
	start := time.Now()
	for i := range w.mb {
		binary.LittleEndian.PutUint64(content, uint64(i))
		if _, err := f.Write(content); err != nil {
			return result{}, err
		}
	}
	r := since(start, w.mb, w.mb*piece)
	err = f.Sync()
	r.Synced = time.Since(start).Seconds()
	return r, err
}

// read reads what write wrote, and looks at the number in each piece.
func read(w work) (result, error) {
	f, err := os.Open(w.file)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	switch w.drop {
	case "file":
		err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	case "host":
		_, err = drop(w)
	}
	if err != nil {
		return result{}, fmt.Errorf("drop %s: %w", w.drop, err)
	}
	buf := make([]byte, piece)
	start, n := time.Now(), 0
	for ; ; n++ {
		if _, err := io.ReadFull(f, buf); err == io.EOF {
			break
		} else if err != nil {
			return result{}, err
		}
		if got := binary.LittleEndian.Uint64(buf); got != uint64(n) {
			return result{}, fmt.Errorf("piece %d of %s says that it is %d", n, w.file, got)
		}
	}
	return since(start, n, n*piece), nil
}

// random overwrites a file that is there already, so that only the writes count.
func random(w work) (result, error) {
	f, err := os.OpenFile(w.file, os.O_WRONLY, 0)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	blocks := int64(w.mb) << 20 / small
	places := rand.New(rand.NewSource(3))
	content := make([]byte, small)
	places.Read(content)
	start := time.Now()
	for range w.n {
		if _, err := f.WriteAt(content, places.Int63n(blocks)*small); err != nil {
			return result{}, err
		}
		if err := f.Sync(); err != nil {
			return result{}, err
		}
	}
	return since(start, w.n, w.n*small), nil
}

// drop writes back what is dirty and has the kernel forget pages, names and inodes.
func drop(work) (result, error) {
	start := time.Now()
	unix.Sync()
	err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
	return since(start, 1, 0), err
}

func remove(w work) (result, error) {
	start := time.Now()
	err := os.RemoveAll(w.dir)
	return since(start, 1, 0), err
}

func since(start time.Time, count, bytes int) result {
	return result{Count: int64(count), Bytes: int64(bytes), Seconds: time.Since(start).Seconds()}
}
