package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const enginesAbout = `
A computer of each engine, of template *%s* with one virtual processor and 512 MiB, through the Go client, in turn. For comparison, a chroot into the same root file system on this machine.
The computer that is forked and paused has a program that holds 200 MiB. *Memory without the guest's* is the memory of all processes of an idle sandbox,
without the file that is the guest's memory.`

const (
	gvisorColumn = "gvisor"
	tcgColumn    = "emulated"
	chrootColumn = "chroot"
)

// seat is a computer of an engine, or without one a chroot into the template's root.
type seat struct {
	d      *daemon
	engine string
	root   string // of the chroot
}

func (s *seat) computer() string { return "seat-" + s.engine }

func (s *seat) spec(name string) holt.ComputerSpec {
	return holt.ComputerSpec{Name: name, Template: s.d.b.template, Engine: s.engine, CPUs: 1, MemoryMB: 512}
}

// sh runs a shell command and returns its output.
func (s *seat) sh(ctx context.Context, script string) ([]byte, error) {
	if s.engine == "" {
		return command(ctx, "chroot", s.root, "/bin/sh", "-c", script)
	}
	return s.d.run(ctx, s.computer(), "/bin/sh", "-c", script)
}

// run runs `true` by itself.
func (s *seat) run(ctx context.Context) error {
	if s.engine == "" {
		_, err := command(ctx, "chroot", s.root, "/bin/true")
		return err
	}
	_, err := s.d.run(ctx, s.computer(), "/bin/true")
	return err
}

// loop counts in Python for two seconds and prints passes per second.
const loop = `python3 -c '
import time
began, n = time.perf_counter(), 0
while time.perf_counter() - began < 2:
    for i in range(100000): n += 1
print(n / (time.perf_counter() - began))'`

