package computer

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/idempotency"
	"holt/internal/image"
	"holt/internal/store/chunk"
	"holt/internal/workspace"
)

// noted is an engine that notes what it is asked for, and cannot start machines.
type noted struct {
	goneEngine
	name  string
	caps  machine.Capabilities
	asked []string
}

func (e *noted) Name() string { return e.name }

func (e *noted) Capabilities() machine.Capabilities { return e.caps }

func (e *noted) Adopt(context.Context, string) (machine.Machine, error) {
	e.asked = append(e.asked, "adopt")
	return nil, machine.ErrGone
}

func (e *noted) CreateDisk(context.Context, string, machine.Base, int) error {
	e.asked = append(e.asked, "disk")
	return nil
}

func (e *noted) GrowDisk(context.Context, string, int) error { return nil }

func (e *noted) Start(context.Context, machine.Spec) (machine.Machine, error) {
	e.asked = append(e.asked, "start")
	return nil, errPlanned
}

func (e *noted) Ended(string) machine.Ending {
	e.asked = append(e.asked, "ended")
	return machine.Ending{}
}

// was returns what the engine was asked since the last call.
func (e *noted) was() string {
	s := strings.Join(slices.Compact(e.asked), " ")
	e.asked = nil
	return s
}

// built are images of every name, without snapshots.
type built struct{ Images }

func (built) Get(_ context.Context, ref string) (image.Image, error) {
	return image.Image{Image: holt.Image{Template: ref, Digest: "digest"}}, nil
}

func (built) Hold(context.Context, string, string) error { return nil }

func (built) Snapshot(string, string) string { return "" }

func (built) HasSnapshot(string, string) bool { return false }

func (built) MakeSnapshot(context.Context, string, string, func(context.Context, string) error) (string, error) {
	return "", errPlanned
}

// roomy are workspaces that can be made and removed, and have the same content.
type roomy struct {
	lasting
}

func (roomy) Find(_ context.Context, ref string) (holt.WorkspaceID, string, error) {
	return "", "", holt.Errorf(holt.NotFound, "there is no workspace %q", ref)
}

func (roomy) Make(context.Context, holt.WorkspaceID, string, holt.Quota) error { return nil }

func (roomy) Fork(context.Context, holt.WorkspaceID, string, holt.WorkspaceID, string, bool) error {
	return nil
}

func (roomy) Announce(context.Context, holt.WorkspaceID, string) error { return nil }

func (roomy) Remove(context.Context, holt.WorkspaceID) error { return nil }

func (s *roomy) Take(context.Context, holt.WorkspaceID) (*workspace.Workspace, func(), error) {
	return s.ws, func() {}, nil
}

// twoEngines is a world with gvisor, its default, and qemu.
func twoEngines(t *testing.T) (w *keptWorld, gvisor, qemu *noted) {
	w = keeps(t, &chunk.Memory{}, 1<<40)
	gvisor = &noted{name: "gvisor", caps: machine.Capabilities{RootDisk: true, MemorySnapshot: true}}
	qemu = &noted{name: "qemu-tcg", caps: gvisor.caps}
	ws, err := workspace.Create(t.TempDir()+"/workspace", workspace.Options{})
	w.ok(err)
	t.Cleanup(func() { w.ok(ws.Close()) })
	w.cfg.Keys, w.cfg.Dir, w.cfg.Templates = idempotency.New(w.cfg.DB), t.TempDir(), t.TempDir()
	w.cfg.Images, w.cfg.Workspaces = built{}, &roomy{lasting{ws: ws}}
	w.cfg.Engines = Engines{Default: gvisor, Others: []machine.Engine{qemu}}
	w.Store = newStore(t.Context(), w.cfg)
	return w, gvisor, qemu
}

// stays has the computer of the world be one of qemu's, in a state; a paused one has a snapshot.
func (w *keptWorld) stays(state holt.ComputerState) {
	w.t.Helper()
	w.r.Engine = "qemu-kvm" // of the same host, before
	if state == holt.ComputerPaused {
		m := w.pauses()
		w.ok(machine.Image{Engine: "qemu-kvm", Hardware: []byte("{}"), Spec: machine.Spec{CPUs: 1, MemoryMB: 1}}.Write(w.snapshots.path(m.ID), false))
	}
	w.r.State = state
	w.ok(w.table.save(w.t.Context(), *w.r))
}

