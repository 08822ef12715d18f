package servertest

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"holt"
)

type images struct{ m *Memory }

func (n images) List(context.Context) ([]holt.Image, error) {
	at := n.m.began
	return []holt.Image{
		{Template: "coding-agent"},
		{Template: "base", Built: true, Digest: strings.Repeat("fedcba9876543210", 4), MinDiskMB: 2048, Bytes: 400 << 20, BuiltAt: &at}, // an older one
		{Template: "base", Built: true, Digest: strings.Repeat("0123456789abcdef", 4), MinDiskMB: 2048, Bytes: 400 << 20, BuiltAt: &at, Ready: []holt.Shape{{CPUs: 1, MemoryMB: 1024}, {CPUs: 2, MemoryMB: 3072}}},
	}, nil
}

// Boot is quick where nothing has to be started; its own template is the built one.
func (n images) Boot(ctx context.Context, ref string, shape holt.Shape, _ string) (holt.Image, error) {
	shape = holt.Shape{CPUs: cmp.Or(shape.CPUs, 1), MemoryMB: cmp.Or(shape.MemoryMB, 1024)}
	if shape.MemoryMB < 256 {
		return holt.Image{}, holt.Errorf(holt.InvalidArgument, "a computer cannot have %d MiB of memory", shape.MemoryMB)
	}
	all, err := n.List(ctx)
	for _, image := range slices.Backward(all) {
		if image.Built && (image.Template == ref || image.Digest == ref) {
			image.Ready = []holt.Shape{shape}
			return image, err
		}
	}
	return holt.Image{}, holt.Errorf(holt.NotFound, "there is no image %q", ref).WithHint("holt image list shows those that are here")
}

// archive is one without a pack: what is in memory stays there.
type archive struct{}

func (archive) Get(context.Context) (holt.Archive, error) {
	return holt.Archive{Place: "memory"}, nil
}

func (archive) Collect(context.Context, string) (holt.Collected, error) { return holt.Collected{}, nil }

func (archive) Check(context.Context) (holt.ArchiveReport, error) {
	return holt.ArchiveReport{Problems: []string{}}, nil
}

type daemon struct{ m *Memory }

func (n daemon) Health(context.Context) (holt.Health, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	running := 0
	for _, c := range n.m.computers {
		if c.State == holt.ComputerRunning {
			running++
		}
	}
	return holt.Health{Status: "ok", Version: n.m.Version, PID: os.Getpid(), DataDir: n.m.dir, Engine: "memory", StartedAt: n.m.began, Running: running}, nil
}

func (n daemon) Doctor(context.Context) ([]holt.Finding, error) {
	return []holt.Finding{
		{Name: "processor", Verdict: holt.VerdictOK, Found: "2 cores"},
		{Name: "kvm", Verdict: holt.VerdictWarn, Found: "no hardware virtualisation", Do: "nothing: computers run in software, slowly"},
	}, nil
}

func (n daemon) Down(_ context.Context, spec holt.DownSpec, key string) (holt.DownReport, error) {
	return once(n.m, key, []any{"down", spec}, func() (holt.DownReport, error) {
		var report holt.DownReport
		for _, c := range n.m.computers {
			if c.State != holt.ComputerRunning {
				continue
			}
			if spec.Computers == holt.DownKeep {
				report.Kept = append(report.Kept, c.Name)
				continue
			}
			if spec.Computers == holt.DownPause {
				c.State = holt.ComputerPaused
				report.Paused = append(report.Paused, c.Name)
				continue
			}
			c.State = holt.ComputerStopped
			report.Stopped = append(report.Stopped, c.Name)
		}
		slices.Sort(report.Stopped)
		slices.Sort(report.Kept)
		n.m.endOnce.Do(func() { close(n.m.ended) })
		return report, nil
	})
}
