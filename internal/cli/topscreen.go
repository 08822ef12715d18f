package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"

	"holt"
)

// live shows what is taken until it is interrupted or q is typed.
func (t *top) live(ctx context.Context, every time.Duration) error {
	rows, err := t.look(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer t.a.fullScreen(cancel)()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	for next := time.After(topFirst); ; {
		if _, err := io.WriteString(t.a.Out, topScreen(rows, sizeOf(t.a.Out))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil // that is how it ends
		case <-resized:
			continue
		case <-next:
		}
		if rows, err = t.look(ctx); ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		next = time.After(every)
	}
}

// fullScreen takes the whole terminal, which what it returns gives back, and calls quit when q is typed.
func (a *app) fullScreen(quit func()) (leave func()) {
	const enter, back = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // xterm's other screen, and the cursor
	fmt.Fprint(a.Out, enter)
	unkeyed := a.keys(func(key byte) {
		if key == 'q' || key == 'Q' {
			quit()
		}
	})
	return func() {
		unkeyed()
		fmt.Fprint(a.Out, back)
	}
}

// keys calls pressed with each key as it is typed, until what it returns is called; Ctrl-C still interrupts.
func (a *app) keys(pressed func(byte)) (restore func()) {
	f, ok := a.In.(*os.File)
	if !ok {
		return func() {}
	}
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {} // no terminal
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME], now.Cc[unix.VSUSP] = 1, 0, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &now) != nil {
		return func() {}
	}
	go func() { // ends with the program
		for b := make([]byte, 64); ; {
			n, err := f.Read(b)
			for _, key := range b[:n] {
				pressed(key)
			}
			if err != nil {
				return
			}
		}
	}()
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) } // it may be gone
}

// topScreen is what a terminal of a size shows of all: the sums, and as many rows and columns as there is place for.
func topScreen(all []topStats, size holt.TerminalSize) string {
	width, height := int(size.Cols), int(size.Rows)
	if width == 0 {
		width, height = 80, 24
	}
	lines := []string{topSums(all)}
	const around = 2 // the sums, and the head of the table
	more := ""
	if fits := max(1, height-around); len(all) > fits {
		fits = max(1, fits-1)
		more = fmt.Sprintf("… and %d more; enlarge the window, or use holt top NAME", len(all)-fits)
		all = all[:fits]
	}
	if len(all) > 0 {
		lines = append(lines, fitted(topHead, topRows(all), width)...)
	}
	if more != "" {
		lines = append(lines, more)
	}
	var out strings.Builder
	out.WriteString("\x1b[H") // from the top left; what was longer is wiped at the end of each line and below
	for i, line := range lines[:min(len(lines), max(1, height))] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(runewidth.Truncate(line, width, "…") + "\x1b[K")
	}
	return out.String() + "\x1b[J"
}

// topSums is the first line.
func topSums(all []topStats) string {
	if len(all) == 0 {
		return "no computers; quit with q"
	}
	var run int
	var cpu, in, out float64
	var memory int64
	for _, s := range all {
		if s.State == holt.ComputerRunning {
			run++
		}
		cpu, memory, in, out = cpu+s.CPUPercent, memory+s.ResidentBytes, in+s.ReceivedRate, out+s.SentRate
	}
	return fmt.Sprintf("%s, %d running: CPU %.0f %%, memory %s, in %s/s, out %s/s; quit with q",
		holt.CountOf(len(all), "computer"), run, cpu, size(memory), size(int64(in)), size(int64(out)))
}

// spareColumns are left out, in this order, where a table is too wide.
var spareColumns = [][]string{{"WORKSPACE"}, {"DISK"}, {"GUEST"}, {"IN", "OUT"}, {"IDLE"}, {"STATE"}}

// fitted are the lines of a table that is no wider than width, as far as that can be.
func fitted(head []string, rows [][]string, width int) (lines []string) {
	for _, spare := range append([][]string{nil}, spareColumns...) {
		for _, name := range spare {
			at := slices.Index(head, name)
			head = slices.Delete(slices.Clone(head), at, at+1)
			for i, row := range rows {
				rows[i] = slices.Delete(row, at, at+1)
			}
		}
		var table bytes.Buffer
		_ = printTable(&table, head, rows) // memory takes all
		lines = strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
		if widest(lines) <= width {
			break
		}
	}
	return lines
}

func widest(lines []string) (most int) {
	for _, line := range lines {
		most = max(most, runewidth.StringWidth(line))
	}
	return most
}
