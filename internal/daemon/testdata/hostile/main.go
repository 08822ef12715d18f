// Command hostile is the root of a computer who means ill: what TestHostileGuest has
// in its guest, and TestHostileAgent and TestHostileChannels at their channels. It is not a fuzzer of
// decoders (they have their own): it does to a whole daemon what a program in a machine can do.
//
//	hostile inside SECONDS SEED CANARY TERCES   beside the true agent: files, links, sockets, the console
//	hostile agent SECONDS SEED CANARY TERCES    in the agent's place: both channels
//	hostile liar SECONDS SEED CANARY TERCES     the same, and every session of the control channel tells lies
//	hostile agent --control-socket PATH --files-socket PATH …
//
// The last is how an agent without a machine is started. What it is told then stands behind the program in
// its file: a line "hostile MODE SEED CANARY TERCES", see told.
//
// CANARY is the path of a file of the host, TERCES what it holds, backwards, so that nothing
// here holds it forwards. What was tried is counted by kind, and said as JSON in
// a line that begins with "tried ": inside on standard output, agent on the console. Each
// lie is counted by what was asked and how it was answered, but on the console of a real machine.
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
	short  time.Duration // of a session that is one attack
	only   bool          // every session of the control channel tells lies
	hoards bool          // it lies only of what it has
	cells  bool          // lies are counted by what was asked

	mu    sync.Mutex
	rng   *rand.Rand
	tried map[string]int
}

func main() {
	if len(os.Args) > 5 && os.Args[2] == "--control-socket" {
		told().sockets(os.Args[3], os.Args[5])
		return
	}
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: hostile inside|agent|liar SECONDS SEED CANARY TERCES")
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
		rng: rand.New(rand.NewPCG(seed, 0)), tried: map[string]int{}, short: 700 * time.Millisecond,
	}
	if os.Args[1] == "inside" {
		h.inside()
		fmt.Println(h.said())
		return
	}
	h.only = os.Args[1] == "liar"
	h.impostor()
}

// told is what the program's file says behind the program: lies is one session of lies without end, brief
// attacks of 10 ms each, hoard a session that lies only of what is installed and runs, and long is as in a machine.
func told() *hostile {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	h := &hostile{tried: map[string]int{}, cells: true, short: 700 * time.Millisecond}
	var mode, back string
	var seed uint64
	line := b[bytes.LastIndexByte(bytes.TrimSpace(b), '\n')+1:]
	if _, err := fmt.Sscanf(string(line), "hostile %s %d %s %s", &mode, &seed, &h.canary, &back); err != nil {
		panic(err)
	}
	h.terces, h.rng, h.only = []byte(back), rand.New(rand.NewPCG(seed, 0)), mode == "lies"
	h.hoards = mode == "hoard"
	if mode == "brief" {
		h.short = 10 * time.Millisecond
	}
	return h
}

// did counts one try of a kind.
func (h *hostile) did(kind string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried[kind] += n
}

func (h *hostile) count(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tried[kind]
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
