package qemu

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// endFile is QEMU's trace of its states and of requests by the guest. QEMU
// writes it even if no daemon runs. A start empties it.
const endFile = "end.log"

// maxEnd is how much of the end of a log is read, bytes.
const maxEnd = 32 << 10

// traceArgs make QEMU write that trace. A QEMU built without the log backend writes nothing.
func traceArgs(dir string) []string {
	return []string{"-trace", "runstate_set", "-trace", "qemu_system_shutdown_request", "-D", escape(filepath.Join(dir, endFile))}
}

// Ended implements [machine.Engine].
//
// With -no-reboot a reset ends QEMU like a power-off, but only a power-off is traced as a request. A kernel that panics
// resets the machine at once (panic=-1) and prints the reason on the console. SIGTERM leaves the trace of a reset: see
// [guest.note] and otherBoot.
func (e *Engine) Ended(dir string) machine.Ending {
	if otherBoot(dir) {
		return machine.Ending{}
	}
	trace := endOf(filepath.Join(dir, endFile))
	if !bytes.Contains(trace, []byte("(shutdown)\n")) {
		return machine.Ending{}
	}
	if bytes.Contains(trace, []byte("qemu_system_shutdown_request ")) {
		return machine.Ending{Kind: machine.EndOff}
	}
	console := endOf(filepath.Join(dir, machine.ConsoleFile))
	if i := bytes.LastIndex(console, []byte(consoleMark)); i >= 0 {
		console = console[i:]
	}
	if _, said, ok := bytes.Cut(console, []byte(panicMark)); ok {
		line, _, _ := bytes.Cut(said, []byte("\n"))
		return machine.Ending{Kind: machine.EndPanic, Panic: holt.Clip(printable(line), 160)}
	}
	return machine.Ending{Kind: machine.EndReboot}
}

// otherBoot reports whether the machine was started before the host. The host's
// shutdown sends SIGTERM to every QEMU, after the daemon has ended. Trap:
// SIGTERM without a daemon and without a shutdown still counts as a reset.
func otherBoot(dir string) bool {
	d, err := machine.OpenDir(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	r, err := d.ReadRecord()
	now, failed := machine.BootID()
	return err == nil && failed == nil && r.Process.BootID != now
}

const (
	consoleMark = "\n[holt: machine " // begins a machine's part of the console log
	panicMark   = "Kernel panic - not syncing: "
)

func printable(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(b)))
}

// endOf returns the end of a file; empty if it does not exist.
func endOf(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxEnd), maxEnd))
	return b
}

// trimEnd frees the part of the trace that Ended does not read. QEMU keeps its
// file offset, so the file keeps its size.
func (g *guest) trimEnd() {
	f, err := os.OpenFile(g.Dir.File(endFile), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 2*maxEnd {
		_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, info.Size()-maxEnd)
	}
}

// emptyEnd creates an empty trace file for a new machine.
func (g *guest) emptyEnd() error {
	if err := os.WriteFile(g.Dir.File(endFile), nil, 0o600); err != nil {
		return fmt.Errorf("create log of machine's end: %w", err)
	}
	return nil
}
