package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holt"
)

const registryAbout = `
The daemon's resident memory, a minute after it has made, started and stopped all of its computers (engine *local*); each round is a daemon of its own.`

// registered is how many computers a daemon has whose memory is measured.
const registered = 50

// atRest is how long a daemon is left alone before its memory is measured: Go gives
// what a burst of work took back to the kernel little by little.
const atRest = time.Minute

// registryRounds is how many daemons are measured. They rest together.
const registryRounds = 3

// registrySection measures what computers cost that only exist. They are of the local
// engine, which makes fifty in seconds; for the daemon it is one registry.
func registrySection(ctx context.Context, b *bench, dir string) (*section, error) {
	engine := b.accelerator
	defer func() { b.accelerator = engine }()
	f := &figure{name: fmt.Sprintf("resident memory of a daemon with %d stopped computers", registered), unit: megabytesHeld, targets: []target{{column: apiColumn, limit: 80}}}
	var daemons []*daemon
	for i := range min(registryRounds, b.rounds) {
		d, err := startDaemon(ctx, b, filepath.Join(dir, fmt.Sprint("registry-", i)), "local")
		if err != nil {
			return nil, err
		}
		daemons = append(daemons, d)
		if err := d.register(ctx, registered); err != nil {
			return nil, err
		}
	}
	if err := rest(ctx, atRest); err != nil {
		return nil, err
	}
	for _, d := range daemons {
		mb, err := resident(d.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		f.add(apiColumn, mb)
	}
	b.say("%s, %s: %s", f.name, f.unit.name, spread(f.samples[apiColumn]))
	var err error
	for _, d := range daemons {
		err = errors.Join(err, d.end())
	}
	return &section{title: "Computers: registry", about: registryAbout, columns: []string{apiColumn}, figures: []*figure{f}}, err
}

// register makes n computers that do not run.
func (d *daemon) register(ctx context.Context, n int) error {
	for i := range n {
		name := fmt.Sprint("registered-", i)
		_, err := d.client.Computers.Create(ctx, holt.ComputerSpec{Name: name}, "")
		if err == nil {
			_, err = d.client.Computers.Stop(ctx, name, "")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resident is the memory that a process has in memory now, 10⁶ bytes.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nan, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kb * 1024 / 1e6, err
		}
	}
	return nan, fmt.Errorf("process %d has no resident memory", pid)
}
