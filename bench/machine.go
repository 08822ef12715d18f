package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holt"
)

const machineAbout = `
Through the real program: ` + "`holt serve`" + ` with a data directory of its own, template *%s*, one virtual processor
and 1 GiB each. A create goes on from the template's snapshot, made before; a start boots cold: kernel, initramfs, root disk, and the guest's
other services go on starting after its first answer. *API* is the Go client over the unix socket, *command line* a process for each call.`

const (
	apiColumn = "API"
	cliColumn = "command line"
)

// machineGroup measures computers, the channels into them, and the files in them.
func machineGroup(ctx context.Context, b *bench) ([]*section, error) {
	dir, err := b.sub("machine")
	if err != nil {
		return nil, err
	}
	var sections []*section
	if b.wants("machine", "restore") {
		s, err := restoreSection(ctx, b, dir)
		if err != nil {
			return nil, err
		}
		if sections = append(sections, s); strings.HasSuffix(b.only, "/restore") {
			return sections, nil
		}
	}
	if b.wants("machine", "jail") {
		s, err := jailSection(ctx, b, dir)
		if err != nil {
			return nil, err
		}
		if sections = append(sections, s); strings.HasSuffix(b.only, "/jail") {
			return sections, nil
		}
	}
	if b.wants("machine", "registry") {
		s, err := registrySection(ctx, b, dir)
		if err != nil {
			return nil, err
		}
		if sections = append(sections, s); strings.HasSuffix(b.only, "/registry") {
			return sections, nil
		}
	}
	d, err := startDaemon(ctx, b, filepath.Join(dir, "data"), "qemu")
	if err != nil {
		return nil, err
	}
	if b.wants("machine", "boot") {
		s, err := bootSection(ctx, d)
		if err != nil {
			return nil, err
		}
		sections = append(sections, s)
	}
	const name = "bench"
	if _, err := d.cli(ctx, "computer", "create", "--name", name, "--template", b.template); err != nil {
		return nil, err
	}
	if err := d.settle(ctx, name); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *daemon, string, string) (*section, error)
	}{{"run", runSection}, {"snapshot", snapshotSection}, {"terminal", terminalSection}, {"channel", channelSection}, {"files", guestSection}, {"pause", pauseSection}, {"wake", wakeSection}, {"resize", resizeSection}, {"network", networkSection}, {"engines", enginesSection}} {
		if !b.wants("machine", part.name) {
			continue
		}
		s, err := part.measure(ctx, d, name, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		sections = append(sections, s)
	}
	return sections, nil
}

// bootSection creates, stops, starts and deletes computers. The first is not
// measured: it may be the one that makes the template's snapshot.
func bootSection(ctx context.Context, d *daemon) (*section, error) {
	for _, line := range []string{"computer create --name first --template " + d.b.template, "computer delete --yes first"} {
		if _, err := d.cli(ctx, strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	create := &figure{name: "create from a template → first command answered", unit: seconds}
	launch := &figure{name: "of that: launch of the machine → agent answers, workspace mounted", unit: seconds}
	stop := &figure{name: "stop", unit: seconds}
	start := &figure{name: "cold boot: start → first command answered", unit: seconds}
	share := &figure{name: "create from a template ÷ cold boot", unit: fraction, targets: []target{{cliColumn, "", 0.25}}}
	remove := &figure{name: "delete of a stopped computer", unit: seconds}
	larger := &figure{name: "create of another shape (2 processors, 2 GiB) → first command answered", unit: seconds}
	largerShare := &figure{name: "create of another shape ÷ cold boot", unit: fraction}
	for i := range d.b.boots {
		name := fmt.Sprintf("boot-%d", i)
		for _, step := range []struct {
			figure *figure
			lines  []string
		}{
			{create, []string{"computer create --name " + name + " --template " + d.b.template, "computer run " + name + " true"}},
			{launch, nil},
			{stop, []string{"computer stop " + name}},
			{start, []string{"computer start " + name, "computer run " + name + " true"}},
			{nil, []string{"computer stop " + name}},
			{remove, []string{"computer delete --yes " + name}},
			{larger, []string{"computer create --cpus 2 --memory-mb 2048 --name " + name + " --template " + d.b.template, "computer run " + name + " true"}},
			{nil, []string{"computer delete --yes " + name}},
		} {
			began := time.Now()
			for _, line := range step.lines {
				if _, err := d.cli(ctx, strings.Fields(line)...); err != nil {
					return nil, err
				}
			}
			took := time.Since(began).Seconds()
			if step.lines == nil {
				c, err := d.client.Computers.Get(ctx, name)
				if err != nil {
					return nil, err
				}
				took = float64(c.BootMS) / 1e3
			}
			if step.figure != nil {
				step.figure.add(cliColumn, took)
			}
		}
		share.add(cliColumn, create.samples[cliColumn][i]/start.samples[cliColumn][i])
		largerShare.add(cliColumn, larger.samples[cliColumn][i]/start.samples[cliColumn][i])
		d.b.say("create %d: %s s, boot: %s s", i, spread(create.samples[cliColumn][i:]), spread(start.samples[cliColumn][i:]))
	}
	return &section{
		title: "Computers: life", about: fmt.Sprintf(machineAbout, d.b.template), columns: []string{cliColumn},
		figures: []*figure{create, launch, start, share, larger, largerShare, stop, remove},
		notes:   []string{"The prototype's agent answered after 3.5–7.3 s with systemd, 2.2–2.7 s with an init of its own."},
	}, nil
}

// caller is a way to run `true`.
type caller struct {
	run func(context.Context) error
	n   int
}

// runSection measures short runs in a computer that is up.
func runSection(ctx context.Context, d *daemon, name, _ string) (*section, error) {
	api := func(ctx context.Context) error { _, err := d.run(ctx, name, "true"); return err }
	line := func(ctx context.Context) error {
		_, err := d.cli(ctx, "computer", "run", name, "--", "true")
		return err
	}
	shell := func(ctx context.Context) error { _, err := d.cli(ctx, "computer", "run", name, "true"); return err }
	login := func(ctx context.Context) error {
		r, err := d.client.Runs.Start(ctx, name, holt.RunSpec{Command: "true"}, "")
		if err != nil {
			return err
		}
		return d.client.Runs.Follow(ctx, r.ID, 0, func(holt.RunEvent) error { return nil })
	}
	s := &section{title: "Computers: runs", columns: []string{apiColumn, cliColumn},
		about: "How long it takes to run a command that does nothing in a computer that is up, until its exit status is there: " +
			"the median of " + fmt.Sprint(d.b.runs) + " in each round. A shell command is run by a login shell, `/bin/bash -l -c`."}
	for _, k := range []struct {
		name     string
		api, cli func(context.Context) error
		targets  []target
	}{
		{"run of a program (`true`), warm", api, line, []target{{apiColumn, "", 40}}},
		{"run of a shell command (`true`), warm", login, shell, nil},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, work[caller]{name: k.name, unit: millis, targets: k.targets, measure: measureRuns},
			[]column[caller]{{apiColumn, caller{k.api, d.b.runs}}, {cliColumn, caller{k.cli, d.b.runs}}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

func measureRuns(ctx context.Context, c caller) (float64, error) {
	var took []float64
	for range c.n {
		start := time.Now()
		if err := c.run(ctx); err != nil {
			return nan, err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1e3)
	}
	return median(took), nil
}