// A computer is created on the engine that its caller names, and everything that concerns it is asked
// of that one.
func TestComputerStaysWithItsEngine(t *testing.T) {
	w, gvisor, qemu := twoEngines(t)
	ctx := t.Context()
	one := func(what string, err, want error, engine *noted, asked string) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		other := gvisor
		if engine == gvisor {
			other = qemu
		}
		if got, none := engine.was(), other.was(); got != asked || none != "" {
			t.Errorf("%s: %s was asked for %q, want %q; %s for %q", what, engine.name, got, asked, other.name, none)
		}
	}
	create := func(engine string) error {
		_, err := w.Create(ctx, holt.ComputerSpec{Name: "bohr", Engine: engine}, "")
		return err
	}
	one("create", create(""), errPlanned, gvisor, "disk start")
	one("create on qemu", create("qemu"), errPlanned, qemu, "disk start")
	one("create on gvisor", create("gvisor"), errPlanned, gvisor, "disk start")
	if err := create("steam"); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(holt.AsError(err).Hint, "qemu or gvisor") {
		t.Errorf("an unknown engine: %v", err)
	}
	w.stays(holt.ComputerStopped)
	_, err := w.Start(ctx, "einstein", "")
	one("start", err, errPlanned, qemu, "start")
	w.stays(holt.ComputerPaused)
	_, err = w.Memory().Resume(ctx, "einstein", "")
	one("resume", err, errPlanned, qemu, "disk start")
	_, err = w.Memory().Fork(ctx, "einstein", holt.ComputerForkSpec{}, "")
	one("fork", err, errPlanned, qemu, "disk start")

	w.stays(holt.ComputerRunning)
	s, err := Open(ctx, w.cfg)
	w.ok(err)
	defer s.Close()
	c, err := s.Get(ctx, "einstein")
	one("a daemon that does not find its machine", err, nil, qemu, "adopt ended")
	if c.State != holt.ComputerStopped || c.Engine != "qemu-kvm" {
		t.Errorf("it is %s on %s", c.State, c.Engine)
	}
	_, err = s.Delete(ctx, "einstein", "")
	one("delete", err, nil, qemu, "adopt")
}

