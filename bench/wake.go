package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"holt"
)

const wakeAbout = `
Through the Go client, of a computer that has settled and is paused: from a call that needs it until that is answered. The call wakes it; nobody resumes it.
A connection is answered by the load generator in the guest.`

// wakeSection measures how long a paused computer's callers wait.
func wakeSection(ctx context.Context, d *daemon, name, _ string) (*section, error) {
	serving, err := d.serve(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &section{title: "Computers: wake", about: wakeAbout, columns: []string{apiColumn}}
	for _, by := range []struct {
		name string
		call func(ctx context.Context, computer string) error
	}{
		{"a run of `true`", func(ctx context.Context, c string) error { _, err := d.run(ctx, c, "true"); return err }},
		{"a file that is read", func(ctx context.Context, c string) error {
			return d.client.Files.Read(ctx, c, guestLoad, 0, 4096, io.Discard)
		}},
		{"a connection to a port", d.ask},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, work[string]{name: "woken by " + by.name + " → answered", unit: millis,
			before: func(ctx context.Context, c string) error {
				_, err := d.client.Computers.Pause(ctx, c, "")
				return err
			},
			measure: func(ctx context.Context, c string) (float64, error) {
				began := time.Now()
				err := by.call(ctx, c)
				return sinceMS(began), err
			}}, []column[string]{{apiColumn, name}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, d.client.Runs.Signal(ctx, serving, "SIGKILL", "")
}

// ask connects to the load generator in a computer and has it answer.
func (d *daemon) ask(ctx context.Context, computer string) error {
	conn, err := d.client.Ports.Connect(ctx, computer, holt.PortAddress{Port: loadPort})
	if err != nil {
		return err
	}
	r := &rawMachine{conn: conn}
	defer conn.Close()
	return r.echo(ctx)
}

const resizeAbout = `
From one processor and 1 GiB to two and 2 GiB, until a run in the computer counts two processors: *live*, and as one does without it, by a stop and
a start with what is written there.`

// shapes are ways to a larger computer.
const (
	liveColumn  = "live"
	startColumn = "stop, start"
)

// resizeSection measures how long it takes until a computer is larger.
func resizeSection(ctx context.Context, d *daemon, _, _ string) (*section, error) {
	s := &section{title: "Computers: resize", about: resizeAbout, columns: []string{liveColumn, startColumn}, ratios: [][2]string{{liveColumn, startColumn}}}
	var columns []column[*growing]
	for _, way := range s.columns {
		columns = append(columns, column[*growing]{way, &growing{d, way == liveColumn}})
	}
	f, err := rounds(ctx, d.b, d.b.boots, work[*growing]{name: "larger → a run has it", unit: millis,
		before:  func(ctx context.Context, g *growing) error { return g.open(ctx) },
		measure: func(ctx context.Context, g *growing) (float64, error) { return g.grow(ctx) },
		after:   func(ctx context.Context, g *growing) error { return g.close(ctx) }}, columns)
	s.figures = append(s.figures, f)
	return s, err
}

// growing is a computer that becomes larger.
type growing struct {
	d    *daemon
	live bool
}

const growingName = "growing"

func (g *growing) open(ctx context.Context) error {
	spec := holt.ComputerSpec{Name: growingName, Template: g.d.b.template, CPUs: 1, MemoryMB: 1024}
	if _, err := g.d.client.Computers.Create(ctx, spec, ""); err != nil {
		return err
	}
	return g.d.settle(ctx, growingName)
}

func (g *growing) close(ctx context.Context) error {
	_, err := g.d.client.Computers.Delete(ctx, growingName, "")
	return err
}

func (g *growing) grow(ctx context.Context) (float64, error) {
	began := time.Now()
	computers := g.d.client.Computers
	if !g.live {
		if _, err := computers.Stop(ctx, growingName, ""); err != nil {
			return nan, err
		}
	}
	if _, err := computers.Resize(ctx, growingName, holt.ResizeSpec{CPUs: 2, MemoryMB: 2048}, ""); err != nil {
		return nan, err
	}
	if !g.live {
		if _, err := computers.Start(ctx, growingName, ""); err != nil {
			return nan, err
		}
	}
	out, err := g.d.run(ctx, growingName, "nproc")
	if err == nil && string(out) != "2\n" {
		err = fmt.Errorf("it has %q processors", out)
	}
	return sinceMS(began), err
}
