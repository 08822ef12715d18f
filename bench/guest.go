package main

import (
	"context"
	"strconv"
)

const guestAbout = `
The same load generator inside a computer, on its workspace (FUSE messages over a byte channel to the daemon) and on its
root disk (ext4 on an overlay). *Cold* drops all that the guest's kernel caches before. *Raw channel* is what the channel
carries with nothing built on it, in the same minutes: see above. *Prototype* is what the first trial of this design did.`

const (
	rootColumn      = "root disk"
	rawColumn       = "raw channel"
	prototypeColumn = "prototype"
	guestLoad       = "/dev/shm/load" // where the load generator lies in the guest
)

// guestPlace is a directory in a guest, or a figure to compare with.
type guestPlace struct {
	d     *daemon
	name  string
	dir   string
	fixed func(context.Context) (float64, error) // instead of work
}

func (g *guestPlace) run(ctx context.Context, args ...string) (loaded, error) {
	out, err := g.d.run(ctx, g.name, append([]string{guestLoad}, args...)...)
	if err != nil {
		return loaded{}, err
	}
	return parseLoaded(out)
}

// guestSection measures file work inside a computer.
func guestSection(ctx context.Context, d *daemon, name, dir string) (*section, error) {
	if err := d.bring(ctx, name); err != nil {
		return nil, err
	}
	raw, err := openRaw(ctx, d.b, dir)
	if err != nil {
		return nil, err
	}
	s := &section{
		title: "Files in a computer", about: guestAbout,
		columns: []string{workspaceColumn, rootColumn, rawColumn, prototypeColumn}, ratios: [][2]string{{workspaceColumn, rootColumn}},
	}
	for _, w := range guestWorks(d.b.sizes) {
		columns := []column[*guestPlace]{
			{workspaceColumn, &guestPlace{d: d, name: name, dir: "/home/agent/bench"}},
			{rootColumn, &guestPlace{d: d, name: name, dir: "/var/tmp/bench"}},
		}
		if w.prototype != 0 {
			columns = append(columns, column[*guestPlace]{rawColumn, &guestPlace{fixed: w.raw(raw)}},
				column[*guestPlace]{prototypeColumn, &guestPlace{fixed: func(context.Context) (float64, error) { return w.prototype, nil }}})
		}
		f, err := rounds(ctx, d.b, d.b.rounds, w.work, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, raw.close()
}

// guestWork is a work that may have other figures beside it.
type guestWork struct {
	work[*guestPlace]
	prototype float64
	raw       func(*rawMachine) func(context.Context) (float64, error)
}

// inside makes a step of a run of the load generator in the guest.
func inside(figure func(loaded) float64, args func(dir string) []string) func(context.Context, *guestPlace) (float64, error) {
	return func(ctx context.Context, g *guestPlace) (float64, error) {
		if g.fixed != nil {
			return g.fixed(ctx)
		}
		l, err := g.run(ctx, args(g.dir)...)
		if err != nil {
			return nan, err
		}
		return figure(l), nil
	}
}

// silent is a step in the guest that does not count.
func silent(args func(dir string) []string) func(context.Context, *guestPlace) error {
	step := inside(loaded.perSecond, args)
	return func(ctx context.Context, g *guestPlace) error {
		if g.fixed != nil {
			return nil
		}
		_, err := step(ctx, g)
		return err
	}
}

func guestWorks(z sizes) []guestWork {
	n, mb := strconv.Itoa(z.guestFiles), strconv.Itoa(z.guestMB)
	create := func(dir string) []string { return []string{"create", "-dir", dir, "-n", n} }
	write := func(dir string) []string { return []string{"write", "-file", dir + ".large", "-mb", mb} }
	remove := func(dir string) []string { return []string{"remove", "-dir", dir} }
	removeLarge := func(dir string) []string { return []string{"remove", "-dir", dir + ".large"} }
	drop := func(string) []string { return []string{"drop"} }
	stat := func(dir string) []string { return []string{"stat", "-dir", dir, "-n", n} }
	cold := func(dir string) []string { return append(stat(dir), "-cold") }
	read := func(dir string) []string { return []string{"read", "-file", dir + ".large", "-drop", "host"} }
	files := both(silent(remove), silent(create))
	return []guestWork{
		{work: work[*guestPlace]{name: "create + write 4 KiB + close", unit: perSecond, measure: inside(loaded.perSecond, create), after: silent(remove)}},
		{work: work[*guestPlace]{name: "stat, warm", unit: perSecond, setup: files, measure: inside(loaded.perSecond, stat)}},
		{work: work[*guestPlace]{name: "stat, cold", unit: perSecond, setup: files, before: silent(drop), measure: inside(loaded.perSecond, cold)}},
		{
			work: work[*guestPlace]{
				name: "sequential write of " + mb + " MiB", unit: megabytes, targets: []target{{workspaceColumn, prototypeColumn, 3}},
				measure: inside(loaded.megabytes, write), after: silent(removeLarge),
			},
			prototype: 14, raw: func(m *rawMachine) func(context.Context) (float64, error) { return m.out },
		},
		{
			work: work[*guestPlace]{
				name: "sequential read, cold", unit: megabytes, targets: []target{{workspaceColumn, rawColumn, 0.6}},
				setup: silent(write), measure: inside(loaded.megabytes, read),
			},
			prototype: 37, raw: func(m *rawMachine) func(context.Context) (float64, error) { return m.into },
		},
	}
}
