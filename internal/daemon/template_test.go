package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
	"holt/internal/engine/machine/machinetest"
)

// ownImages gives a test an image directory of its own, in which base is the only
// template and was never booted: what builds left is linked from the shared one.
func ownImages(t *testing.T) string {
	t.Helper()
	shared := machinetest.Images(t)
	dir, err := os.MkdirTemp(filepath.Dir(shared), "images-test-") // on the same file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	err = filepath.WalkDir(shared, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // others work there meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(shared, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "snapshots" || e.Name() == "holders" || name == "tmp" || name == "locks"):
			return fs.SkipDir
		case filepath.Dir(name) == "templates" && e.Name() != "base.json": // its daemons would boot it
			return nil
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		if err := os.Link(path, filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	setenv(t, holt.EnvImageDir, dir)
	return dir
}

// snapshotsIn lists the templates' snapshots that machines can go on from.
func snapshotsIn(t *testing.T, images string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(images, "roots", "*", "snapshots", "*", "machine.json"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// boot names the boot of a computer's kernel, which those share that go on from the same.
const boot = "cat /proc/sys/kernel/random/boot_id"

// TestTemplates: computers are made from one machine that was booted from their template, and
// are themselves from the beginning. A daemon that is killed while it makes that leaves nothing.
// What is out of date is made again when the next daemon has time.
func TestTemplates(t *testing.T) {
	points := []string{"template/ready"}
	if os.Getenv("HOLT_SOAK") != "" {
		points = append(points, "template/start", "template/memory", "template/keep")
	}
	v := &vm{t: t, dir: vmHome(t)}
	images := ownImages(t)
	for _, point := range points {
		v.again(point)
		v.killedTemplate(images, point)
	}
	v.again("")
	v.notUp(images)
	v.twins()
	if made := snapshotsIn(t, images); len(made) != 1 {
		t.Errorf("snapshots of the template: %v", made)
	}
	v.renewed(images)
	v.goneTemplate(images)
	for _, name := range []string{"bohr", "curie", "einstein"} {
		v.says(name, "echo goes on > /home/agent/file; cat /home/agent/file")
		if report, err := v.Workspaces.Check(t.Context(), name); err != nil || len(report.Problems) > 0 {
			t.Errorf("check of %s: %v %v", name, report.Problems, err)
		}
		if _, err := v.Computers.Delete(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
	}
	for _, sub := range []string{"computers", "disks", "templates"} {
		entries(t, v.dir, sub, 0)
	}
	endAll(t, v.process)
	t.Logf("counts: a daemon was killed at %d points", len(points)+1) // and in a renewal
}

// killedTemplate has a daemon die at a point of making a template's snapshot.
func (v *vm) killedTemplate(images, point string) {
	t := v.t
	t.Helper()
	done := make(chan struct{})
	caller, err := client.New(client.Options{Socket: filepath.Join(v.dir, "holt.sock")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		caller.Computers.Create(ctx, holt.ComputerSpec{Name: "bohr", MemoryMB: 256}, "")
	}()
	v.dies(point)
	leave()
	<-done
	caller.Close()
	v.again("")
	if all, err := v.Computers.List(t.Context()); err != nil || len(all) > 0 || len(snapshotsIn(t, images)) > 0 {
		t.Errorf("%s: left %+v, %v", point, all, err)
	}
	for _, sub := range []string{"computers", "disks", "templates"} {
		entries(t, v.dir, sub, 0)
	}
	entries(t, images, "tmp", 0)
	v.kill()
}

// change rewrites the record of the image base, as another build would have.
func change(t *testing.T, images, field string, value []string) {
	t.Helper()
	read := func(name string, to any) {
		t.Helper()
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var current struct{ Digest string }
	read(filepath.Join(images, "templates", "base.json"), &current)
	name, record := filepath.Join(images, "roots", current.Digest, "record.json"), map[string]any{}
	read(name, &record)
	record[field] = value
	b, err := json.Marshal(record)
	if err == nil {
		err = os.WriteFile(name+".new", b, 0o600) // others have a link to what it was
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// notUp: a service that does not come up keeps its template from being kept, and who waits is told which.
func (v *vm) notUp(images string) {
	t := v.t
	t.Helper()
	change(t, images, "units", []string{"dbus.socket", "nowhere.service"})
	_, err := v.Images.Boot(t.Context(), "base", holt.Shape{MemoryMB: 256}, "")
	wantCode(t, err, holt.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "nowhere.service did not start: it is not-found") || strings.Contains(err.Error(), "dbus") || holt.AsError(err).Hint == "" {
		t.Errorf("a template with a service that does not come up: %v", err)
	}
	if made := snapshotsIn(t, images); len(made) > 0 {
		t.Errorf("it is kept: %v", made)
	}
	entries(t, v.dir, "templates", 0)
	entries(t, images, "tmp", 0)
	change(t, images, "units", nil)
}

// renewed: a daemon boots again what was kept but is out of date, behind all else; one that is killed
// at it leaves nothing.
func (v *vm) renewed(images string) {
	t := v.t
	t.Helper()
	old := snapshotsIn(t, images)
	used := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(old[0], used, used); err != nil {
		t.Fatal(err)
	}
	setenv(t, envRenew, "1ms")
	v.kill()
	change(t, images, "args", []string{"net.ifnames=0", "renewed=yes"})
	v.again("template/ready")
	v.dies("template/ready")
	machines := namesIn(t, filepath.Join(v.dir, "templates"))
	if len(machines) != 1 {
		t.Fatalf("machines under way: %v", machines)
	}
	var record struct {
		Process struct{ PID int }
	}
	b, err := os.ReadFile(filepath.Join(v.dir, "templates", machines[0], "machine.json"))
	if err == nil {
		err = json.Unmarshal(b, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	if least, err := unix.Getpriority(unix.PRIO_PROCESS, record.Process.PID); err != nil || least != 1 { // as the kernel counts: 20 less nice's
		t.Errorf("its priority is %d, %v", least, err)
	}
	setenv(t, envRenew, "")
	v.again("")
	entries(t, v.dir, "templates", 0)
	entries(t, images, "tmp", 0)
	if all := snapshotsIn(t, images); !slices.Equal(all, old) {
		t.Errorf("left: %v", all)
	}
	v.kill()
	setenv(t, envRenew, "1ms")
	v.again("")
	made := func(record string) bool { // that it was made is no use of it
		info, err := os.Stat(record)
		return err == nil && !slices.Contains(old, record) && info.ModTime().Equal(used)
	}
	for began := time.Now(); !slices.ContainsFunc(snapshotsIn(t, images), made); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("nothing is made again: %v", snapshotsIn(t, images))
		}
	}
	image, err := v.Images.Boot(t.Context(), "base", holt.Shape{MemoryMB: 256}, "")
	if err != nil || !slices.Equal(image.Ready, []holt.Shape{{CPUs: 1, MemoryMB: 256}}) || len(snapshotsIn(t, images)) != 2 {
		t.Errorf("booted again: %+v, %v", image, err)
	}
	setenv(t, envRenew, "")
	if err := os.Remove(old[0]); err != nil { // its disk stays
		t.Fatal(err)
	}
}

// twins makes two computers at once, one of them with a workspace that has files; a third caller boots the template.
func (v *vm) twins() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	if _, err := v.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "einstein"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.WorkspaceFiles.Write(ctx, "einstein", "/notes", holt.WriteSpec{}, strings.NewReader("from before\n")); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for name, spec := range map[string]holt.ComputerSpec{
		"bohr":     {MemoryMB: 256, DiskSizeMB: 3072},
		"einstein": {MemoryMB: 256, DiskSizeMB: 1024, Workspace: "einstein"},
	} {
		spec.Name = name
		work.Go(func() {
			if _, err := v.Computers.Create(ctx, spec, ""); err != nil {
				t.Error(err)
			}
		})
	}
	work.Go(func() {
		if _, err := v.Images.Boot(ctx, "base", holt.Shape{MemoryMB: 256}, ""); err != nil {
			t.Error(err)
		}
	})
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	different := map[string]string{}
	for _, name := range []string{"bohr", "einstein"} {
		v.clock(name)
		if said := v.says(name, "hostname; cat /etc/hostname; grep "+name+" /etc/hosts; systemctl is-system-running --wait | grep -cE 'running|degraded'"); said != name+"\n"+name+"\n127.0.1.1 "+name+"\n1" {
			t.Errorf("%s says it is %q", name, said)
		}
		for _, command := range []string{"cat /etc/machine-id", "head -c 16 /dev/urandom | od -A n -t x1", "cat /proc/sys/kernel/random/uuid"} {
			said := v.says(name, command)
			if other := different[said]; other != "" {
				t.Errorf("%s and %s are the same in %s: %s", name, other, command, said)
			}
			different[said] = name
		}
	}
	if v.says("bohr", boot) != v.says("einstein", boot) {
		t.Error("one was booted for itself")
	}
	if said := v.says("einstein", "cat /home/agent/notes; mount | grep -c ' /home/agent '"); said != "from before\n1" {
		t.Errorf("the workspace that was there: %q", said)
	}
	for name, most := range map[string]string{"bohr": "3072", "einstein": "1024"} { // a file system takes some of a disk for itself
		v.says(name, "test $(df --output=size -m / | tail -1) -le "+most+" -a $(df --output=size -m / | tail -1) -ge $(("+most+" * 9 / 10))")
	}
}

// goneTemplate: computers need nothing of a snapshot that is gone or does not go on but its
// disk; they are stopped and started, and another one boots.
func (v *vm) goneTemplate(images string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	id, template := v.says("bohr", "echo kept > /root/kept; cat /etc/machine-id"), v.says("einstein", boot)
	for _, record := range snapshotsIn(t, images) {
		if err := os.Remove(filepath.Join(filepath.Dir(record), "memory")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.Computers.Stop(ctx, "bohr", ""); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := v.Computers.Start(ctx, "bohr", ""); err != nil {
			t.Error(err)
		}
	})
	work.Go(func() {
		if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 256, DiskSizeMB: 2048}, ""); err != nil {
			t.Error(err)
		}
	})
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if said := v.says("bohr", "cat /root/kept /etc/machine-id"); said != "kept\n"+id {
		t.Errorf("after stop and start: %q", said)
	}
	for _, name := range []string{"bohr", "curie"} {
		if v.says(name, boot) == template {
			t.Errorf("%s was not booted", name)
		}
	}
	if left := snapshotsIn(t, images); len(left) > 0 {
		t.Errorf("what does not go on is still there: %v", left)
	}
}

// TestDownEndsBoot: a daemon that is to end does not wait for a template that is being booted, and leaves nothing of it.
func TestDownEndsBoot(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	images := ownImages(t)
	v.again("")
	booted, caller := make(chan error, 1), v.Images
	go func() {
		_, err := caller.Boot(context.Background(), "base", holt.Shape{MemoryMB: 256}, "")
		booted <- err
	}()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if records, _ := filepath.Glob(filepath.Join(v.dir, "templates", "*", "machine.json")); len(records) > 0 {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("no machine boots")
		}
	}
	if _, err := v.Daemon.Down(t.Context(), holt.DownSpec{}, ""); err != nil {
		t.Fatal(err)
	}
	if err := v.wait(); err != nil {
		t.Error("the daemon ended with", err)
	}
	wantCode(t, <-booted, holt.Unavailable)
	if made := snapshotsIn(t, images); len(made) > 0 {
		t.Errorf("kept: %v", made)
	}
	entries(t, v.dir, "templates", 0)
	entries(t, images, "tmp", 0)
}
