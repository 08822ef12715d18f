package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"holt"
)

const enginesAbout = `
A computer of each engine, of template *%s* with one virtual processor and 512 MiB, through the Go client, in turn; and, where that means something, a chroot into the same
root file system on this machine. A program in the computer that is forked and paused holds 200 MiB. *Memory beside the guest's own* is what the processes of an idle
sandbox hold without the file that is the guest's memory.`

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

// loop counts in Python and prints passes a second by the clock beside it.
const loop = `python3 -c '
import time
began, n = time.perf_counter(), 0
while time.perf_counter() - began < 2:
    for i in range(100000): n += 1
print(n / (time.perf_counter() - began))'`

// enginesSection measures the engines beside each other.
func enginesSection(ctx context.Context, d *daemon, _, dir string) (*section, error) {
	gvisor, tcg, native := &seat{d: d, engine: "gvisor"}, &seat{d: d, engine: "qemu"}, &seat{d: d, root: filepath.Join(dir, "chroot")}
	if err := native.enter(ctx); err != nil {
		return nil, err
	}
	for _, s := range []*seat{gvisor, tcg} {
		if _, err := d.client.Computers.Create(ctx, s.spec(s.computer()), ""); err != nil {
			return nil, err
		}
		if err := d.settle(ctx, s.computer()); err != nil {
			return nil, err
		}
		hold := holt.RunSpec{Argv: holt.OSStrings{"python3", "-c", "import time; b = bytearray(b'x') * (200 << 20); open('/run/held', 'w').close(); time.sleep(1e6)"}, User: "root", Cwd: "/"}
		if _, err := d.client.Runs.Start(ctx, s.computer(), hold, ""); err != nil {
			return nil, err
		}
		if _, err := s.sh(ctx, "until [ -e /run/held ]; do sleep 0.1; done"); err != nil {
			return nil, err
		}
	}
	s := &section{
		title: "Engines without KVM, beside each other", about: fmt.Sprintf(enginesAbout, d.b.template),
		columns: []string{gvisorColumn, tcgColumn, chrootColumn}, ratios: [][2]string{{gvisorColumn, tcgColumn}, {gvisorColumn, chrootColumn}},
	}
	engines := []column[*seat]{{gvisorColumn, gvisor}, {tcgColumn, tcg}}
	all := append(engines[:2:2], column[*seat]{chrootColumn, native})
	most := func(limit float64) []target { return []target{{gvisorColumn, "", limit}} }
	for _, w := range []struct {
		work[*seat]
		in []column[*seat]
	}{
		{work[*seat]{name: "create from a template → first command answered", unit: millis, targets: most(250), measure: creates, after: removes}, engines},
		{work[*seat]{name: "run of a program (`true`), warm", unit: millis, targets: most(20), measure: func(ctx context.Context, s *seat) (float64, error) {
			return measureRuns(ctx, caller{s.run, d.b.runs})
		}}, all},
		{work[*seat]{name: "fork → first command answered", unit: millis, targets: most(350), measure: forks(1), after: removes}, engines},
		{work[*seat]{name: "four forks at once → all have answered", unit: millis, measure: forks(4), after: removes, most: 3}, engines},
		{work[*seat]{name: "pause, whole", unit: millis, targets: most(150), measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			_, err := d.client.Computers.Pause(ctx, s.computer(), "")
			return sinceMS(began), err
		}, after: func(ctx context.Context, s *seat) error { return s.run(ctx) }}, engines},
		{work[*seat]{name: "resume → first command answered", unit: millis, targets: most(350), before: func(ctx context.Context, s *seat) error {
			_, err := d.client.Computers.Pause(ctx, s.computer(), "")
			return err
		}, measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			err := s.run(ctx)
			return sinceMS(began), err
		}}, engines},
		{work[*seat]{name: "Python loop", unit: perSecond, targets: []target{{gvisorColumn, chrootColumn, 0.95}}, measure: func(ctx context.Context, s *seat) (float64, error) {
			out, err := s.sh(ctx, loop)
			if err != nil {
				return nan, err
			}
			return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		}}, all},
		{work[*seat]{name: "100 × fork and exec of `true`", unit: millis, measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			_, err := s.sh(ctx, "for i in $(seq 100); do /bin/true; done")
			return sinceMS(began), err
		}}, all},
		{work[*seat]{name: "git status, 20,000 files in the workspace", unit: millis, targets: most(1000), most: 3, setup: func(ctx context.Context, s *seat) error {
			_, err := s.sh(ctx, "export HOME=/root; cd /home/agent && git init -q tree && cd tree && for d in $(seq 100); do mkdir $d; (cd $d; for f in $(seq 200); do echo $f > $f; done); done; git add -A && git status > /dev/null")
			return err
		}, measure: func(ctx context.Context, s *seat) (float64, error) {
			began := time.Now()
			_, err := s.sh(ctx, "cd /home/agent/tree && git -c safe.directory='*' status > /dev/null")
			return sinceMS(began), err
		}}, engines[:1]},
		{work[*seat]{name: "memory beside the guest's own", unit: megabytesHeld, targets: most(40), measure: func(ctx context.Context, s *seat) (float64, error) { return s.beside(ctx) }}, engines[:1]},
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
	all, err := s.d.client.Images.List(ctx)
	if err != nil {
		return err
	}
	for _, im := range all {
		if im.Template != s.d.b.template || !im.Built {
			continue
		}
		if err := os.MkdirAll(s.root, 0o755); err != nil {
			return err
		}
		if _, err := command(ctx, "mount", "-o", "loop,ro,noload", filepath.Join(s.d.b.imageDir, "roots", im.Digest, "root.ext4"), s.root); err != nil {
			return err
		}
		s.d.b.own("the chroot", func() error { return unix.Unmount(s.root, 0) })
		return nil
	}
	return fmt.Errorf("template %s has no image", s.d.b.template)
}

