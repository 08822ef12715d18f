package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run of everything.
type bench struct {
	sizes
	dir      string // everything made lies below it
	load     string // path of the load generator
	holt     string // path of the program under test
	imageDir string
	template string // of the machines
	only     string // words: a group's name and, behind a slash, part of a work's
	said     io.Writer
	log      *slog.Logger

	accelerator string // of the machines that were measured

	owned []owned
}

// sizes say how much of each work is done.
type sizes struct {
	rounds       int
	files        int // created, stat'ed, unpacked
	megabytes    int // of a large file, MiB
	syncs        int // random writes with fsync
	patience     time.Duration
	engineFiles  int // made without a mount
	queryFiles   int
	resident     int   // files made by one process
	afternoon    int   // files of the project that runs do harm to
	forks        []int // files of what is forked
	boots        int
	snapshots    int // of each computer and load
	runs         int // of `true`
	guestFiles   int
	guestMB      int // of a large file in a guest, MiB
	channelMB    int // through a channel each way, MiB
	apiCalls     int // of each kind
	apiTerminals int
	apiMB        int // of a large file, MiB
}

// normal are the sizes of the design's targets, in under an hour.
var (
	quick = sizes{
		rounds: 1, files: 500, megabytes: 32, syncs: 20, patience: time.Minute, engineFiles: 5000, queryFiles: 5000, resident: 5000, afternoon: 500, forks: []int{3000},
		boots: 1, snapshots: 1, runs: 3, guestFiles: 100, guestMB: 8, channelMB: 8, apiCalls: 320, apiTerminals: 20, apiMB: 64,
	}
	normal = sizes{
		rounds: 5, files: 30_000, megabytes: 1024, syncs: 2000, patience: 5 * time.Minute, engineFiles: 100_000, queryFiles: 200_000, resident: 1_000_000, afternoon: 30_000, forks: []int{100_000, 1_000_000},
		boots: 5, snapshots: 9, runs: 30, guestFiles: 1000, guestMB: 64, channelMB: 128, apiCalls: 8000, apiTerminals: 1000, apiMB: 10240,
	}
)

// group is one part of the document.
type group struct {
	name string
	run  func(context.Context, *bench) ([]*section, error)
}

// owned is something that must be gone when the bench ends.
type owned struct {
	what string
	end  func() error
}

// own has end called when the bench ends, before everything that was owned
// earlier, whatever happened; the returned function does it sooner.
func (b *bench) own(what string, end func() error) (release func() error) {
	done := false
	once := func() error {
		if done {
			return nil
		}
		done = true
		return end()
	}
	b.owned = append(b.owned, owned{what, once})
	return once
}

// close ends everything that is owned, the newest first.
func (b *bench) close() error {
	var errs []error
	for len(b.owned) > 0 {
		last := b.owned[len(b.owned)-1]
		b.owned = b.owned[:len(b.owned)-1]
		if err := last.end(); err != nil {
			errs = append(errs, fmt.Errorf("end %s: %w", last.what, err))
		}
	}
	return errors.Join(errs...)
}

// sub makes a directory for a part of the bench.
func (b *bench) sub(name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	return dir, os.MkdirAll(dir, 0o755)
}

// wants says whether a work of a group was asked for.
func (b *bench) wants(group, work string) bool {
	g, w, _ := strings.Cut(b.only, "/")
	return (g == "" || g == group) && strings.Contains(work, w)
}

// say tells the person who waits what is going on.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.said, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// work is a line of a table before it is measured.
type work[P any] struct {
	name    string
	unit    unit
	targets []target
	// measure does the work once in a place and returns its figure.
	measure func(ctx context.Context, p P) (float64, error)
	most    int // rounds; 0: as many as there are
	// setup is done once in a place, before and after in each round. They do not
	// count, and may be nil.
	setup, before, after func(ctx context.Context, p P) error
}

// column is a place with its name.
type column[P any] struct {
	name  string
	place P
}

// rounds does a work in all columns, round after round. What fails in one
// column has no figure there; only the end of ctx ends it. A column that is
// slow beyond measure is not asked twice.
func rounds[P any](ctx context.Context, b *bench, n int, w work[P], columns []column[P]) (*figure, error) {
	f := &figure{name: w.name, unit: w.unit, targets: w.targets}
	slow := map[string]bool{}
	if w.most > 0 {
		n = min(n, w.most)
	}
	for round := range n {
		for i := range columns {
			c := columns[(i+round)%len(columns)]
			if f.failed[c.name] != "" || slow[c.name] {
				f.add(c.name, nan)
				continue
			}
			start := time.Now()
			v, err := once(ctx, b.patience, w, c.place, round == 0)
			if ctx.Err() != nil {
				return f, ctx.Err()
			}
			if err != nil {
				b.say("%s, %s: %v", w.name, c.name, err)
				f.fail(c.name, err)
				continue
			}
			f.add(c.name, v)
			slow[c.name] = time.Since(start) > b.patience/4
		}
	}
	var line []string
	for _, c := range columns {
		line = append(line, c.name+" "+spread(f.samples[c.name]))
	}
	b.say("%s, %s: %s", w.name, w.unit.name, strings.Join(line, " · "))
	return f, nil
}

// once does a work in one place.
func once[P any](ctx context.Context, patience time.Duration, w work[P], p P, first bool) (v float64, err error) {
	v = nan
	if first && w.setup != nil {
		prepared, cancel := context.WithTimeout(ctx, 5*patience) // a million files take their time
		if err = w.setup(prepared, p); err != nil {
			err = fmt.Errorf("prepare: %w", err)
		}
		cancel()
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err == nil && w.before != nil {
		err = w.before(bounded, p)
	}
	if err == nil {
		unix.Sync() // so that nobody pays for what others left dirty
		v, err = w.measure(bounded, p)
	}
	if err != nil && bounded.Err() != nil {
		err = fmt.Errorf("not finished after %v", patience)
	}
	if w.after != nil {
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer stop()
		err = errors.Join(err, w.after(late, p))
	}
	return v, err
}

// command runs a program and returns what it printed. It has a process group
// of its own, which dies with ctx.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args[:min(1, len(args))], " "), err, firstLine(complaint.String()))
	}
	return out, nil
}

// timed returns how long a program ran, in seconds.
func timed(ctx context.Context, name string, args ...string) (float64, error) {
	start := time.Now()
	_, err := command(ctx, name, args...)
	return time.Since(start).Seconds(), err
}
