package daemon_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holt"
	"holt/client"
	"holt/machine/machinetest"
)

// ownImages gives a test an image directory of its own, in which no template was
// booted: what builds left is linked from the shared one.
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
	t.Setenv(holt.EnvImageDir, dir)
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
	v.twins()
	if made := snapshotsIn(t, images); len(made) != 1 {
		t.Errorf("snapshots of the template: %v", made)
	}
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

// twins makes two computers at once, one of them with a workspace that has files.
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
