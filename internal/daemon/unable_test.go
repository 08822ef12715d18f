package daemon_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"holt"
)

// TestLocalUnable: what needs a virtual machine is refused on the local engine with what to do to have one.
func TestLocalUnable(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	ctx := t.Context()
	if _, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	off := holt.NetworkPolicy{Egress: holt.EgressOff}
	for name, do := range map[string]func() error{
		"pause":    func() error { _, err := p.Computers.Pause(ctx, "curie", ""); return err },
		"snapshot": func() error { _, err := p.Computers.Snapshot(ctx, "curie", holt.SnapshotSpec{}, ""); return err },
		"fork":     func() error { _, err := p.Computers.Fork(ctx, "curie", holt.ComputerForkSpec{}, ""); return err },
		"resize": func() error {
			_, err := p.Computers.Resize(ctx, "curie", holt.ResizeSpec{DiskSizeMB: 20_000}, "")
			return err
		},
		"network":        func() error { _, err := p.Networks.Get(ctx, "curie"); return err },
		"network policy": func() error { _, err := p.Networks.Set(ctx, "curie", off); return err },
		"traffic":        func() error { _, err := p.Networks.Traffic(ctx, "curie"); return err },
		"create": func() error {
			_, err := p.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr", Network: &off}, "")
			return err
		},
		"secrets": func() error { _, err := p.Secrets.List(ctx, "curie"); return err },
		"secret": func() error {
			_, err := p.Secrets.Set(ctx, "curie", "key", holt.HostSecret{Host: "example.com", Value: "x"})
			return err
		},
		"secret delete": func() error { return p.Secrets.Delete(ctx, "curie", "key", "") },
		"service": func() error {
			_, err := p.Services.Add(ctx, "curie", holt.ServiceSpec{Name: "web", Command: "true"}, "")
			return err
		},
		"services":    func() error { _, err := p.Services.List(ctx, "curie"); return err },
		"service log": func() error { return p.Services.Logs(ctx, "curie", "web", holt.ServiceLogQuery{}, io.Discard) },
		"image boot":  func() error { _, err := p.Images.Boot(ctx, "base", holt.Shape{}, ""); return err },
		"job": func() error {
			_, err := p.Jobs.Create(ctx, holt.JobSpec{Run: holt.RunSpec{Command: "true"}, Network: &off}, "")
			return err
		},
	} {
		e := holt.AsError(do())
		if e == nil || e.Code != holt.Unsupported || !strings.Contains(e.Message, "local") || !strings.Contains(e.Hint, "holt up --engine qemu") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if _, err := p.Daemon.Down(context.WithoutCancel(ctx), holt.DownSpec{Computers: holt.DownPause}, ""); holt.CodeOf(err) != holt.Unsupported || holt.AsError(err).Hint == "" {
		t.Errorf("down: %v", err)
	}
	endAll(t, p)
}
