package local

import (
	"os"
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
