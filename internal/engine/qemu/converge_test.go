package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

// busy simulates a QEMU under KVM whose guest changes memory as fast as
// possible. Each query of the migration sees another round and, as configured,
// more throttling. The migration completes once the time to copy the rest is
// within the allowed downtime.
type busy struct {
	t    *testing.T
	conn *net.UnixConn

	mu     sync.Mutex // guards what follows
	left   int        // ms
	calm   int        // from this round on nothing is left
	out    *os.File   // that it migrates to
	told   map[string]int
	can    map[string]bool
	forced []int // the rounds at which it was told that the guest may stand for ever
	held   []int // how far the guest was held back at each look, percent
	rounds int
	copied int // when all of memory was, if that was before the processors could run

	status, migration string
}

const (
	beforeAsked = iota + 1 // before anybody asked how far it is
	beforeRun              // before they were let run
)

// play starts a simulation and returns its machine.
func play(t *testing.T) (*busy, *guest) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "monitor")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
	}
	b := &busy{t: t, conn: ends[1], told: map[string]int{}, can: map[string]bool{}, status: "running", migration: "none"}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.serve()
	}()
	q, err := openQMP(t.Context(), ends[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.close()
		<-ended
	})
	e := &Engine{verdict: Verdict{Accel: machine.AccelKVM}, log: slog.New(slog.DiscardHandler), wait: time.Second}
	dir := &machine.Dir{Path: t.TempDir()}
	if err := os.WriteFile(dir.File(machine.InitrdFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGuest(e, dir, machine.Spec{ID: "x", CPUs: 1, MemoryMB: 1}, Hardware{CPUs: 1, MemoryMB: 1})
	g.monitor = q
	return b, g
}

// serve answers commands one after the other.
func (b *busy) serve() {
	defer b.conn.Close()
	fmt.Fprint(b.conn, greeting)
	line, rights := make([]byte, 1<<16), make([]byte, 1<<10)
	for {
		n, more, _, _, err := b.conn.ReadMsgUnix(line, rights)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				b.t.Error(err)
			}
			return
		}
		if n == 0 {
			return
		}
		var c struct {
			Execute   string
			Arguments json.RawMessage
			ID        uint64
		}
		if err := json.Unmarshal(line[:n], &c); err != nil {
			b.t.Errorf("command %q: %v", line[:n], err)
		}
		answer := b.answer(c.Execute, c.Arguments, rights[:more])
		if err, refused := answer.(error); refused {
			fmt.Fprintf(b.conn, `{"error": {"class": "GenericError", "desc": %q}, "id": %d}`+"\n", err, c.ID)
			continue
		}
		said, err := json.Marshal(answer)
		if err != nil {
			b.t.Error(err)
		}
		fmt.Fprintf(b.conn, `{"return": %s, "id": %d}`+"\n", said, c.ID)
	}
}

func (b *busy) answer(command string, args json.RawMessage, rights []byte) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	none := struct{}{}
	switch command {
	case "qmp_capabilities":
	case "query-status":
		return map[string]string{"status": b.status}
	case "migrate-set-capabilities":
		var told struct {
			Capabilities []struct {
				Capability string
				State      bool
			}
		}
		b.ok(json.Unmarshal(args, &told))
		for _, c := range told.Capabilities {
			b.can[c.Capability] = c.State
		}
	case "migrate-set-parameters":
		b.ok(json.Unmarshal(args, &b.told))
		if b.told["downtime-limit"] == maxDowntime {
			b.forced = append(b.forced, b.rounds)
		}
	case "getfd":
		messages, err := unix.ParseSocketControlMessage(rights)
		b.ok(err)
		fds, err := unix.ParseUnixRights(&messages[0])
		b.ok(err)
		b.out = os.NewFile(uintptr(fds[0]), "migration")
	case "migrate":
		b.migration, b.rounds, b.held, b.forced = statusActive, 0, nil, nil
		if b.copied == beforeAsked {
			b.status, b.migration = "finish-migrate", statusPreSwitchover
		}
	case "stop":
		b.status = "paused"
	case "query-migrate":
		return b.look()
	case "migrate-continue":
		b.status, b.migration = "postmigrate", statusCompleted
		_, err := b.out.Write(small())
		b.ok(errors.Join(err, b.out.Close()))
	case "cont":
		if b.copied == beforeRun && b.migration == statusActive {
			b.status = "finish-migrate"
		}
		if b.status == "finish-migrate" {
			return errors.New("Migration is not finalized yet")
		}
		b.status = "running"
	default:
		b.t.Errorf("command %s", command)
	}
	return none
}

