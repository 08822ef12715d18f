package qemu

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

// crashEnv holds what a second process of the test does before it kills itself.
const crashEnv = "HOLT_QEMU_CRASH"

// crash is a snapshot whose process dies before a step.
type crash struct {
	Dir         string // of the machine
	Image, Disk string
	Step        string
}

func (c crash) spec() machine.SnapshotSpec { return machine.SnapshotSpec{Dir: c.Image, Disk: c.Disk} }

// commit is the main function of the second process.
func (c crash) commit(t *testing.T) {
	e := emulated(t, monitorWait)
	e.stepping = func(step string) {
		if step == c.Step {
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
	m, err := e.Adopt(t.Context(), c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Snapshot(t.Context(), c.spec())
	t.Fatalf("it lived on: %v", err)
}

// The daemon is killed at each step of a snapshot: the guest continues without
// losses, and the next snapshot works.
func TestSnapshotCrash(t *testing.T) {
	if encoded := os.Getenv(crashEnv); encoded != "" {
		var c crash
		if err := json.Unmarshal([]byte(encoded), &c); err != nil {
			t.Fatal(err)
		}
		c.commit(t)
	}
	w := newWorld(t, emulated(t, monitorWait), 128)
	w.ask(t, w, "dirty 20 16")
	w.ask(t, w, "churn")
	killed := 0
	for _, c := range []struct {
		step    string
		swapped bool // the guest writes to the new disk
		whole   bool // the image is there
		always  bool // also where the full counts are not asked for
	}{
		{step: "look"},
		{step: "make disk"},
		{step: "copy memory"},
		{step: "let run", always: true}, // it stands at the beginning of the round
		{step: "swap disk", always: true},
		{step: "copy devices", swapped: true, always: true},
		{step: "hold", swapped: true},
		{step: "go on", swapped: true, always: true},
		{step: "keep", swapped: true},
		{step: "end", swapped: true, whole: true},
	} {
		if !c.always && os.Getenv("HOLT_SOAK") == "" {
			continue
		}
		t.Run(c.step, func(t *testing.T) {
			w.crash(t, c.step, c.swapped, c.whole)
			killed++
		})
	}
	w.restoreCrash(t)
	t.Logf("counts: killed at %d steps of a snapshot", killed)
}

func (w *world) crash(t *testing.T, step string, swapped, whole bool) {
	before := w.Disk()
	was := w.counter(t)
	w.Release()
	c := crash{Dir: w.Dir.Path, Image: w.path("image"), Disk: w.path("disk"), Step: step}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSnapshotCrash$")
	cmd.Env = append(os.Environ(), crashEnv+"="+string(encoded))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Fatalf("the taker was not killed: %v\n%s", err, out)
	}
	m, err := w.engine.Adopt(t.Context(), c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	w.guest = m.(*guest)
	if want := map[bool]string{false: before, true: c.Disk}[swapped]; m.Disk() != want {
		t.Errorf("the guest writes to %s, want %s", m.Disk(), want)
	}
	if now := w.counter(t); now < was {
		t.Errorf("the counter went back from %d to %d", was, now)
	}
	w.ask(t, m, "verify")
	if _, err := machine.ReadImage(c.Image); (err == nil) != whole {
		t.Errorf("the image: %v", err)
	}
	os.RemoveAll(c.Image)
	if !swapped {
		os.Remove(c.Disk)
	}
	if names, err := w.nodeNames(t.Context()); err != nil || !swapped && len(names) != len(w.chain(t)) {
		t.Errorf("QEMU has open %v, %v", names, err)
	}
	if _, err := m.Snapshot(t.Context(), c.spec()); swapped == (err == nil) { // the disk is there
		t.Errorf("the next snapshot: %v", err)
	}
	os.RemoveAll(c.Image)
}

// chain lists the nodes of the guest's disk: two for each layer.
func (w *world) chain(t *testing.T) []string {
	t.Helper()
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := w.monitor.do(t.Context(), "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		t.Fatal(err)
	}
	var drives []struct {
		Inserted struct {
			Image json.RawMessage `json:"image"`
		} `json:"inserted"`
	}
	if err := w.monitor.do(t.Context(), "query-block", nil, &drives); err != nil {
		t.Fatal(err)
	}
	var names []string
	for image := drives[0].Inserted.Image; image != nil; {
		var layer struct {
			Filename string          `json:"filename"`
			Backing  json.RawMessage `json:"backing-image"`
		}
		if err := json.Unmarshal(image, &layer); err != nil {
			t.Fatal(err)
		}
		names, image = append(names, layer.Filename, layer.Filename+" (file)"), layer.Backing
	}
	return names
}

// restoreCrash: the daemon died during the restore of a machine, which has nothing to keep.
func (w *world) restoreCrash(t *testing.T) {
	image, disk := w.path("image"), w.path("disk")
	frozen := w.Disk()
	if _, err := w.Snapshot(t.Context(), machine.SnapshotSpec{Dir: image, Disk: disk, End: true}); err != nil {
		t.Fatal(err)
	}
	own := w.path("disk")
	if err := w.engine.CreateDisk(t.Context(), own, machine.Base{Path: frozen, Format: "qcow2"}, 64); err != nil {
		t.Fatal(err)
	}
	spec, hw, err := w.engine.restored(machine.Spec{ID: "x", Dir: w.path("machine"), Disk: own, Restore: image})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := machine.MakeDir(spec.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(w.engine, dir, spec, hw)
	t.Cleanup(g.undo)
	if spec.Initrd, err = g.holdInitrd(); err == nil {
		g.beneath, err = w.engine.beneath(t.Context(), own)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.launch(lock, hw.arguments(spec))
	lock.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteRecord(machine.Record{Engine: w.engine.Name(), Process: g.Handle.Process, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if m, err := w.engine.Adopt(t.Context(), spec.Dir); !errors.Is(err, machine.ErrGone) {
		t.Errorf("adopted %v, %v", m, err)
	}
	<-g.Handle.Done()
}

func (w *world) counter(t *testing.T) int64 {
	t.Helper()
	n, err := strconv.ParseInt(w.ask(t, w, "count"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
