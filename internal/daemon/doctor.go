package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"holt"
	"holt/internal/doctor"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/qemu"
	"holt/internal/network"
)

// Doctor examines the host of this daemon.
func (d *Daemon) Doctor(ctx context.Context) ([]holt.Finding, error) {
	all, err := d.computers.List(ctx)
	if err != nil {
		return nil, err
	}
	owned := map[string]bool{}
	for _, c := range all {
		owned[string(c.ID)] = true
	}
	return doctor.Examine(ctx, doctor.Options{
		DataDir: d.cfg.DataDir, ImageDir: d.cfg.ImageDir,
		Engine: d.cfg.Engine, GVisor: func() error { return gvisor.Check(d.cfg.Sandbox) }, Probe: probe(d.cfg.DataDir), Bounds: d.bounds,
		Strays: func(root string) ([]doctor.Stray, error) {
			found, err := strays(d.engines.All(), root)
			found = slices.DeleteFunc(found, func(s doctor.Stray) bool { return owned[filepath.Base(s.Dir)] })
			left, err2 := network.Leftover(root)
			for _, s := range left {
				found = append(found, doctor.Stray{PID: s.Process.PID, Dir: s.Dir})
			}
			return found, errors.Join(err, err2)
		},
	}), nil
}

// probe returns the test of KVM for [doctor.Examine]; its result is cached in dir.
func probe(dir string) func(context.Context) (doctor.Probe, error) {
	return func(ctx context.Context) (doctor.Probe, error) {
		v, err := qemu.Probe(ctx, qemu.Options{CacheDir: dir})
		return doctor.Probe{KVM: v.Accel == machine.AccelKVM, Reason: v.Reason}, err
	}
}

func strays(engines []machine.Engine, root string) (list []doctor.Stray, err error) {
	for _, e := range engines {
		found, err := e.Strays(root)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			list = append(list, doctor.Stray{PID: s.Process.PID, Dir: s.Dir})
		}
	}
	return list, nil
}

// bounds says how computers are bounded, for [doctor.Examine].
func (d *Daemon) bounds() (string, error) {
	switch {
	case !d.engines.Default.Capabilities().Isolated:
		return "computers of the engine " + d.engines.Default.Name() + " are not bounded: it is for tests", nil
	case d.unbound != nil:
		return "", d.unbound
	}
	return d.groups.String(), nil
}
