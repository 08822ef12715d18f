package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/client"
	"holt/internal/cli"
	"holt/internal/daemon"
	"holt/internal/doctor"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
	"holt/internal/engine/qemu"
)

// examine looks at this machine. A daemon that runs here does it better: it
// knows which machines are its own, and its port is its own affair.
func examine(ctx context.Context, at cli.Place, engine, listen string) ([]holt.Finding, error) {
	if c, err := client.New(client.Options{Socket: filepath.Join(at.DataDir, "holt.sock"), Patience: time.Second}); err == nil {
		if _, err := c.Daemon.Health(ctx); err == nil {
			return c.Daemon.Doctor(ctx)
		}
	}
	mounts, _ := daemon.MountsOf(at.DataDir) // none, if no daemon was here before
	opt := qemu.Options{}
	if _, err := os.Stat(at.DataDir); err == nil {
		opt.CacheDir = at.DataDir
	}
	return doctor.Examine(ctx, doctor.Options{
		DataDir: at.DataDir, ImageDir: at.ImageDir, Listen: listen, Mounts: mounts, Engine: engine, GVisor: func() error { return gvisor.Check("") },
		Probe: func(ctx context.Context) (doctor.Probe, error) {
			v, err := qemu.Probe(ctx, opt)
			return doctor.Probe{KVM: v.Accel == machine.AccelKVM, Reason: v.Reason}, err
		},
		// Machines without a daemon are no strays: the next daemon takes them over, or ends them.
	}), nil
}

func install(ctx context.Context, packages []string, progress func(cli.Progress)) error {
	return doctor.Install(ctx, packages, func(what string, fraction float64) {
		progress(cli.Progress{Stage: "installing", Detail: what, Fraction: fraction})
	})
}
