package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Requests with an exclamation mark are about the state of this process, which
// tells a test whether the machine's memory was preserved. The first word of an
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
//	!verify                whether all that was written so is what it must be
//	!calm                  end what was to go on for ever
//	!link                  take frames of the network, and say how many were taken
//	!use CPUS MB MB        use what was added: wait until there is so much, and say how much there is
//	!room                  the size of the file system with the disk, MiB; only in a sandbox
//	!end HOW               end the machine: off, reboot, or exit of PID 1
func answer(request []string) string {
	if len(request) == 0 {
		return "failed: nothing was asked"
	}
	request = append(request, "", "", "")
	if request[0] == "use" {
		return "ok " + use(number(request[1]), number(request[2]), number(request[3]))
	}
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

// count increments a counter that shows whether memory was preserved.
func count() {
	for {
		counter.Add(1)
		time.Sleep(5 * time.Millisecond) // of many machines at once
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
			binary.LittleEndian.PutUint64(filled[i:], uint64(seed))
		}
		return a, nil
	case "sum":
		sum := uint64(len(filled))
		for i := 0; i < len(filled); i += 8 { // each step is one to one; a good hash takes an emulated processor seconds
			sum = bits.RotateLeft64((sum^binary.LittleEndian.Uint64(filled[i:]))*6364136223846793005, 29)
		}
		return fmt.Sprintf("%x", sum), nil
	case "dirty":
		written.mu.Lock()
		written.memory, written.at = make([]byte, max(number(b), 1)<<20), 0
		written.mu.Unlock()
		go dirty(epoch.Load(), number(a))
		return "", nil
	case "churn":
		go churn(epoch.Load())
		return "", nil
	case "verify":
		return "", verify()
	case "link":
		return linkUp()
	case "room":
		return room()
	case "end":
		return "", end(a)
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

// blockSize is the size of the disk's blocks in requests, bytes.
const blockSize = 4096

// diskPath is the disk: a device, except in a sandbox.
var diskPath = "/dev/vda"

// disk writes or reads one block of the disk, bypassing caches.
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
		fd, err := unix.Open(diskPath, flags, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return fd, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// written is the progress of the goroutines that write without end. If it were
// a mix of different instants, verify would detect that.
var written struct {
	mu     sync.Mutex
	memory []byte // one byte of each page is grown, round after round
	at     int    // the next
	blocks int64  // of the disk, written
}

// dirty changes every page of memory in turn, at rate MiB/s; 0: as fast as possible.
func dirty(begun, rate int64) {
	for epoch.Load() == begun {
		pages := 256
		if rate > 0 {
			pages = int(rate) * 256 / 50
			time.Sleep(20 * time.Millisecond)
		}
		written.mu.Lock()
		for range pages {
			written.memory[written.at]++
			written.at = (written.at + 4096) % len(written.memory)
		}
		written.mu.Unlock()
		runtime.Gosched()
	}
}

// churn writes numbered blocks in sequence, from the second MiB on.
func churn(begun int64) {
	for epoch.Load() == begun {
		written.mu.Lock()
		n := written.blocks
		_, err := disk("write", churnBlock(n), fmt.Sprint("churn", n))
		if err == nil {
			written.blocks++
		}
		written.mu.Unlock()
		if err != nil {
			fmt.Println("guest: churn:", err)
			return
		}
	}
}

func churnBlock(n int64) string { return fmt.Sprint(256 + n%512) }

// verify checks that memory is new up to one page and old behind it, and that
// the disk has the last blocks that memory recorded as written.
func verify() error {
	written.mu.Lock()
	defer written.mu.Unlock()
	m := written.memory
	for i := 0; i < len(m); i += 4096 {
		want := m[0]
		if i >= written.at && written.at > 0 {
			want--
		}
		if m[i] != want {
			return fmt.Errorf("page %d has %d, want %d; the next is %d", i/4096, m[i], want, written.at/4096)
		}
	}
	for n := max(written.blocks-20, 0); n < written.blocks; n++ {
		if got, err := disk("read", churnBlock(n), ""); err != nil || got != fmt.Sprint("churn", n) {
			return fmt.Errorf("block %d of %d on the disk: %q, %v", n, written.blocks, got, err)
		}
	}
	return nil
}
