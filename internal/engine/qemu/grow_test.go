package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"holt/internal/engine/machine"
)

// deaf is a proxy of a monitor that drops some answers.
type deaf struct {
	*net.UnixConn
	lines *bufio.Reader
	rest  []byte // of a line

	mu    sync.Mutex
	lose  map[string]int // of which commands, and how often
	lost  map[uint64]bool
	onOne func()
}

func (d *deaf) Write(b []byte) (int, error) {
	var c struct {
		Execute string
		ID      uint64
	}
	if json.Unmarshal(b, &c) == nil {
		d.mu.Lock()
		if d.lose[c.Execute] > 0 {
			d.lose[c.Execute]--
			d.lost[c.ID] = true
		}
		d.mu.Unlock()
	}
	return d.UnixConn.Write(b)
}

func (d *deaf) Read(b []byte) (int, error) {
	for len(d.rest) == 0 {
		line, err := d.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		var m message
		json.Unmarshal(line, &m)
		d.mu.Lock()
		if m.ID != nil && d.lost[*m.ID] {
			line = nil
			d.onOne()
		}
		d.mu.Unlock()
		d.rest = line
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// deafen makes a machine's monitor drop answers from now on. QEMU serves one session at a time.
func (w *world) deafen(t *testing.T) *deaf {
	t.Helper()
	w.monitor.close()
	conn, err := w.Dir.Dial(t.Context(), monitorSocket)
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{UnixConn: conn.(*net.UnixConn), lines: bufio.NewReader(conn), lose: map[string]int{}, lost: map[uint64]bool{}}
	if w.monitor, err = openQMP(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	go func(events <-chan event) {
		for e := range events {
			w.note(e)
		}
	}(w.monitor.events)
	return d
}

// TestGrowWithLostAnswer: an addition by QEMU whose answer is lost is found:
// the machine has the shape of its guest, grows further, and can be restored
// from a snapshot. With twice the later answers are lost too.
func TestGrowWithLostAnswer(t *testing.T) {
	for _, one := range []struct {
		command string
		twice   bool
	}{{"object-add", false}, {"device_add", false}, {"query-memory-devices", false}, {"query-memory-devices", true}, {"query-hotpluggable-cpus", false}} {
		t.Run(fmt.Sprint(one.command, " ", one.twice), func(t *testing.T) {
			w := newWorld(t, emulated(t, monitorWait), 128)
			w.engine.wait = 2 * time.Second
			d := w.deafen(t)
			losing := func(command string, to machine.Shape) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d.mu.Lock()
				d.onOne = cancel
				d.lose[command]++
				if one.twice {
					d.lose[command]++
				}
				d.mu.Unlock()
				if err := w.Grow(ctx, to); !errors.Is(err, context.Canceled) {
					t.Fatalf("a grow of which the answer to %s was lost: %v", command, err)
				}
			}
			losing(one.command, machine.Shape{CPUs: 2, MemoryMB: 256})
			if one.command == "device_add" { // of the memory; and of the processor
				w.isAsItSays(t, "memory")
				losing("device_add", machine.Shape{CPUs: 2, MemoryMB: 256})
			}
			w.isAsItSays(t, "after "+one.command)
			want := machine.Shape{CPUs: 2, MemoryMB: 384, DiskMB: 64}
			if err := w.Grow(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if got, err := w.Shape(t.Context()); got != want || err != nil {
				t.Errorf("it has %+v, %v", got, err)
			}
			w.ask(t, w, "use 2 384 64")
			w.ask(t, w, "fill 200 3")
			sum := w.ask(t, w, "sum")
			m := w.goesOn(t)
			if got := w.ask(t, m, "sum"); got != sum {
				t.Errorf("the memory of what goes on has %s, not %s", got, sum)
			}
			w.ask(t, m, "use 2 384 64")
		})
	}
}

// isAsItSays fails the test unless QEMU's devices match the recorded hardware.
func (w *world) isAsItSays(t *testing.T, when string) {
	t.Helper()
	if _, err := w.Shape(t.Context()); err != nil {
		t.Fatal(err)
	}
	var before, after bytes.Buffer
	fmt.Fprintf(&before, "%+v", w.hardware.Growth)
	if err := w.grown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fmt.Fprintf(&after, "%+v", w.hardware.Growth); before.String() != after.String() {
		t.Errorf("%s: it was taken to have %s, and has %s", when, &before, &after)
	}
}

// goesOn returns a machine restored from a snapshot of another.
func (w *world) goesOn(t *testing.T) machine.Machine {
	t.Helper()
	frozen := w.Disk()
	at := machine.SnapshotSpec{Dir: w.path("image"), Disk: w.path("disk")}
	if _, err := w.Snapshot(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	spec := machine.Spec{ID: "y", Dir: w.path("machine"), Disk: w.path("disk"), Restore: at.Dir}
	if err := w.engine.CreateDisk(t.Context(), spec.Disk, machine.Base{Path: frozen, Format: "qcow2"}, 64); err != nil {
		t.Fatal(err)
	}
	m, err := w.engine.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return m
}
