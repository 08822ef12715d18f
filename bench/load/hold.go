package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pageBytes  = 4096
	pagesPerMB = 1 << 20 / pageBytes
	changeTick = 20 * time.Millisecond
	changeMost = 5 * changeTick // that is made up for, after it was stopped
	fewPages   = 64             // changed between two looks whether it is over
)

// memory is held, each page with something in it.
type memory []byte

func take(mb int) memory {
	m := make(memory, mb<<20)
	for i := 0; i < len(m); i += pageBytes {
		m[i] = 1
	}
	return m
}

// hold takes memory and changes it over and over, page after page; beside it, it may
// compute. What it has got done it counts in a file, 8 bytes, little-endian: passes of
// computing, or else pages changed. The file is there once all the memory is.
func hold(w work) (result, error) {
	if w.mb <= 0 {
		return result{}, fmt.Errorf("there is no memory of %d MiB to hold", w.mb)
	}
	m := take(w.mb)
	count, err := openCount(w.file)
	if err != nil {
		return result{}, err
	}
	defer unix.Munmap(count)
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), w.last)
	defer cancel()
	n := 0
	if w.compute {
		changed := make(chan int)
		go func() { changed <- m.change(ctx, w.rate, make([]byte, 8)) }()
		n = compute(ctx, count)
		<-changed
	} else {
		n = m.change(ctx, w.rate, count)
	}
	return since(start, n, 0), nil
}

// openCount makes a file for a count and maps it, so that counting costs nothing.
func openCount(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// change changes so many MiB of memory a second, or as many as it can, until ctx ends.
func (m memory) change(ctx context.Context, rate int, count []byte) (n int) {
	if rate == 0 {
		<-ctx.Done()
	}
	for last := time.Now(); ctx.Err() == nil; {
		due := fewPages
		if rate > 0 {
			time.Sleep(changeTick)
			now := time.Now()
			due = int(float64(rate) * min(now.Sub(last), changeMost).Seconds() * pagesPerMB)
			last = now
		}
		for range due {
			m[n*pageBytes%len(m)]++
			n++
		}
		binary.LittleEndian.PutUint64(count, uint64(n))
	}
	return n
}

// compute calculates until ctx ends. It does not look at a clock: in an emulated
// machine that waits for whoever has the emulator's lock.
func compute(ctx context.Context, count []byte) (n int) {
	for x := uint64(1); x != 0 && ctx.Err() == nil; n++ {
		for range 1000 {
			x = x*6364136223846793005 | 1
		}
		binary.LittleEndian.PutUint64(count, uint64(n+1))
	}
	return n
}
