package netstack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// beside is the traffic that continues while a guest floods its network: an
// existing connection, and another computer.
type beside struct {
	over    chan struct{}
	work    sync.WaitGroup
	trips   atomic.Int64
	longest atomic.Int64 // ns
}

// goesOn echoes through an existing connection of each machine, and through new
// ones of the last, until ended.
func goesOn(t *testing.T, flooding, other *machine) *beside {
	t.Helper()
	b := &beside{over: make(chan struct{})}
	trips := []func() error{func() error { return other.echoWithin(10*time.Second, "tcp", "93.184.216.34:7") }}
	for _, m := range []*machine{flooding, other} {
		c, err := m.dial(t.Context(), "tcp", "93.184.216.35:7")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		trips = append(trips, func() error { c.SetDeadline(time.Now().Add(10 * time.Second)); return there(c) })
	}
	for n, trip := range trips {
		b.work.Go(func() {
			for {
				began := time.Now()
				if err := trip(); err != nil {
					t.Errorf("beside the flood, %d: %v", n, err)
					return
				}
				b.trips.Add(1)
				if took := int64(time.Since(began)); took > b.longest.Load() {
					b.longest.Store(took)
				}
				select {
				case <-b.over:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	return b
}

func (b *beside) end() string {
	close(b.over)
	b.work.Wait()
	return fmt.Sprintf("%d echoes beside it, the longest %v", b.trips.Load(), time.Duration(b.longest.Load()).Round(time.Millisecond))
}

// TestFloodHalfOpen: a guest without a kernel begins connections without
// completing them: the number is limited, other attempts are not answered, and
// another computer is not affected.
func TestFloodHalfOpen(t *testing.T) {
	w := inWorld(t)
	if w == nil {
		return
	}
	const conns = 10_000
	other := w.machine(w.stack(open, Options{}))
	flooding := w.machine(w.stack(open, Options{}))
	going := goesOn(t, flooding, other)
	s := w.stack(open, Options{})
	ours, theirs := pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.Attach(ctx, ours); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("attach: %v", err)
		}
	})
	defer work.Wait()
	defer theirs.Close()
	defer cancel()
	var taken, refused, most atomic.Int64
	work.Go(func() { answers(bufio.NewReaderSize(theirs, linkBuffer), &taken, &refused) })
	before := held()
	began := time.Now()
	for n := range conns {
		if err := bareFrame(theirs, synPacket(Guest.String(), "93.184.216.34", uint16(1024+n), echoPort, 2)); err != nil {
			t.Fatal(err)
		}
		most.Store(max(most.Load(), int64(s.flows.taken(inward))))
	}
	took := time.Since(began)
	grown := held() - before
	for end := time.Now().Add(10 * time.Second); s.flows.taken(inward) < maxDials && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	stand := s.flows.taken(inward)
	t.Logf("counts: %d connections begun and not completed, in %v: %d stand, at most %d did, %d answered with SYN, %d with RST; %d MiB; %s",
		conns, took.Round(time.Millisecond), stand, most.Load(), taken.Load(), refused.Load(), grown, going.end())
	if stand > maxDials || stand == 0 || int(most.Load()) > maxDials || grown > 50 {
		t.Errorf("%d stand, at most %d, %d MiB", stand, most.Load(), grown)
	}
	for n := range conns { // it gives them up
		if err := bareFrame(theirs, rstPacket(uint16(1024+n))); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); s.flows.taken(inward)+s.flows.taken(outward) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d and %d connections are left", s.flows.taken(inward), s.flows.taken(outward))
		}
	}
}

// bareFrame sends a TCP packet in a frame with its length.
func bareFrame(link io.Writer, packet []byte) error {
	frame := append([]byte(ourMAC+"\x52\x54\x00\x68\x6f\x6c"), 8, 0)
	frame = append(frame, rawIP{to: "93.184.216.34", protocol: 6, payload: packet}.bytes()...)
	_, err := link.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

// rstPacket resets a connection that synPacket began.
func rstPacket(from uint16) []byte {
	b := synPacket(Guest.String(), "93.184.216.34", from, echoPort, 4)
	binary.BigEndian.PutUint32(b[4:], 2)
	b[16], b[17] = 0, 0
	pseudo := append(append(bytes.Clone(Guest.AsSlice()), net.ParseIP("93.184.216.34").To4()...), 0, 6, 0, byte(len(b)))
	binary.BigEndian.PutUint16(b[16:], sum(append(pseudo, b...)))
	return b
}

// answers counts the stack's answers to new connections.
func answers(link io.Reader, taken, refused *atomic.Int64) {
	b := make([]byte, 4+maxFrame)
	for {
		if _, err := io.ReadFull(link, b[:4]); err != nil {
			return
		}
		n := min(binary.BigEndian.Uint32(b), maxFrame)
		if _, err := io.ReadFull(link, b[4:4+n]); err != nil {
			return
		}
		if n < 14+40 || b[4+14+9] != 6 {
			continue
		}
		switch flags := b[4+14+20+13]; {
		case flags&4 != 0:
			refused.Add(1)
		case flags&2 != 0:
			taken.Add(1)
		}
	}
}
