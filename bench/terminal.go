package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holt"
	"holt/client"
)

// echoTarget is what the design asks of a key's echo under software emulation, milliseconds.
const echoTarget = 15

// terminalSection measures the way of a key into a computer and back.
func terminalSection(ctx context.Context, d *daemon, name, _ string) (*section, error) {
	s := &section{title: "Computers: terminals", columns: []string{apiColumn},
		about: "From a key that is typed to the byte that comes back, through the Go client, a WebSocket on the unix socket, the daemon, the control channel " +
			"and the guest's pseudo-terminal: the median of " + fmt.Sprint(d.b.runs) + " in each round, one key at a time."}
	for _, k := range []struct {
		name, command string
		targets       []target
	}{
		{"echo of a key by the terminal itself", "echo ready; exec cat", []target{{apiColumn, "", echoTarget}}},
		{"a key that a program reads and writes back", "stty raw -echo; echo ready; exec cat", nil},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, work[string]{name: k.name, unit: millis, targets: k.targets, measure: func(ctx context.Context, command string) (float64, error) {
			return measureEcho(ctx, d, name, command)
		}}, []column[string]{{apiColumn, k.command}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

// measureEcho types keys into a terminal of its own, each when the last has
// come back, and returns the median of the times that took, milliseconds.
func measureEcho(ctx context.Context, d *daemon, computer, command string) (float64, error) {
	took, err := echoTimes(ctx, d.client, computer, command, d.b.runs)
	return median(took), err
}

// echoTimes are those of n keys.
func echoTimes(ctx context.Context, c *client.Client, computer, command string, n int) ([]float64, error) {
	t, err := c.Terminals.Open(ctx, computer, holt.TerminalSpec{Name: "bench", Command: holt.OSString(command)}, "")
	if err != nil {
		return nil, err
	}
	e := &echo{in: make(chan holt.TerminalInput, 1), left: n}
	err = c.Terminals.Attach(ctx, computer, string(t.ID), holt.AttachSpec{Offset: -1}, e.in, e.event)
	if !errors.Is(err, errMeasured) {
		return nil, fmt.Errorf("the terminal ended: %w", err)
	}
	_, err = c.Terminals.Close(ctx, computer, string(t.ID), "")
	return e.took, err
}

var errMeasured = errors.New("enough")

// echo types one key after the other.
type echo struct {
	in    chan holt.TerminalInput
	left  int
	ready bool
	typed time.Time
	took  []float64
}

func (e *echo) event(ev holt.TerminalEvent) error {
	if ev.Kind != holt.TerminalOutput {
		return nil
	}
	last := ev.Data[len(ev.Data)-1]
	switch {
	case !e.ready && last != '\n': // of "ready"
		return nil
	case !e.ready:
		e.ready = true
	default:
		e.took = append(e.took, float64(time.Since(e.typed).Microseconds())/1e3)
	}
	if e.left--; e.left < 0 {
		return errMeasured
	}
	e.typed = time.Now()
	e.in <- holt.TerminalInput{Data: []byte{'x'}}
	return nil
}
