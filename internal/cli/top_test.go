package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"

	"holt"
)

// TestRates: what is taken is said a second, of a first answer and of a machine that began anew nothing.
func TestRates(t *testing.T) {
	at := time.Now()
	first := holt.ComputerStats{At: at, CPUMS: 1000, Sent: 100, Received: 1000}
	next := holt.ComputerStats{At: at.Add(2 * time.Second), CPUMS: 4000, Sent: 300, Received: 5000}
	if got := rates(first, next); got.CPUPercent != 150 || got.SentRate != 100 || got.ReceivedRate != 2000 {
		t.Errorf("got %+v", got)
	}
	if got := rates(holt.ComputerStats{}, next); got.CPUPercent != 0 || got.SentRate != 0 {
		t.Errorf("of one answer: %+v", got)
	}
	next.CPUMS = 10
	if got := rates(first, next); got.CPUPercent != 0 || got.ReceivedRate != 2000 {
		t.Errorf("of another machine: %+v", got)
	}
}

// TestTopScreen: what is shown is never more than the terminal has place for, and says so.
func TestTopScreen(t *testing.T) {
	var all []topStats
	for i := range 30 {
		all = append(all, topStats{ComputerStats: holt.ComputerStats{Computer: fmt.Sprintf("a-rather-long-name-%d", i), State: holt.ComputerRunning, ResidentBytes: 1 << 20}})
	}
	all[29].State = holt.ComputerPaused
	for _, size := range []holt.TerminalSize{{Rows: 50, Cols: 200}, {Rows: 40, Cols: 80}, {Rows: 12, Cols: 60}, {Rows: 3, Cols: 20}, {Rows: 1, Cols: 1}, {}} {
		screen := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(topScreen(all, size))
		lines := strings.Split(screen, "\r\n")
		rows, cols := int(size.Rows), int(size.Cols)
		if cols == 0 {
			rows, cols = 24, 80
		}
		for _, line := range lines {
			if runewidth.StringWidth(line) > cols {
				t.Errorf("%+v: too wide: %q", size, line)
			}
		}
		if len(lines) > rows {
			t.Errorf("%+v: %d lines", size, len(lines))
		}
		if cols >= 80 && !strings.HasPrefix(screen, "30 computers, 29 running: CPU 0 %, memory 30.0 MiB") {
			t.Errorf("%+v: %s", size, lines[0])
		}
		if last := lines[len(lines)-1]; rows < 32 && rows > 3 && !strings.HasPrefix(last, fmt.Sprintf("… and %d more", 30-(rows-3))) {
			t.Errorf("%+v: the last line is %q", size, last)
		}
	}
	for cols, head := range map[int]string{200: "NAME STATE CPU MEMORY GUEST DISK WORKSPACE IN OUT IDLE", 60: "NAME STATE CPU MEMORY IDLE", 40: "NAME CPU MEMORY"} {
		lines := strings.Split(topScreen(all, holt.TerminalSize{Rows: 50, Cols: uint16(cols)}), "\r\n")
		if got := strings.Join(strings.Fields(strings.TrimSuffix(lines[1], "\x1b[K")), " "); got != head {
			t.Errorf("at %d columns: %q, want %q", cols, got, head)
		}
	}
	if got := topScreen(nil, holt.TerminalSize{Rows: 5, Cols: 80}); !strings.Contains(got, "no computers") {
		t.Errorf("of none: %q", got)
	}
}
