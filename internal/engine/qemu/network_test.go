package qemu

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"holt/internal/engine/machine"
)

// slowToListen is a QEMU whose threads listen only after some seconds, as on a busy host.
const slowToListen = `#!/bin/sh
exec strace -D -f -qq -o /dev/null -e trace=listen -e inject=listen:delay_enter=3000000:when=1 %s "$@"
`

// A machine continues, and announces itself, only when QEMU has a socket for its frames.
func TestNetworkNotListening(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatal("strace is not installed: scripts/test-deps installs what the tests use")
	}
	e := emulated(t, monitorWait)
	w := newWorld(t, e, 128)
	w.ask(t, w, "link")
	image, frozen := w.path("image"), w.Disk()
	if _, err := w.Snapshot(t.Context(), machine.SnapshotSpec{Dir: image, Disk: w.path("disk"), End: true}); err != nil {
		t.Fatal(err)
	}
	slow := emulated(t, monitorWait)
	slow.apart = false // whoever is traced to be put in a jail cannot be by strace
	slow.verdict.Binary = filepath.Join(w.dir, "slow")
	if err := os.WriteFile(slow.verdict.Binary, fmt.Appendf(nil, slowToListen, e.verdict.Binary), 0o700); err != nil {
		t.Fatal(err)
	}
	own := w.path("disk")
	if err := e.CreateDisk(t.Context(), own, machine.Base{Path: frozen, Format: "qcow2"}, 64); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := slow.Start(ctx, machine.Spec{ID: "y", Dir: w.path("machine"), Disk: own, Restore: image})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	w.ask(t, m, "link")
}

// The network process may die at any time, with frames queued in either direction.
func TestNetworkKilled(t *testing.T) {
	w := newWorld(t, emulated(t, monitorWait), 128)
	w.ask(t, w, "link")
	for i, size := range []int{60, 1500, 16 << 10} {
		if err := w.monitor.do(t.Context(), "stop", nil, nil); err != nil {
			t.Fatal(err)
		}
		conn := w.plug(t)
		fill(t, conn, size)
		conn.Close()
		if err := w.monitor.do(t.Context(), "cont", nil, nil); err != nil {
			t.Fatal(err)
		}
		w.ask(t, w, "count")
		conn = w.plug(t)
		before := w.ask(t, w, "link")
		sendFrame(t, conn, 60)
		for end := time.Now().Add(time.Minute); w.ask(t, w, "link") == before; {
			if time.Now().After(end) {
				t.Fatalf("after the link has ended %d times nothing arrives: %s", i+1, before)
			}
		}
		conn.Close()
	}
}

// plug connects to the guest's network.
func (w *world) plug(t *testing.T) net.Conn {
	t.Helper()
	conn, err := w.Dir.DialFrames(t.Context(), networkSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendFrame sends the guest a broadcast frame.
func sendFrame(t *testing.T, conn net.Conn, size int) error {
	t.Helper()
	frame := make([]byte, 4+size)
	binary.BigEndian.PutUint32(frame, uint32(size))
	copy(frame[4:], "\xff\xff\xff\xff\xff\xff\x52\x55\x0a\x00\x02\x02\x88\xb5")
	_, err := conn.Write(frame)
	return err
}

// fill sends frames until QEMU accepts no more.
func fill(t *testing.T, conn net.Conn, size int) {
	t.Helper()
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	n := 0
	for sendFrame(t, conn, size) == nil {
		n++
	}
	conn.SetWriteDeadline(time.Time{})
	t.Logf("%d frames of %d bytes wait", n, size)
}
