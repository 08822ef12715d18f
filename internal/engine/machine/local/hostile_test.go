package local

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
)

// The environment of the agent, which every run can read, has nothing of the daemon's.
func TestEnvironment(t *testing.T) {
	t.Setenv("HOLT_TEST_SECRET", "hunter2")
	e := New(Options{Guest: machinetest.Guest(t)})
	m, err := e.Start(t.Context(), machine.Spec{Dir: t.TempDir(), CPUs: 1, MemoryMB: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(m.PID()) + "/environ")
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("%q, %v", b, err)
	}
}

// FuzzMountinfo: only connections named in the table are aborted.
func FuzzMountinfo(f *testing.F) {
	f.Add([]byte("36 35 0:51 / /home/agent rw - fuse.holt workspace rw\n"))
	f.Add([]byte("36 35 0:../51 / /x rw - fuse x\n36 35 0:+1 / /x rw - fuse x\n1 1 0:7 / / rw - fusectl x\n"))
	f.Fuzz(func(t *testing.T, table []byte) {
		found := map[uint32]bool{}
		addFuse(found, table)
		for c := range found {
			if !regexp.MustCompile(fmt.Sprintf(`\b0:0*%d\b`, c)).Match(table) {
				t.Errorf("%d", c)
			}
		}
	})
}
