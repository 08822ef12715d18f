package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What is asked with an exclamation mark is of what only this process knows, so
// that a test can tell whether a machine's memory went on. The first word of an
// answer is "ok" or "failed".
//
//	!count                 a number that grows for as long as the guest runs
//	!keep WORD             remember WORD
//	!recall                the words that were kept, in order
//	!write BLOCK WORD      write WORD to a block of the disk, and read it back
//	!read BLOCK            the word there
//	!fill MB SEED          fill memory with a pattern, and keep it
//	!sum                   a checksum of that memory
//	!dirty MB/S MB         write to MB of memory at that rate for ever; 0: as fast as it goes
//	!churn                 write to the disk for ever
//	!calm                  end what was to go on for ever
func answer(request []string) string {
	if len(request) == 0 {
		return "failed: nothing was asked"
	}
	request = append(request, "", "")
	said, err := ask(request[0], request[1], request[2])
	if err != nil {
		return "failed: " + err.Error()
	}
	return "ok " + said
}

var (
	counter atomic.Int64
	epoch   atomic.Int64 // what was begun in an earlier one ends
	mu      sync.Mutex
	kept    []byte
	filled  []byte
)

// count is the process whose memory goes on.
func count() {
	for {
		counter.Add(1)
		time.Sleep(time.Millisecond)
	}
}

func ask(what, a, b string) (string, error) {
	mu.Lock()
	defer mu.Unlock()
	switch what {
	case "count":
		return fmt.Sprint(counter.Load()), nil
	case "keep":
		kept = append(kept, a+","...)
		return string(kept), nil
	case "recall":
		return string(kept), nil
	case "write", "read":
		return disk(what, a, b)
	case "fill":
		mb, seed := number(a), number(b)
		filled = make([]byte, mb<<20)
		for i := 0; i < len(filled); i += 8 {
			seed = seed*6364136223846793005 + 1442695040888963407
			for j := range 8 {
				filled[i+j] = byte(seed >> (8 * j))
			}
		}
		return a, nil
	case "sum":
		return fmt.Sprintf("%x", sha256.Sum256(filled)), nil
	case "dirty":
		go dirty(epoch.Load(), number(a), int(number(b)))
		return "", nil
	case "churn":
		go churn(epoch.Load())
		return "", nil
	case "calm":
		epoch.Add(1)
		return "", nil
	}
	return "", errors.New("nobody knows how to " + what)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// blockSize is that of the disk's blocks that are written and read, bytes.
const blockSize = 4096

// disk writes or reads one block of the disk, past every cache.
func disk(what, n, word string) (string, error) {
	fd, err := openDisk(unix.O_RDWR | unix.O_DIRECT | unix.O_SYNC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // aligned
	if err != nil {
		return "", err
	}
	defer unix.Munmap(block)
	if what == "write" {
		copy(block, word)
		if _, err := unix.Pwrite(fd, block, number(n)*blockSize); err != nil {
			return "", err
		}
	}
	if _, err := unix.Pread(fd, block, number(n)*blockSize); err != nil {
		return "", err
	}
	text, _, _ := bytes.Cut(block, []byte{0})
	return string(text), nil
}

// openDisk opens the disk once the kernel has found it.
func openDisk(flags int) (int, error) {
	for {
		fd, err := unix.Open("/dev/vda", flags, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return fd, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dirty changes every page of mb MiB in turn.
func dirty(begun, rate int64, mb int) {
	memory := make([]byte, mb<<20)
	at := 0
	for epoch.Load() == begun {
		pages := 2560 // 10 MiB
		if rate > 0 {
			pages = int(rate) * 256 / 50
		}
		for range pages {
			memory[at]++
			at = (at + 4096) % len(memory)
		}
		if rate > 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// churn writes numbered blocks, one after the other, from the second MiB on.
func churn(begun int64) {
	f, err := os.OpenFile("/dev/vda", os.O_WRONLY|unix.O_DSYNC, 0)
	if err != nil {
		fmt.Println("guest: churn:", err)
		return
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for n := int64(0); epoch.Load() == begun; n++ {
		for i := range block {
			block[i] = byte(n) + byte(i>>12)
		}
		if _, err := f.WriteAt(block, 1<<20+n%64*int64(len(block))); err != nil {
			fmt.Println("guest: churn:", err)
			return
		}
	}
}