func creates(ctx context.Context, s *seat) (float64, error) {
	began := time.Now()
	_, err := s.d.client.Computers.Create(ctx, s.spec("other-0"), "")
	if err == nil {
		_, err = s.d.run(ctx, "other-0", "/bin/true")
	}
	return sinceMS(began), err
}

// forks measures a fork into n computers, each of which runs a command.
func forks(n int) func(context.Context, *seat) (float64, error) {
	return func(ctx context.Context, s *seat) (float64, error) {
		began := time.Now()
		made, err := s.d.client.Computers.Fork(ctx, s.computer(), holt.ComputerForkSpec{Name: "other", Count: n}, "")
		if err != nil {
			return nan, err
		}
		var all errgroup.Group
		for _, f := range made.Computers {
			if f.Error != nil {
				return nan, f.Error
			}
			all.Go(func() error { _, err := s.d.run(ctx, f.Name, "/bin/true"); return err })
		}
		err = all.Wait()
		return sinceMS(began), err
	}
}

// removes deletes what was made of a computer.
func removes(ctx context.Context, s *seat) error {
	all, err := s.d.client.Computers.List(ctx)
	for _, c := range all {
		if strings.HasPrefix(c.Name, "other") {
			if _, lost := s.d.client.Computers.Delete(ctx, c.Name, ""); lost != nil {
				err = lost
			}
		}
	}
	return err
}

// beside returns the memory, MB, of the processes of a computer's sandbox without the guest's.
func (s *seat) beside(ctx context.Context) (float64, error) {
	c, err := s.d.client.Computers.Get(ctx, s.computer())
	if err != nil {
		return nan, err
	}
	var record struct{ Process struct{ PID int } }
	b, err := os.ReadFile(filepath.Join(s.d.data, "computers", string(c.ID), "machine.json"))
	if err == nil {
		err = json.Unmarshal(b, &record)
	}
	if err != nil {
		return nan, err
	}
	kib := 0
	for _, pid := range descendants(record.Process.PID) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range bytes.Lines(b) {
			if f := bytes.Fields(line); len(f) > 1 && (string(f[0]) == "Pss_Anon:" || string(f[0]) == "Pss_File:") {
				n, _ := strconv.Atoi(string(f[1]))
				kib += n
			}
		}
	}
	return float64(kib) * 1024 / 1e6, nil
}

// descendants returns a process and all that it and they have started.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			for _, f := range bytes.Fields(b) {
				if n, err := strconv.Atoi(string(f)); err == nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}
