// Command hostile is the root of a computer who means ill: what TestHostileGuest has
// in its guest. It is not a fuzzer of decoders (they have their own): it
// does to a whole daemon what a program in a machine can do.
//
//	hostile inside SECONDS SEED CANARY TERCES   beside the true agent: files, links, sockets, the console
//	hostile agent SECONDS SEED CANARY TERCES    in the agent's place: both channels
//
// CANARY is the path of a file of the host, TERCES what it holds, backwards, so that nothing
// here holds it forwards. What was tried is counted by kind, and said as JSON in
// a line that begins with "tried ": inside on standard output, agent on the console.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// hostile is one run of the program.
type hostile struct {
	canary string // a path of the host
	terces []byte // what is there, backwards
	length time.Duration
	end    time.Time

	mu    sync.Mutex
	rng   *rand.Rand
	tried map[string]int
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: hostile inside|agent SECONDS SEED CANARY TERCES")
		os.Exit(2)
	}
	seconds, err := strconv.Atoi(os.Args[2])
	seed, err2 := strconv.ParseUint(os.Args[3], 10, 64)
	if err != nil || err2 != nil {
		fmt.Fprintln(os.Stderr, err, err2)
		os.Exit(2)
	}
	h := &hostile{
		canary: os.Args[4], terces: []byte(os.Args[5]), length: time.Duration(seconds) * time.Second,
		rng: rand.New(rand.NewPCG(seed, 0)), tried: map[string]int{},
	}
	if os.Args[1] == "inside" {
		h.inside()
		fmt.Println(h.said())
		return
	}
	h.impostor()
}

// did counts one try of a kind.
func (h *hostile) did(kind string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried[kind] += n
}

// saw looks for what is nobody's in this computer.
func (h *hostile) saw(b []byte) {
	secret := slices.Clone(h.terces)
	slices.Reverse(secret)
	if bytes.Contains(b, secret) {
		h.did("LEAK", 1)
	}
}

func (h *hostile) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := json.Marshal(h.tried)
	if err != nil {
		panic(err)
	}
	return "tried " + string(b)
}

func (h *hostile) over() bool { return time.Now().After(h.end) }

func (h *hostile) intN(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

func (h *hostile) uint64() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.Uint64()
}

func (h *hostile) bytes(n int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.rng.Uint32())
	}
	return b
}

// one of some.
func one[T any](h *hostile, all ...T) T { return all[h.intN(len(all))] }