// A computer whose engine the daemon does not have is listed, says why it cannot start, and can be
// deleted. Its machine is left alone if it still runs.
func TestMissingEngine(t *testing.T) {
	w, gvisor, _ := twoEngines(t)
	ctx := t.Context()
	w.cfg.Engines.Others = nil
	w.cfg.Engines.Missing = map[string]error{"qemu": holt.Errorf(holt.Unsupported, "QEMU is not installed").WithHint("install the package qemu-system-x86")}
	w.Store = newStore(ctx, w.cfg)
	refused := func(what string, err error) {
		t.Helper()
		e := holt.AsError(err)
		if e == nil || e.Code != holt.Unsupported || !strings.Contains(e.Message, "engine qemu: QEMU is not installed") || !strings.HasPrefix(e.Hint, "install the package qemu-system-x86, then restart the daemon") {
			t.Errorf("%s: %+v", what, e)
		}
		if c, err := w.Get(ctx, "einstein"); err != nil || c.State != w.r.State || c.Engine != "qemu-kvm" {
			t.Errorf("after %s it is %s on %s, %v", what, c.State, c.Engine, err)
		}
	}
	_, err := w.Create(ctx, holt.ComputerSpec{Engine: "qemu"}, "")
	w.stays(holt.ComputerStopped)
	refused("create", err)
	_, err = w.Start(ctx, "einstein", "")
	refused("start", err)
	w.stays(holt.ComputerPaused)
	m := w.snapshotsOf()
	_, err = w.Memory().Resume(ctx, "einstein", "")
	refused("resume", err)
	_, err = w.Memory().Fork(ctx, "einstein", holt.ComputerForkSpec{}, "")
	refused("fork", err)
	_, err = w.Snapshots().Restore(ctx, string(m), holt.SnapshotRestoreSpec{}, "")
	refused("restore", err)

	// Its machine runs.
	dir, err := machine.MakeDir(w.cfg.dir(w.r.ID))
	w.ok(err)
	lock, err := dir.Lock()
	w.ok(err)
	vm := exec.Command("sleep", "60")
	vm.ExtraFiles = []*os.File{lock}
	w.ok(vm.Start())
	lock.Close()
	defer vm.Process.Kill()
	p, err := machine.Identify(vm.Process.Pid)
	w.ok(err)
	w.ok(dir.WriteRecord(machine.Record{Engine: "qemu-kvm", Process: p, Spec: machine.Spec{Dir: dir.Path}}))
	dir.Close()
	w.stays(holt.ComputerRunning)
	opens := func(want holt.ComputerState, reason string) *Store {
		t.Helper()
		s, err := Open(ctx, w.cfg)
		w.ok(err)
		t.Cleanup(func() { s.Close() })
		c, err := s.Get(ctx, "einstein")
		if w.ok(err); c.State != want || !strings.Contains(c.Reason, reason) {
			t.Errorf("it is %s: %s", c.State, c.Reason)
		}
		return s
	}
	s := opens(holt.ComputerRunning, "QEMU is not installed")
	if _, err := s.Stop(ctx, "einstein", ""); holt.CodeOf(err) != holt.Unsupported {
		t.Errorf("stop: %v", err)
	}
	s.Close()
	w.ok(vm.Process.Kill())
	vm.Wait()
	s = opens(holt.ComputerStopped, "")
	if _, err := s.Delete(ctx, "einstein", ""); err != nil {
		t.Errorf("delete: %v", err)
	}
	if got := gvisor.was(); got != "" {
		t.Errorf("the other engine was asked for %s", got)
	}
}

func (w *keptWorld) snapshotsOf() holt.SnapshotID {
	w.t.Helper()
	all := w.all()
	return all[len(all)-1]
}

// Disks are merged by the engine that wrote them, also when their computer is gone.
func TestDisksOfAnEngine(t *testing.T) {
	w, _, _ := twoEngines(t)
	w.r.Engine = "qemu-kvm"
	m := w.take(holt.SnapshotManual)
	chain, err := w.disks.chain(t.Context(), m.disk)
	if err != nil || len(chain) == 0 || chain[0].engine != "qemu" {
		t.Errorf("%+v, %v", chain, err)
	}
}

// What a template needs decides, unless the caller names another engine, which is refused.
func TestEngineOfTemplate(t *testing.T) {
	rooted := machine.Capabilities{RootDisk: true}
	gvisor, qemu := &noted{name: "gvisor", caps: rooted}, &noted{name: "qemu-tcg", caps: rooted}
	local := &noted{name: "local"}
	both := Engines{Default: gvisor, Others: []machine.Engine{qemu}}
	alone := Engines{Default: gvisor}
	for _, c := range []struct {
		engines      Engines
		named, needs string
		want         string
		code         holt.Code
	}{
		{both, "", "", "gvisor", ""},
		{both, "", "qemu", "qemu-tcg", ""},
		{both, "qemu", "qemu", "qemu-tcg", ""},
		{both, "qemu", "", "qemu-tcg", ""},
		{both, "gvisor", "qemu", "", holt.InvalidArgument},
		{both, "local", "", "", holt.InvalidArgument},
		{alone, "", "qemu", "", holt.Unsupported},
		{alone, "qemu", "", "", holt.Unsupported},
		{Engines{Default: local}, "", "", "local", ""},
		{Engines{Default: local}, "local", "", "local", ""},
		{Engines{Default: local}, "gvisor", "", "", holt.Unsupported},
	} {
		img := image.Image{Image: holt.Image{Template: "docker"}, Engine: c.needs}
		got, err := c.engines.choose(c.named, img)
		if holt.CodeOf(err) != c.code || err == nil && got.Name() != c.want || err != nil && holt.AsError(err).Hint == "" {
			t.Errorf("%q of a template that needs %q: %v, %+v; want %s%s", c.named, c.needs, got, err, c.want, c.code)
		}
	}
}