// enginesSection compares the engines.
func enginesSection(ctx context.Context, d *daemon, _, dir string) (*section, error) {
	gvisor, tcg, native := &seat{d: d, engine: "gvisor"}, &seat{d: d, engine: "qemu"}, &seat{d: d, root: filepath.Join(dir, "chroot")}
	if err := native.enter(ctx); err != nil {
		return nil, err
	}
	for _, s := range []*seat{gvisor, tcg} {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	s := &section{
		title: "Engines without KVM, compared", about: fmt.Sprintf(enginesAbout, d.b.template),
		columns: []string{gvisorColumn, tcgColumn, chrootColumn}, ratios: [][2]string{{gvisorColumn, tcgColumn}, {gvisorColumn, chrootColumn}},
	}
	engines := []column[*seat]{{gvisorColumn, gvisor}, {tcgColumn, tcg}}
	all := append(engines[:2:2], column[*seat]{chrootColumn, native})
	most := func(limit float64) []target { return []target{{gvisorColumn, "", limit}} }
	for _, w := range []struct {
		work[*seat]
		in []column[*seat]
	}{
		{work[*seat]{name: "create from a template → first command answered", unit: millis, targets: most(250), measure: createSeat, after: deleteOther}, engines},
		{work[*seat]{name: "run of a program (`true`), warm", unit: millis, targets: most(20), measure: shortRuns}, all},
		{work[*seat]{name: "fork → first command answered", unit: millis, targets: most(350), measure: forkSeats(1)}, engines},
		{work[*seat]{name: "four forks at once → all have answered", unit: millis, measure: forkSeats(4), most: 3}, engines},
		{work[*seat]{name: "pause, whole", unit: millis, targets: most(150), measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			err := pauseSeat(ctx, s)
			return sinceMS(began), err
		}, after: func(ctx context.Context, s *seat) error { return s.run(ctx) }}, engines},
		{work[*seat]{name: "resume → first command answered", unit: millis, targets: most(350), before: pauseSeat, measure: oneRun}, engines},
		{work[*seat]{name: "Python loop", unit: perSecond, targets: []target{{gvisorColumn, chrootColumn, 0.95}}, measure: func(ctx context.Context, s *seat) (float64, error) {
			out, err := s.sh(ctx, loop)
			if err != nil {
				return nan, err
			}
			return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		}}, all},
		{work[*seat]{name: "100 × fork and exec of `true`", unit: millis, measure: timedIn("for i in $(seq 100); do /bin/true; done")}, all},
		{work[*seat]{name: "git status, 20,000 files in the workspace", unit: millis, targets: most(1000), most: 3, setup: func(ctx context.Context, s *seat) error {
			_, err := s.sh(ctx, "export HOME=/root; cd /home/agent && git init -q tree && cd tree && for d in $(seq 100); do mkdir $d; (cd $d; for f in $(seq 200); do echo $f > $f; done); done; git add -A && git status > /dev/null")
			return err
		}, measure: timedIn("cd /home/agent/tree && git -c safe.directory='*' status > /dev/null")}, engines[:1]},
		{work[*seat]{name: "memory without the guest's", unit: megabytesHeld, targets: most(40), measure: func(ctx context.Context, s *seat) (float64, error) { return s.overhead(ctx) }}, engines[:1]},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, w.work, w.in)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

// enter mounts the template's root where the chroot is to be.
func (s *seat) enter(ctx context.Context) error {
	img, err := s.d.b.image(ctx)
	if err == nil {
		err = os.MkdirAll(s.root, 0o755)
	}
	if err == nil {
		_, err = command(ctx, "mount", "-o", "loop,ro,noload", img.Root, s.root)
	}
	if err == nil {
		s.d.b.own("the chroot", func() error { return unix.Unmount(s.root, 0) })
	}
	return err
}

// open makes the computer, and has a program in it hold 200 MiB.
func (s *seat) open(ctx context.Context) error {
	if _, err := s.d.client.Computers.Create(ctx, s.spec(s.computer()), ""); err != nil {
		return err
	}
	if err := s.d.settle(ctx, s.computer()); err != nil {
		return err
	}
	hold := holt.RunSpec{Argv: holt.OSStrings{"python3", "-c", "import time; b = bytearray(b'x') * (200 << 20); open('/run/held', 'w').close(); time.sleep(1e6)"}, User: "root", Cwd: "/"}
	if _, err := s.d.client.Runs.Start(ctx, s.computer(), hold, ""); err != nil {
		return err
	}
	_, err := s.sh(ctx, "until [ -e /run/held ]; do sleep 0.1; done")
	return err
}

// otherSeat is a computer that is made to be measured, and deleted.
const otherSeat = "other"

// createSeat measures how long it takes to make a computer that answers.
func createSeat(ctx context.Context, s *seat) (float64, error) {
	began := time.Now()
	_, err := s.d.client.Computers.Create(ctx, s.spec(otherSeat), "")
	if err == nil {
		_, err = s.d.run(ctx, otherSeat, "/bin/true")
	}
	return sinceMS(began), err
}

// deleteOther deletes what createSeat has made.
func deleteOther(ctx context.Context, s *seat) error {
	_, err := s.d.client.Computers.Delete(ctx, otherSeat, "")
	return err
}

// shortRuns measures them.
func shortRuns(ctx context.Context, s *seat) (float64, error) {
	return measureRuns(ctx, caller{s.run, s.d.b.runs})
}

// oneRun measures a run; a paused computer is resumed for it.
func oneRun(ctx context.Context, s *seat) (float64, error) {
	began := time.Now()
	err := s.run(ctx)
	return sinceMS(began), err
}

func pauseSeat(ctx context.Context, s *seat) error {
	_, err := s.d.client.Computers.Pause(ctx, s.computer(), "")
	return err
}

// forkSeats measures n forks at once.
func forkSeats(n int) func(context.Context, *seat) (float64, error) {
	return func(ctx context.Context, s *seat) (float64, error) { return s.d.fork(ctx, s.computer(), n, nil) }
}

// timedIn measures a shell command.
func timedIn(script string) func(context.Context, *seat) (float64, error) {
	return func(ctx context.Context, s *seat) (float64, error) {
		began := time.Now()
		_, err := s.sh(ctx, script)
		return sinceMS(began), err
	}
}

// overhead is the memory, 10⁶ bytes, of all processes of a computer's sandbox without the guest's.
func (s *seat) overhead(ctx context.Context) (float64, error) {
	c, err := s.d.client.Computers.Get(ctx, s.computer())
	if err != nil {
		return nan, err
	}
	init, err := s.d.process(c.ID)
	if err != nil {
		return nan, err
	}
	sum := 0.0
	for _, pid := range machine.Descendants(init) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "Pss_Anon:" || f[0] == "Pss_File:") {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return nan, err
				}
				sum += kib * 1024 / 1e6
			}
		}
	}
	return sum, nil
}