// look answers query-migrate.
func (b *busy) look() any {
	if b.migration == statusActive {
		if b.rounds++; b.rounds > 2 && b.can["auto-converge"] {
			b.held = append(b.held, b.throttle())
		}
		if b.rounds == b.calm {
			b.left = 0
		}
		if b.can["pause-before-switchover"] && b.rounds > 1 && b.left <= b.told["downtime-limit"] {
			b.status, b.migration = "finish-migrate", statusPreSwitchover
		}
	}
	var now migration
	now.Status, now.RAM.Rounds = b.migration, b.rounds
	if len(b.held) > 0 {
		now.Throttle = b.held[len(b.held)-1]
	}
	return now
}

// throttle returns the next throttle percentage.
func (b *busy) throttle() int {
	if len(b.held) == 0 {
		return b.told["cpu-throttle-initial"]
	}
	return min(b.held[len(b.held)-1]+b.told["cpu-throttle-increment"], b.told["max-cpu-throttle"])
}

func (b *busy) ok(err error) {
	if err != nil {
		b.t.Error(err)
	}
}

// small returns a stream of a machine with 1 MiB of memory and one page in it.
func small() []byte {
	var r recording
	r.begin(256)
	r.part(sectionEnd)
	r.page(memoryBlock, 6, 6)
	r.close()
	r.WriteByte(sectionFull)
	r.WriteString("devices")
	return r.Bytes()
}

// A guest that changes memory faster than it can be copied is throttled more
// and more, and stopped for the rest when the rounds are exhausted; the report
// says so, and the guest continues. A guest that slows down in time, even in
// the last round, is stopped no longer than requested, also after such a
// snapshot.
func TestConverge(t *testing.T) {
	const rounds = 7
	b, g := play(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, want := range []struct {
		left, calm, limit int
		forced, held      []int
		report            machine.SnapshotReport
	}{
		{maxDowntime, 0, maxDowntime, []int{rounds}, []int{40, 60, 80, 90, 90, 90}, machine.SnapshotReport{Rounds: rounds + 1, Throttle: 90, Forced: true}},
		{25, 0, 25, nil, nil, machine.SnapshotReport{Rounds: 2}},
		{maxDowntime, rounds, 25, nil, []int{40, 60, 80, 90, 90}, machine.SnapshotReport{Rounds: rounds, Throttle: 90}},
	} {
		b.mu.Lock()
		b.left, b.calm = want.left, want.calm
		b.mu.Unlock()
		spec, err := machine.SnapshotSpec{Dir: filepath.Join(t.TempDir(), "image"), MaxRounds: rounds, Pause: 25 * time.Millisecond}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		s := &snapshot{guest: g, spec: spec}
		s.report.MemoryBytes = int64(g.hardware.MemoryMB) * mib
		if err := s.take(ctx); err != nil {
			t.Fatalf("snapshot %d after %d rounds: %v", i, s.report.Rounds, err)
		}
		want.report.MemoryBytes, want.report.DataBytes, want.report.StateBytes = s.report.MemoryBytes, pageSize, s.report.StateBytes
		im, err := machine.ReadImage(spec.Dir)
		if err != nil || s.report != want.report || im.Report != want.report {
			t.Errorf("snapshot %d: %+v, and the image says %+v, want %+v (%v)", i, s.report, im.Report, want.report, err)
		}
		b.mu.Lock()
		if b.told["downtime-limit"] != want.limit || !slices.Equal(b.forced, want.forced) || !slices.Equal(b.held, want.held) {
			t.Errorf("snapshot %d: it may stand for %d ms, for ever after rounds %v, and was held back by %v", i, b.told["downtime-limit"], b.forced, b.held)
		}
		if b.status != "running" {
			t.Errorf("after snapshot %d the guest is %s", i, b.status)
		}
		b.mu.Unlock()
		memory, err := os.ReadFile(filepath.Join(spec.Dir, machine.MemoryFile))
		if err != nil || len(memory) != mib || !bytes.Equal(memory[6*pageSize:7*pageSize], bytes.Repeat([]byte{6}, pageSize)) {
			t.Errorf("memory of snapshot %d: %d bytes, %v", i, len(memory), err)
		}
	}
}

// TestCopiedBeforeItRuns: a guest whose memory is copied before its processors
// run again stays stopped until the snapshot is complete, and continues.
func TestCopiedBeforeItRuns(t *testing.T) {
	for _, when := range []int{beforeAsked, beforeRun} {
		b, g := play(t)
		g.engine.verdict.Accel = machine.AccelTCG
		b.copied = when
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		spec, err := machine.SnapshotSpec{Dir: filepath.Join(t.TempDir(), "image")}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		s := &snapshot{guest: g, spec: spec}
		if err := s.take(ctx); err != nil {
			t.Fatalf("%d: %v", when, err)
		}
		b.mu.Lock()
		if b.status != "running" || b.migration != statusCompleted {
			t.Errorf("%d: the guest is %s, the migration %s", when, b.status, b.migration)
		}
		b.mu.Unlock()
	}
}
