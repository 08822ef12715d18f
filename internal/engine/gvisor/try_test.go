package gvisor_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
)

func TestTry(t *testing.T) {
	e, err := gvisor.Open(gvisor.Options{Program: "/tmp/holt-g", Guest: "/tmp/guest"})
	if err != nil {
		t.Fatal(err)
	}
	roots, _ := filepath.Glob("/work/main/.cache/images/roots/*/root*")
	fmt.Println(roots)
	dir := t.TempDir()
	began := time.Now()
	disk := dir + "/disk"
	if err := e.CreateDisk(t.Context(), disk, machine.Base{Path: os.Getenv("ROOT")}, 4096); err != nil {
		t.Fatal(err)
	}
	fmt.Println("disk", time.Since(began))
	began = time.Now()
	m, err := e.Start(t.Context(), machine.Spec{ID: "x", Dir: dir + "/m", Disk: disk, CPUs: 1, MemoryMB: 512, Network: true, Unserved: true})
	if err != nil {
		b, _ := os.ReadFile(dir + "/m/keeper.log")
		t.Fatal(err, string(b))
	}
	fmt.Println("start", time.Since(began))
	defer func() {
		b, _ := os.ReadFile(m.Console())
		fmt.Println("console:", string(b))
		b, _ = os.ReadFile(dir + "/m/keeper.log")
		fmt.Println("keeper:", string(b))
		m.Kill()
	}()
	say := func(m machine.Machine) {
		c, err := m.Dial(t.Context(), "control")
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintln(c, "ping")
		line, err := bufio.NewReader(c).ReadString('\n')
		fmt.Printf("%q %v %v\n", line, err, time.Since(began))
		c.Close()
	}
	say(m)
	began = time.Now()
	r, err := m.Snapshot(t.Context(), machine.SnapshotSpec{Dir: dir + "/image", Disk: dir + "/disk2"})
	fmt.Printf("snapshot %v %+v %v\n", time.Since(began), r, err)
	if err != nil {
		t.Fatal(err)
	}
	say(m)
	began = time.Now()
	if err := e.CreateDisk(t.Context(), dir+"/disk3", machine.Base{Path: disk, Format: "qcow2"}, 4096); err != nil {
		t.Fatal(err)
	}
	f, err := e.Start(t.Context(), machine.Spec{ID: "y", Dir: dir + "/f", Disk: dir + "/disk3", Restore: dir + "/image", Unserved: true})
	if err != nil {
		b, _ := os.ReadFile(dir + "/f/keeper.log")
		t.Fatal(err, string(b))
	}
	fmt.Println("restored", time.Since(began))
	say(f)
	fmt.Println(f.Kill())
	b, _ := os.ReadFile(f.Console())
	fmt.Println("fork console:", string(b))
	b, _ = os.ReadFile(dir + "/f/keeper.log")
	fmt.Println("fork keeper:", string(b))
}
